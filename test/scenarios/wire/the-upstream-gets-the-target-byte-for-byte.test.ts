import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { codeOf, echoOf, useWire } from '../../support/wire.ts';

const run = promisify(execFile);
// A server that compares the uri of the answer with the target, byte by byte, and calls a difference 400.
const wire = useWire({ behaviour: { uriMismatchStatus: 400 } });

test.each([
  '/echo?ids=%27DEMO-1%27,%27DEMO-2%27&site_name=demo',
  "/echo?ids='DEMO-1'",
  '/echo/%2f%2F%c3%A9%C3%a9',
  '/echo//a//../b/./c/..',
  '/echo/..',
  '/echo/../echo',
  '/echo?',
  '/echo??&&==',
  '/echo/;v=1;w?a;b',
  '/echo/"quoted\\"',
  '/echo/{a}|[b]^`c`<d>~',
  '/echo/%',
  '/echo/%zz%0',
  '/echo?a=%00%0d%0aX:%20y',
  '/echo?a=http://other.example/',
  `/echo?${'x'.repeat(8_000)}`,
])('%s', async (target) => {
  const answer = await wire.ask(`GET ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
  expect(echoOf(answer).url).toBe(target);
});

test('of an absolute form, its path and query', async () => {
  const { port } = wire.simulator.deployments.submissions;
  const path = '/echo//a/%2f/../b?c="\'d';
  const answer = await wire.ask(`GET http://127.0.0.1:${port}${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
  expect(echoOf(answer).url).toBe(path);
});

test('whatever printable characters it has', async () => {
  const client = await wire.connect();
  // `#` begins a fragment, which is no part of a target (RFC 9110 §7.1).
  const printable = fc
    .integer({ min: 0x21, max: 0x7e })
    .filter((code) => code !== 0x23)
    .map((code) => String.fromCharCode(code));
  await fc.assert(
    fc.asyncProperty(
      fc.array(printable, { maxLength: 200 }),
      fc.constantFrom('/', '?'),
      async (characters, separator) => {
        const target = `/echo${separator}${characters.join('')}`;
        await client.send(`GET ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
        expect(echoOf(await client.answer()).url).toBe(target);
      },
    ),
    { numRuns: 200 },
  );
  expect(wire.simulator.counts('submissions').refused).toMatchObject({ uri: 0, 'wrong-response': 0 });
});

test('as a real client sends it', async () => {
  const target = "/echo/a/../b//c?ids=%27DEMO%27&q='x'";
  const { stdout } = await run('curl', [
    '-sS',
    '--path-as-is',
    '--globoff',
    `${wire.gateway.origin}${target}`,
  ]);
  expect(JSON.parse(stdout).url).toBe(target);
});

describe('a byte that no target may hold (RFC 3986 §2) goes nowhere:', () => {
  test.each(['\x00', '\x01', '\t', '\x0b', '\x1f', '\x7f', '\x80', '\xe9', '\xc3\xa9', '\xff'])(
    '%j',
    async (bytes) => {
      const { requests } = wire.simulator.counts('submissions');
      const answer = await wire.ask(`GET /echo/${bytes} HTTP/1.1\r\nHost: x\r\n\r\n`);
      expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
      expect(wire.simulator.counts('submissions').requests).toBe(requests);
    },
  );
});
