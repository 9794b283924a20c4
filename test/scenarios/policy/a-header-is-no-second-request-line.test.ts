import { expect, test } from '@jest/globals';
import { usePoliced } from '../../support/policed.ts';
import { codeOf, echoOf } from '../../support/wire.ts';

const scene = usePoliced();
const PART = '/echo/strict/parts/1?site_name=journal-a';

test.each([
  'X-HTTP-Method-Override: DELETE',
  'x-http-method: DELETE',
  'X-Method-Override: DELETE',
  'X_HTTP_Method_Override: DELETE',
  'X-Original-URL: /echo/strict/secret',
  'X-Rewrite-URL: /echo/strict/secret',
  'X-Original-URL:',
  'X-Original-Uri: /echo/strict/secret',
  'X-Forwarded-Uri: /echo/strict/secret',
  'X-Original-Method: DELETE',
  'X_Forwarded_Method: DELETE',
  '_method: DELETE',
])('%s', async (header) => {
  const before = scene.arrived();
  const answer = await scene.ask(`GET ${PART}`, header);
  expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
  expect(scene.arrived()).toBe(before);
});

test('where no rule is broken by it, it passes', async () => {
  const { rawHeaders } = echoOf(await scene.ask('GET /echo/x', 'X-HTTP-Method-Override: DELETE'));
  expect(rawHeaders.map((name) => name.toLowerCase())).toContain('x-http-method-override');
});
