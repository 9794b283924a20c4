import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { AUDIT_KEY, REPLICA, useFolders } from '../../support/audit-log.ts';
import { type ServedGateway, serveGateway } from '../../support/served-gateway.ts';
import { authors, openPair, type Pair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';
import { codeOf, useClients } from '../../support/wire.ts';

const run = promisify(execFile);
const folder = useFolders();
const connect = useClients();
let pair: Pair;
let gateway: ServedGateway;

beforeAll(async () => {
  pair = await openPair();
});
afterAll(async () => {
  await gateway.close();
  await pair.close();
});

const status = async (): Promise<number> => {
  const response = await fetch(`${gateway.origin}${authors}`);
  await response.text();
  return response.status;
};

async function refusalOf(bytes: string): Promise<[number, string]> {
  const client = await connect(Number(new URL(gateway.origin).port));
  await client.send(bytes);
  const response = await client.answer(bytes.startsWith('CONNECT') ? 'CONNECT' : 'GET');
  expect((await client.end()).toString()).toBe('');
  return [response.status, codeOf(response)];
}

test('answers 503 also to what is no request while the audit log cannot be written', async () => {
  const directory = await folder();
  const keyFile = join(directory, 'key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const upstream = { origin: pair.simulator.deployments.submissions.origin, ca: pair.simulator.ca };
  gateway = await serveGateway(upstream, { audit: { directory, keyFile, replica: REPLICA } });
  const refused: [string, number, string][] = [
    ['nonsense\r\n\r\n', 400, 'bad-request'],
    ['GET / RTSP/1.1\r\nHost: x\r\n\r\n', 400, 'bad-request'],
    [`GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(20_000)}\r\n\r\n`, 431, 'headers-too-large'],
    ['POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n', 400, 'bad-request'],
    ['CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n', 405, 'connect-unsupported'],
  ];
  expect(await status()).toBe(200);
  for (const [bytes, ...expected] of refused) expect(await refusalOf(bytes)).toEqual(expected);
  // As on a disk that is full.
  await run('prlimit', ['--pid', String(gateway.pid), '--fsize=1:unlimited']);
  await until(async () => (await status()) === 503);
  for (const [bytes] of refused) expect(await refusalOf(bytes)).toEqual([503, 'audit-unavailable']);
  await run('prlimit', ['--pid', String(gateway.pid), '--fsize=unlimited']);
  await until(async () => (await status()) === 200);
  for (const [bytes, ...expected] of refused) expect(await refusalOf(bytes)).toEqual(expected);
});
