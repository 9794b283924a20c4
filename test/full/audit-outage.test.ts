import { execFile } from 'node:child_process';
import { appendFile, readdir, readFile, rename, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { isSetAside } from '../../src/audit/segments/segment.ts';
import { AUDIT_KEY, auditOptions, REPLICA, recordsIn, useFolders } from '../support/audit-log.ts';
import { closedAtEnd } from '../support/closing.ts';
import type { TopLevel } from '../support/gateway.ts';
import { type GatewayProcess, type ProcessOptions, startGatewayProcess } from '../support/gateway-process.ts';
import { injectFault } from '../support/inject-fault.ts';
import { authors, openScene, type RunningScene, startScene } from '../support/scene.ts';
import { needPackages } from '../support/system-packages.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';
import { codeOf, connect } from '../support/wire.ts';

const folder = useFolders();

const run = promisify(execFile);
const SEGMENT = join(REPLICA, '000000000001.jsonl');
let pair: RunningScene;

beforeAll(async () => {
  pair = await openScene();
});
afterAll(() => pair.close());

async function serve(
  directory: string,
  change: Record<string, unknown>,
  process: ProcessOptions = {},
  top: TopLevel = {},
): Promise<GatewayProcess> {
  const keyFile = join(directory, 'key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const upstream = { origin: pair.simulator.deployments.submissions.origin, ca: pair.simulator.ca };
  const audit = { directory, keyFile, replica: REPLICA, ...change };
  return startGatewayProcess({ upstream }, { ...top, audit }, process);
}

const ask = async (gateway: GatewayProcess, id: string): Promise<{ status: number; text: string }> => {
  const response = await fetch(`${gateway.origin}${authors}`, { headers: { 'x-request-id': id } });
  return { status: response.status, text: await response.text() };
};

async function refuses(gateway: GatewayProcess): Promise<boolean> {
  return (await ask(gateway, 'probe')).status === 503;
}

async function isUnready({ control }: GatewayProcess): Promise<boolean> {
  const ready = await fetch(`${control}/readyz`);
  return ready.status === 503 && ((await ready.json()) as { status: string }).status === 'down';
}

/** Starts a fault; resolves to a function that ends it. */
type Fault = (gateway: GatewayProcess, directory: string) => Promise<() => Promise<unknown>>;

const limited: Fault = async ({ pid }, directory) => {
  const { size } = await stat(join(directory, SEGMENT));
  // Room for a part of the next batch, as on a disk that fills up.
  needPackages('util-linux');
  await run('prlimit', ['--pid', String(pid), `--fsize=${size + 50}:unlimited`]);
  return () => run('prlimit', ['--pid', String(pid), '--fsize=unlimited']);
};
const failing =
  (error: string): Fault =>
  ({ pid }) =>
    injectFault(pid, `fdatasync:error=${error}`);
const slow: Fault = ({ pid }) => injectFault(pid, 'fdatasync:delay_enter=4000000');

const faults: [string, string, Fault, string][] = [
  ['a file that may not grow', 'write', limited, 'EFBIG'],
  ['an I/O error', 'fsync', failing('EIO'), 'EIO'],
  ['no space left', 'fsync', failing('ENOSPC'), 'ENOSPC'],
  ['a file system that became read-only', 'fsync', failing('EROFS'), 'EROFS'],
  ['a disk that does not answer', 'fsync', slow, 'disk-timeout'],
];

test.each(faults)(
  'refuses requests during %s (durability %s), and resumes by itself',
  async (_title, durability, begin, code) => {
    const directory = await folder();
    {
      await using gateway = await serve(directory, { durability });
      expect((await ask(gateway, 'before')).status).toBe(200);
      const end = await begin(gateway, directory);
      const began = performance.now();
      const refused = await ask(gateway, 'during');
      expect(refused).toMatchObject({ status: 503, text: expect.stringContaining('audit-unavailable') });
      expect(refused.text).not.toContain('Lindqvist');
      expect(performance.now() - began).toBeLessThan(10_000);
      // The next file may take some records before it may not grow, either.
      await until(async () => (await refuses(gateway)) && (await isUnready(gateway)));
      expect(await gateway.metric('digest_gateway_audit_failures_total', { sink: 'file' })).toBeGreaterThan(
        0,
      );
      await until(async () => (await gateway.metric('digest_gateway_audit_failing', { sink: 'file' })) === 1);
      await end();
      await until(async () => !(await refuses(gateway)));
      await until(async () => (await gateway.metric('digest_gateway_audit_failing')) === 0);
      expect((await ask(gateway, 'after')).status).toBe(200);
    }
    const records = await recordsIn(directory);
    const of = (id: string) => records.filter(({ kind, requestId }) => kind === 'access' && requestId === id);
    expect([of('before').length, of('after').length]).toEqual([1, 1]);
    const resumed = records.filter(({ event }) => event === 'audit-resumed');
    expect(resumed[0]).toMatchObject({ code });
    expect(resumed.reduce((sum, { refused }) => sum + Number(refused), 0)).toBeGreaterThan(0);
    expect((await verified(directory)).alterations).toEqual([]);
  },
);

test('serves all requests with onFailure: serve, and counts the missing records', async () => {
  const directory = await folder();
  {
    await using gateway = await serve(directory, { onFailure: 'serve' });
    const end = await limited(gateway, directory);
    for (const id of ['a', 'b']) expect((await ask(gateway, id)).status).toBe(200);
    await until(async () => (await gateway.metric('digest_gateway_audit_failures_total')) > 0);
    expect(await gateway.metric('digest_gateway_audit_failing')).toBe(1);
    expect((await (await fetch(`${gateway.control}/readyz`)).json()) as object).toMatchObject({
      status: 'degraded',
    });
    await end();
    await until(() => gateway.logged.some(({ msg }) => msg === 'audit log writable again'));
  }
  // Records that could not be written in time were written afterwards.
  const ids = (await recordsIn(directory))
    .filter(({ kind }) => kind === 'access')
    .map(({ requestId }) => requestId);
  expect(ids).toEqual(['a', 'b']);
});

describe.each([
  ['serve', 200],
  ['refuse', 503],
])('a start on a disk that takes nothing, with onFailure: %s', (onFailure, status) => {
  test.each([
    ['behind a process that was killed', true],
    ['without a log', false],
  ])('responds with what that says, and records when there is room: %s', async (_title, withLog) => {
    const directory = await folder();
    if (withLog) {
      const gateway = await serve(directory, {});
      expect((await ask(gateway, 'before')).status).toBe(200);
      await gateway.kill();
      await appendFile(join(directory, SEGMENT), '{"seq":9,"ti');
    }
    needPackages('util-linux');
    {
      const change = { onFailure };
      await using gateway = await serve(directory, change, { runner: ['prlimit', '--fsize=1:unlimited'] });
      expect((await ask(gateway, 'during')).status).toBe(status);
      await until(async () => (await gateway.metric('digest_gateway_audit_failing')) === 1);
      // Each attempt makes a file and removes it.
      await until(async () => !(await readdir(join(directory, REPLICA))).some((name) => isSetAside(name)));
      const aside = gateway.logged.filter(({ msg }) => String(msg).includes('set aside'));
      const msg = 'the end of the audit log has no seal and is set aside when the disk has room';
      expect(aside).toMatchObject(withLog ? [{ msg }] : []);
      await run('prlimit', ['--pid', String(gateway.pid), '--fsize=unlimited']);
      await until(() => gateway.logged.some(({ msg }) => msg === 'audit log writable again'));
      expect((await ask(gateway, 'after')).status).toBe(200);
    }
    const records = await recordsIn(directory);
    const ids = records.filter(({ kind }) => kind === 'access').map(({ requestId }) => requestId);
    expect(ids).toEqual(expect.arrayContaining(withLog ? ['before', 'after'] : ['after']));
    const recovered = records.filter(({ event }) => event === 'recovered');
    expect(recovered).toMatchObject(withLog ? [{ segment: '000000000001.jsonl', bytes: 12 }] : []);
    expect(await verified(directory)).toMatchObject({
      alterations: [],
      segments: 1,
    });
  });
});

test('a start on a disk that takes nothing says why it fails, at a port that is taken', async () => {
  const directory = await folder();
  needPackages('util-linux');
  await using other = await serve(directory, {});
  const listen = { port: Number(new URL(other.origin).port) };
  const change = { replica: 'r2', onFailure: 'serve' };
  const started = serve(directory, change, { runner: ['prlimit', '--fsize=1:unlimited'] }, { listen });
  await expect(started).rejects.toThrow('another program listens on port');
});

test('makes the record durable before the response leaves, with durability fsync', async () => {
  const directory = await folder();
  const trace = join(directory, 'trace');
  const keyFile = join(directory, 'key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const upstream = { origin: pair.simulator.deployments.submissions.origin, ca: pair.simulator.ca };
  const calls = 'trace=write,writev,sendto,sendmsg,fdatasync,fsync';
  const runner = ['strace', '-D', '-f', '-q', '-y', '-s', '1000', '-e', calls, '-o', trace];
  const audit = { directory, keyFile, replica: REPLICA, durability: 'fsync' };
  const gateway = await closedAtEnd(startGatewayProcess({ upstream }, { audit }, { runner }));
  expect((await ask(gateway, 'traced')).status).toBe(200);
  await gateway.close();
  const lines = (await readFile(trace, 'utf8')).split('\n');
  const after = (from: number, what: RegExp): number => {
    const index = lines.findIndex((line, at) => at > from && what.test(line));
    expect([what.source, index]).not.toEqual([what.source, -1]);
    return index;
  };
  const directorySynced = ended(lines, after(-1, new RegExp(` fsync\\(\\d+<${directory}/${REPLICA}>`)));
  const written = after(directorySynced, /write\(\d+<[^>]*\.jsonl>, .*access/);
  const synced = ended(lines, after(ended(lines, written), /fdatasync\(\d+<[^>]*\.jsonl>/));
  const answered = after(-1, /(writev|write)\(\d+<socket:[^>]*>.*"HTTP\/1\.1 200/);
  expect([directorySynced < written, written < synced, synced < answered]).toEqual([true, true, true]);
});

async function refusalOf(gateway: GatewayProcess, bytes: string): Promise<[number, string]> {
  const client = await connect(Number(new URL(gateway.origin).port));
  await client.send(bytes);
  const response = await client.answer(bytes.startsWith('CONNECT') ? 'CONNECT' : 'GET');
  expect((await client.end()).toString()).toBe('');
  return [response.status, codeOf(response)];
}

test('answers 503 also to malformed requests', async () => {
  const directory = await folder();
  await using gateway = await serve(directory, {});
  const refused: [string, number, string][] = [
    ['nonsense\r\n\r\n', 400, 'bad-request'],
    ['GET / RTSP/1.1\r\nHost: x\r\n\r\n', 400, 'bad-request'],
    [`GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(20_000)}\r\n\r\n`, 431, 'headers-too-large'],
    ['POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n', 400, 'bad-request'],
    ['CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n', 405, 'connect-unsupported'],
    ['PROPFOO /unknown HTTP/1.1\r\nHost: x\r\n\r\n', 501, 'not-implemented'],
    ['GET /hostless HTTP/1.1\r\nConnection: close\r\n\r\n', 400, 'bad-request'],
  ];
  expect((await ask(gateway, 'before')).status).toBe(200);
  for (const [bytes, ...expected] of refused) expect(await refusalOf(gateway, bytes)).toEqual(expected);
  // Not even a new file may grow, so the log stays unwritable until the limit is lifted.
  needPackages('util-linux');
  await run('prlimit', ['--pid', String(gateway.pid), '--fsize=1:unlimited']);
  await until(() => refuses(gateway));
  for (const [bytes] of refused) expect(await refusalOf(gateway, bytes)).toEqual([503, 'audit-unavailable']);
  await run('prlimit', ['--pid', String(gateway.pid), '--fsize=unlimited']);
  await until(async () => !(await refuses(gateway)));
  for (const [bytes, ...expected] of refused) expect(await refusalOf(gateway, bytes)).toEqual(expected);
  await gateway.close();
  // None of the outage waited in the backlog, which a flood of them would have filled.
  const records = (await recordsIn(directory)).filter(({ kind }) => kind === 'access');
  const of = (path: string) => records.filter((record) => record['path'] === path).length;
  expect([of('/unknown'), of('/hostless')]).toEqual([2, 2]);
});

async function resumed(pair: RunningScene): Promise<boolean> {
  return pair.gateway.logged.some(({ msg }) => msg === 'audit log writable again');
}

test.each([
  ['the directory is removed', (place: string) => rm(place, { recursive: true }), 'segment-gone'],
  ['the file is removed', (place: string) => rm(join(place, SEGMENT)), 'segment-gone'],
  ['the file is moved', (place: string) => rename(join(place, SEGMENT), join(place, 'away')), 'segment-gone'],
  ['the file is truncated', (place: string) => truncate(join(place, SEGMENT), 10), 'segment-truncated'],
  ['a line is appended', (place: string) => appendFile(join(place, SEGMENT), 'x\n'), 'segment-appended'],
])('refuses requests until a new segment is begun if %s', async (_title, tamper, code) => {
  const directory = await folder();
  const pair = await startScene({ audit: auditOptions(directory) });
  expect((await pair.get(authors)).status).toBe(200);
  await tamper(directory);
  await until(() => resumed(pair));
  expect(pair.gateway.logged.find(({ level }) => level === 'error')).toMatchObject({
    code,
    msg: 'requests are refused until the audit log can be written',
  });
  expect((await pair.get(authors)).status).toBe(200);
  expect(await pair.gateway.metric('digest_gateway_audit_failures_total', { sink: 'file' })).toBeGreaterThan(
    0,
  );
  await pair.gateway.app.close();

  const last = (await readdir(join(directory, REPLICA)))
    .filter((name) => name.endsWith('.jsonl'))
    .sort()
    .at(-1);
  expect(last).not.toBe('000000000001.jsonl');
  expect((await recordsIn(directory)).find(({ event }) => event === 'audit-resumed')).toMatchObject({ code });
  const { alterations } = await verified(directory);
  expect(alterations).not.toEqual([]);
});

/** The line of the trace on which the call that starts on a line returns. */
function ended(lines: readonly string[], start: number): number {
  const line = lines[start] ?? '';
  if (!line.includes('<unfinished ...>')) return start;
  const [thread = ''] = line.split(' ');
  return lines.findIndex((other, at) => at > start && other.startsWith(thread) && other.includes('resumed>'));
}
