import { expect, test } from '@jest/globals';
import { usePoliced } from '../../support/policed.ts';
import { codeOf, echoOf } from '../../support/wire.ts';

const scene = usePoliced();
const SECRET = '/echo/strict/secret';

/** `http://HOST:PORT` of the upstream that three deployments share, as to a forward proxy. */
function upstream(): string {
  const explanation = scene.explained('/echo/x');
  if (!explanation.allowed) throw new Error(explanation.detail);
  return `http${explanation.sends.slice('GET https'.length, -'/echo/x'.length)}`;
}

async function expectUnlisted(line: string, ...headers: string[]): Promise<void> {
  const before = scene.arrived();
  const answer = await scene.ask(line, ...headers);
  expect([answer.status, codeOf(answer)]).toEqual([403, 'operation-unlisted']);
  expect(scene.arrived()).toBe(before);
}

test('a path has the rules of its prefix', () => expectUnlisted(`GET ${SECRET}`));

test('an address has the rules of its own deployment, whatever Host says', async () => {
  await expectUnlisted(`GET ${upstream()}${SECRET}`, 'Host: elsewhere.internal');
  await expectUnlisted(`GET ${upstream().toUpperCase()}${SECRET}`, 'Host: elsewhere.internal');
});

test('a host of its own leads to its own upstream alone', async () => {
  // The abstracts service, which echoes as well: it is not the one that the rules of /echo/strict guard.
  const answer = await scene.ask(`GET ${SECRET}`, 'Host: elsewhere.internal');
  const { url, rawHeaders } = echoOf(answer);
  expect(url).toBe(SECRET);
  expect(upstream()).not.toBe(`http://${rawHeaders[rawHeaders.indexOf('host') + 1]}`);
});

test.each([
  'X-Forwarded-Host: elsewhere.internal',
  'Forwarded: host=elsewhere.internal',
  'X-Host: elsewhere.internal',
])('and %s leads nowhere else', (header) => expectUnlisted(`GET ${SECRET}`, header));

test('two hosts are none', async () => {
  const before = scene.arrived();
  const answer = await scene.ask(`GET ${SECRET}`, 'Host: gateway.internal', 'Host: elsewhere.internal');
  expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
  expect(scene.arrived()).toBe(before);
});
