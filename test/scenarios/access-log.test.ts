import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, test } from '@jest/globals';
import { createLog } from '../../src/base/log.ts';
import { AccessLog, UNREADABLE } from '../../src/gateway/access-log.ts';
import { auditOptions, recordsIn, useFolders } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { setupFor } from '../support/gateway.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { authors, startScene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const folder = useFolders();
const settings = { match: { pathPrefix: '/api/' } };
const TIME = String.raw`\[\d\d\/[A-Z][a-z]{2}\/\d{4}:\d\d:\d\d:\d\d \+0000\]`;

async function linesOf(file: string): Promise<string[]> {
  const text = await readFile(file, 'utf8').catch(() => '');
  return text.split('\n').slice(0, -1);
}

/** Resolves to the lines of the file when it has that many. */
async function lines(file: string, count: number): Promise<string[]> {
  await until(async () => (await linesOf(file)).length >= count);
  return linesOf(file);
}

describe('log.access', () => {
  test('has a line in the Combined Log Format for each request, without its query', async () => {
    const file = join(await folder(), 'access.log');
    const pair = await startScene({ settings, top: { log: { access: { file } } } });
    const headers = { referer: 'https://page.example/a?token=x', 'user-agent': 'test "agent" \\1' };
    const body = await (await pair.get(authors, { headers })).text();
    const refusal = await (await pair.get('/nowhere?a=b')).text();
    const [first = '', second = ''] = await lines(file, 2);
    const path = authors.split('?')[0];
    expect(first).toMatch(
      new RegExp(
        String.raw`^127\.0\.0\.1 - anonymous ${TIME} "GET ${path} HTTP/1\.1" 200 ${Buffer.byteLength(body)} "https://page\.example/a" "test \\"agent\\" \\\\1"$`,
      ),
    );
    expect(second).toMatch(
      /^127\.0\.0\.1 - anonymous \[.*\] "GET \/nowhere HTTP\/1\.1" 404 \d+ "-" "[^"]+"$/,
    );
    expect(second).toContain(` 404 ${Buffer.byteLength(refusal)} `);
  });

  test('has each byte of a field that is not ASCII as it was sent', async () => {
    const file = join(await folder(), 'access.log');
    const { get } = await startScene({ settings, top: { log: { access: { file } } } });
    // U+00E9 in Latin-1, and U+20AC in UTF-8.
    const headers = { 'user-agent': 'R\xe9 \xe2\x82\xac' };
    await (await get('/nowhere', { headers })).text();
    expect((await lines(file, 1))[0]).toMatch(/"R\\xe9 \\xe2\\x82\\xac"$/);
  });

  test('has a line for a message that is no request', async () => {
    const file = join(await folder(), 'access.log');
    const { gateway } = await startScene({ settings, top: { log: { access: { file } } } });
    const socket = connect(Number(new URL(gateway.origin).port), '127.0.0.1');
    socket.end('no request\r\n\r\n');
    const [, body = ''] = (await text(socket)).split('\r\n\r\n');
    expect(await lines(file, 1)).toEqual([
      expect.stringMatching(
        new RegExp(String.raw`^127\.0\.0\.1 - - ${TIME} "-" 400 ${body.length} "-" "-"$`),
      ),
    ]);
    expect(await gateway.metric('digest_gateway_response_bytes_total')).toBe(body.length);
  });

  test('has the bytes of errors of the gateway, as their counter has, and the audit log one record of each', async () => {
    const at = await folder();
    const file = join(at, 'access.log');
    const directory = join(at, 'audit');
    const audit = auditOptions(directory);
    const { gateway, get } = await startScene({ settings, top: { log: { access: { file } } }, audit });
    const body = await (await get('/nowhere')).text();
    await (await get('/nowhere', { method: 'HEAD' })).text();
    expect((await lines(file, 2)).map((line) => / 404 (\S+) /.exec(line)?.[1])).toEqual([
      String(Buffer.byteLength(body)),
      '-',
    ]);
    expect(await gateway.metric('digest_gateway_response_bytes_total')).toBe(Buffer.byteLength(body));
    await gateway.close();
    // The audit log counts what the upstream has sent, so no record of an outcome follows.
    const ofRequests = (await recordsIn(directory)).filter(({ requestId }) => requestId !== undefined);
    expect(ofRequests.map(({ method, code }) => [method, code])).toEqual([
      ['GET', 'no-deployment'],
      ['HEAD', 'no-deployment'],
    ]);
  });

  test('goes to a new file after a rotation, also if the configuration is refused', async () => {
    const at = await folder();
    const file = join(at, 'access.log');
    const pair = await startScene({ settings, top: { log: { access: { file } } } });
    await (await pair.get(authors)).text();
    await lines(file, 1);
    await rename(file, join(at, 'access.log.1'));
    await (await pair.get('/old')).text();
    expect((await lines(join(at, 'access.log.1'), 2))[1]).toContain('GET /old ');
    await pair.gateway.app.reload(() => Promise.reject(new Error('refused')));
    await (await pair.get('/new')).text();
    expect(await lines(file, 1)).toEqual([expect.stringContaining('GET /new ')]);
    expect(await linesOf(join(at, 'access.log.1'))).toHaveLength(2);
  });

  test('ends with a reload that leaves it out, and has every line when the gateway has stopped', async () => {
    const file = join(await folder(), 'access.log');
    const pair = await startScene({ settings, top: { log: { access: { file } } } });
    const { origin } = pair.simulator.deployments.submissions;
    for (let count = 0; count < 20; count += 1) await (await pair.get('/x')).text();
    const setup = await setupFor({ submissions: { origin, ca: pair.simulator.ca, settings } }, {});
    await pair.gateway.app.reload(() => Promise.resolve(setup));
    await (await pair.get('/later')).text();
    await pair.gateway.app.close();
    const all = await linesOf(file);
    expect(all).toHaveLength(20);
    expect(all.filter((line) => line.includes('GET /x '))).toHaveLength(20);
  });

  test('that cannot be written is told once, fails no request, and comes back by itself', async () => {
    const missing = join(await folder(), 'missing');
    const file = join(missing, 'access.log');
    const pair = await startScene({ settings, top: { log: { access: { file } } } });
    const told = () => pair.gateway.logged.filter(({ reason }) => String(reason).includes('ENOENT'));
    await until(() => told().length > 0);
    expect((await pair.get(authors)).status).toBe(200);
    expect(told()).toEqual([
      expect.objectContaining({ level: 'error', reason: expect.stringContaining('ENOENT') }),
    ]);
    const lost = () => pair.gateway.metric('digest_gateway_access_log_lost_lines_total');
    await until(async () => (await lost()) === 1);
    await mkdir(missing);
    await until(async () => {
      await (await pair.get('/again')).text();
      return (await linesOf(file)).length > 0;
    });
    expect((await linesOf(file))[0]).toContain('GET /again ');
    await rm(missing, { recursive: true });
  });

  test('that cannot be written does not keep the process from a clean end', async () => {
    const file = join(await folder(), 'missing', 'access.log');
    const upstream = { origin: 'https://upstream.invalid', settings };
    await using gateway = await startGatewayProcess({ upstream }, { log: { access: { file } } });
    await until(() => gateway.logged.some(({ reason }) => String(reason).includes('ENOENT')));
    await gateway.close();
    expect(await gateway.ended).toBe(0);
    expect(gateway.logged.filter(({ cause }) => cause !== undefined)).toEqual([]);
  });

  test('that is a pipe without a reader takes no thread, neither at the start nor by reloads', async () => {
    const file = join(await folder(), 'access.log');
    execFileSync('mkfifo', [file]);
    const pair = await startScene({ settings, top: { log: { access: { file } } } });
    for (let reload = 0; reload < 8; reload += 1)
      await pair.gateway.app.reload(() => Promise.reject(new Error('refused')));
    expect((await pair.get('/early')).status).toBe(404);
    await until(async () => (await pair.gateway.metric('digest_gateway_access_log_lost_lines_total')) > 0);
    // Another file is read, for which there has to be a thread.
    await readFile(import.meta.filename);
    const reader = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    await until(async () => {
      await (await pair.get('/late')).text();
      const { bytesRead, buffer } = await reader.read().catch(() => ({ bytesRead: 0, buffer: Buffer.of() }));
      return buffer.toString('utf8', 0, bytesRead).includes('GET /late ');
    });
    await reader.close();
  });

  test('whose pipe nobody reads any more goes to the file that a rotation put in its place', async () => {
    const file = join(await folder(), 'access.log');
    execFileSync('mkfifo', [file]);
    const reader = await open(file, constants.O_RDWR);
    const log = new AccessLog(createLog({ write: () => true }), () => undefined);
    log.configure({ file });
    const entry = { ...UNREADABLE, address: '192.0.2.7', status: 400, userAgent: 'a'.repeat(1_000) };
    for (let line = 0; line < 200; line += 1) log.add(entry);
    await until(async () => (await reader.read({ length: 1 })).bytesRead === 1);
    await rename(file, `${file}.1`);
    log.reopen();
    log.add({ ...entry, status: 401 });
    expect((await lines(file, 1))[0]).toContain(' 401 ');
    await log.close();
    await reader.close();
  });

  test('tells how many lines were lost on a full disk, and keeps serving', async () => {
    const pair = await startScene({ settings, top: { log: { access: { file: '/dev/full' } } } });
    expect((await pair.get(authors)).status).toBe(200);
    await until(() => pair.gateway.logged.some(({ reason }) => String(reason).includes('ENOSPC')));
    expect((await pair.get(authors)).status).toBe(200);
  });
});

test.each([
  ['of one process', ''],
  ['whose writes another process has made wait', "spawnSync('true', { stdio: 'inherit' });"],
])(
  'a pipe on stdout that nobody reads, %s, does not keep the process from its end',
  async (_of, meanwhile) => {
    const pipe = join(await folder(), 'pipe');
    execFileSync('mkfifo', [pipe]);
    const fd = openSync(pipe, constants.O_RDWR);
    closing.push(() => closeSync(fd));
    const script = `
    import { spawnSync } from 'node:child_process';
    import { AccessLog, UNREADABLE } from '${new URL('../../src/gateway/access-log.ts', import.meta.url)}';
    process.stdout.on('error', () => undefined);
    const log = new AccessLog({ error: () => undefined }, () => undefined);
    log.configure('stdout');
    ${meanwhile}
    const entry = { ...UNREADABLE, address: '192.0.2.7', status: 400, userAgent: 'a'.repeat(1_000) };
    for (let at = 0; at < 200; at += 1) log.add(entry);
    await log.close();
    process.stderr.write('closed');
  `;
    const { status, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', fd, 'pipe'],
      timeout: 60_000,
      killSignal: 'SIGKILL',
    });
    expect([status, stderr.toString()]).toEqual([0, 'closed']);
  },
);
