import { expect, test } from '@jest/globals';
import { usePoliced } from '../../support/policed.ts';
import { codeOf, echoOf } from '../../support/wire.ts';

const scene = usePoliced();

test.each([
  '/echo/x/../strict/secret',
  '/echo/./strict/secret',
  '/echo/%2e/strict/secret',
  '/echo/x/%2e%2E/strict/secret',
  '/echo/x/%252e%252e/strict/secret',
  '/echo/x/..;/strict/secret',
  '/echo/x/..\\strict\\secret',
  '/echo/x/..%2fstrict%2fsecret',
  '/echo/x/%c0%ae%c0%ae/strict/secret',
  '/echo/../admin',
  '/echo/one/../two?site_name=Revue%20d%E2%80%99%C3%A9t%C3%A9',
  '/echo/strict/parts/..',
  '/echo/strict/parts/../../x',
])('%s', async (path) => {
  const before = scene.arrived();
  const answer = await scene.ask(`GET ${path}`);
  expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
  expect(scene.arrived()).toBe(before);
});

test('not in absolute form either', async () => {
  const { sends } = allowed('/echo/x');
  const origin = sends.slice('GET https'.length, -'/echo/x'.length);
  const answer = await scene.ask(`GET http${origin}/echo/x/../strict/secret`);
  expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
});

test.each(['/echo/a/../b', '/echo/a/./b/..', '/echo/..x/...'])(
  '%s stays where it is and passes',
  async (path) => expect(echoOf(await scene.ask(`GET ${path}`)).url).toBe(path),
);

function allowed(target: string) {
  const explanation = scene.explained(target);
  if (!explanation.allowed) throw new Error(explanation.detail);
  return explanation;
}
