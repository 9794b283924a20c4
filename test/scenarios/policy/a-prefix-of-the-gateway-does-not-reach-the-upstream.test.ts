import { expect, test } from '@jest/globals';
import { startPair } from '../../support/simulated-pair.ts';

const settings = {
  match: { pathPrefix: '/gateway/submissions' },
  rewrite: { stripPrefix: '/gateway/submissions' },
  operations: { listed: { method: 'GET', path: '/echo/listed' } },
};

async function echoed(answer: Response): Promise<string> {
  expect(answer.status).toBe(200);
  return ((await answer.json()) as { url: string }).url;
}

test('the rest of the target is sent byte for byte, signed as it is sent', async () => {
  const { get, simulator } = await startPair({}, { settings });
  for (const rest of ['/echo/%27a%27/b?ids=%27x%27&y=%2F', '/echo/listed?a=1', '/echo//x']) {
    expect(await echoed(await get(`/gateway/submissions${rest}`))).toBe(rest);
  }
  expect(simulator.counts('submissions').refused.uri).toBe(0);
});

test('what is judged is what is sent', async () => {
  const { get, gateway } = await startPair({}, { settings: { ...settings, unlistedOperations: 'deny' } });
  expect(await echoed(await get('/gateway/submissions/echo/listed'))).toBe('/echo/listed');
  expect((await get('/gateway/submissions/echo/other')).status).toBe(403);
  expect((await get('/gateway/submissions/gateway/submissions/echo/listed')).status).toBe(403);
  const labels = { operation: 'listed', status: '200' };
  expect(await gateway.metric('digest_gateway_requests_total', labels)).toBe(1);
  const { paths } = (await (await fetch(`${gateway.control}/openapi.json`)).json()) as { paths: object };
  expect(Object.keys(paths)).toEqual(['/gateway/submissions/echo/listed']);
});

test('a prefix ends where a segment does', async () => {
  const { get } = await startPair({}, { settings });
  expect((await get('/gateway/submissionsx/echo/a')).status).toBe(404);
});
