import { expect, test } from '@jest/globals';
import { usePoliced } from '../../support/policed.ts';

const scene = usePoliced();
const count = (labels: Record<string, string>) =>
  scene.gateway.metric('digest_gateway_requests_total', labels);

test('and no word of a client becomes a label', async () => {
  const site = 'site_name=journal-a';
  await scene.ask(`GET /echo/strict/item?${site}&ids='a'`);
  await scene.ask(`GET /echo/strict/parts/1?${site}`);
  await scene.ask(`GET /echo/strict/parts/2?${site}`);
  await scene.ask(`GET /echo/strict/hunter2?${site}`);
  await scene.ask('GET /echo/hunter2');
  await scene.ask('GET /hunter2');
  const served = { client: 'anonymous', status: '200', code: '' };
  expect(await count({ ...served, deployment: 'strict', operation: 'item' })).toBe(1);
  expect(await count({ ...served, deployment: 'strict', operation: 'part' })).toBe(2);
  expect(await count({ ...served, deployment: 'free', operation: '' })).toBe(1);
  const refused = { client: 'anonymous', operation: '' };
  expect(await count({ ...refused, deployment: 'strict', status: '403', code: 'operation-unlisted' })).toBe(
    1,
  );
  expect(await count({ ...refused, deployment: '', status: '404', code: 'no-deployment' })).toBe(1);
  const durations = 'digest_gateway_request_duration_seconds_count';
  expect(await scene.gateway.metric(durations, { deployment: 'strict', operation: 'part' })).toBe(2);
  expect(await (await fetch(`${scene.gateway.control}/metrics`)).text()).not.toContain('hunter2');
});

test('the control plane describes the operations where the gateway listens', async () => {
  const description = (await (await fetch(`${scene.gateway.control}/openapi.json`)).json()) as {
    servers: { variables: { port: { default: string } } }[];
    paths: Record<string, unknown>;
  };
  expect(description.servers[0]?.variables.port.default).toBe(String(scene.gateway.port));
  expect(Object.keys(description.paths)).toEqual([
    '/echo/strict/item',
    '/echo/strict/parts/{id}',
    '/echo/one/item',
  ]);
});
