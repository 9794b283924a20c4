import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import { stringify } from 'yaml';
import { AUDIT_KEY, recordsIn, useFolders } from '../support/audit-log.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { metricOf } from '../support/gateway.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { PROGRAM } from '../support/program.ts';
import { RawClient } from '../support/raw-client.ts';
import { startRawUpstream } from '../support/scripted-upstream.ts';
import { freePort } from '../support/server-process.ts';
import { needPackages } from '../support/system-packages.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';

const execute = promisify(execFile);
const SERVER = fileURLToPath(new URL('../support/audited-server.ts', import.meta.url));
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const SECRET = 'correct-horse-battery-staple';

// Hooks run in this order: folders go when nothing writes there any more.
const folder = useFolders();

async function upstreamOf(answerTo: (head: string) => string): Promise<string> {
  const upstream = await closedAtEnd(startRawUpstream(answerTo));
  return upstream.origin;
}

async function served(
  origin: string,
  top: Record<string, unknown> = {},
  runner: readonly string[] = [],
): Promise<GatewayProcess> {
  const settings = { tls: { allowPlaintext: true } };
  return closedAtEnd(startGatewayProcess({ upstream: { origin, settings } }, top, { runner }));
}

async function auditIn(directory: string, durability: string): Promise<Record<string, unknown>> {
  const keyFile = join(await folder(), 'key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  return { directory, durability, replica: 'r1', keyFile };
}

describe.each(['write', 'fsync', 'async'])('with durability %s', (durability) => {
  test('goes on serving after a reason phrase with a control character', async () => {
    const directory = await folder();
    const bytes = ['\x1b', '\0', '\x7f'];
    const origin = await upstreamOf((head) => {
      const [, index] = /^GET \/bad\/(\d)/.exec(head) ?? [];
      return index === undefined ? OK : OK.replace('OK', `O${bytes[Number(index)]}K`);
    });
    const gateway = await served(origin, { audit: await auditIn(directory, durability) });
    const asked = ['/good/1', '/bad/0', '/good/2', '/bad/1', '/good/3', '/bad/2', '/good/4', '/bad/0'];
    const answers = await Promise.all(
      asked.map(async (path) => {
        const answer = await fetch(`${gateway.origin}${path}`).catch(() => undefined);
        return [path, answer?.status];
      }),
    );
    const good = answers.filter(([path]) => String(path).startsWith('/good'));
    expect(good).toEqual([
      ['/good/1', 200],
      ['/good/2', 200],
      ['/good/3', 200],
      ['/good/4', 200],
    ]);
    expect((await fetch(`${gateway.origin}/good/5`)).status).toBe(200);
    await gateway.close();
    const records = await recordsIn(directory);
    expect(records.map(({ seq }) => seq)).toEqual(records.map((_, index) => index + 1));
    for (const path of asked) {
      const access = records.find((record) => record['path'] === path);
      const end = records.find((record) => record['access'] === access?.['seq']) ?? access;
      expect([path, access?.['kind'], typeof end?.['durationMs']]).toEqual([path, 'access', 'number']);
    }
  });
});

describe('an error that reaches no caller', () => {
  const script = `
    process.on('SIGUSR2', () => { throw Object.assign(new TypeError('no "${SECRET}" here'), { token: '${SECRET}' }); });
    process.on('SIGWINCH', () => { Promise.reject(new RangeError('rejected')); });`;
  test('is logged and counted, and the gateway goes on', async () => {
    const file = join(await folder(), 'throws.mjs');
    await writeFile(file, script);
    const gateway = await served(await upstreamOf(() => OK), {}, ['env', `NODE_OPTIONS=--import=${file}`]);
    for (const [signal, name] of [
      ['SIGUSR2', 'TypeError'],
      ['SIGWINCH', 'RangeError'],
    ] as const) {
      process.kill(gateway.pid, signal);
      await until(() => gateway.printed.some((line) => line.includes(`${name}: `)));
      expect((await fetch(gateway.origin)).status).toBe(200);
    }
    process.kill(gateway.pid, 'SIGUSR2');
    await until(async () => (await gateway.metric('digest_gateway_internal_errors_total')) === 3);
    const lines = gateway.logged.filter(({ level }) => level === 'error');
    expect(lines).toHaveLength(2);
    expect(String(lines[0]?.['cause'])).toMatch(/^TypeError: no "…" here\n {4}at /);
    expect(gateway.printed.join('\n')).not.toContain(SECRET);
  });
});

describe('the audit log', () => {
  test('lets go of the other answers of a batch when one cannot leave, or has no record', async () => {
    const directory = await folder();
    const child = spawn(process.execPath, [SERVER, directory, 'r1', AUDIT_KEY], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = once(child, 'close');
    closing.push(async () => {
      child.kill('SIGKILL');
      await ended;
    });
    const told: Record<string, unknown>[] = [];
    createInterface(child.stdout).on('line', (line) => told.push(JSON.parse(line)));
    await until(() => told.some(({ listen }) => listen !== undefined));
    const origin = String(told.find(({ listen }) => listen !== undefined)?.['listen']);
    const ask = (path: string): Promise<number> =>
      fetch(`${origin}${path}`).then(
        ({ status }) => status,
        () => 0,
      );
    expect(await ask('/mate-throws')).toBe(200);
    // Without a record there is no answer.
    expect(await Promise.all([ask('/a'), ask('/text-throws'), ask('/b')])).toEqual([200, 0, 200]);
    expect(await ask('/c')).toBe(200);
    child.kill('SIGTERM');
    await ended;
    expect(told.flatMap(({ uncaught }) => uncaught ?? [])).toEqual([
      'a waiter failed',
      'a record has no text',
    ]);
    const { alterations } = await verified(directory);
    expect(alterations).toEqual([]);
    const records = await recordsIn(directory);
    expect(records.map(({ seq }) => seq)).toEqual(records.map((_, index) => index + 1));
    expect(records.filter(({ event }) => event === 'record-failed')).toHaveLength(1);
  });
});

/** A gateway whose stderr is for the test to choose; resolves when it serves. */
async function servedWith(
  origin: string,
  stderr: 'pipe' | 'full',
): Promise<{ readonly origin: string; readonly control: string; closeStderr(): void }> {
  const place = await folder();
  const [listen, control] = [await freePort(), await freePort()];
  const config = {
    listen: { port: listen },
    control: { port: control },
    log: { requests: true },
    anonymous: true,
    credentials: { demo: { username: { value: 'u' }, password: { value: 'p' } } },
    deployments: {
      upstream: {
        baseUrl: origin,
        match: { pathPrefix: '/' },
        credential: 'demo',
        tls: { allowPlaintext: true },
      },
    },
  };
  await writeFile(join(place, 'gateway.yaml'), stringify(config));
  const redirect = stderr === 'full' ? '2>/dev/full' : '';
  const child = spawn(
    'sh',
    ['-c', `exec "$@" ${redirect}`, 'sh', PROGRAM, 'serve', '--config', 'gateway.yaml'],
    {
      cwd: place,
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  const ended = once(child, 'close');
  closing.push(async () => {
    child.kill();
    await ended;
  });
  child.stderr.resume();
  child.stdout.resume();
  const base = `http://127.0.0.1:${control}`;
  const live = (): Promise<boolean> =>
    fetch(`${base}/livez`).then(
      ({ ok }) => ok,
      () => false,
    );
  await until(() => child.exitCode !== null || live());
  expect(child.exitCode).toBeNull();
  return {
    origin: `http://127.0.0.1:${listen}`,
    control: base,
    closeStderr() {
      child.stderr.destroy();
      child.stdout.destroy();
    },
  };
}

describe('a log that cannot be written', () => {
  test('fails no request: stderr is on a full disk', async () => {
    const gateway = await servedWith(await upstreamOf(() => OK), 'full');
    for (let count = 0; count < 20; count += 1) {
      expect((await fetch(`${gateway.origin}/${count}`)).status).toBe(200);
    }
    expect(await metricOf(gateway.control, 'digest_gateway_internal_errors_total')).toBe(0);
  });

  test('fails no request: nobody reads stderr and stdout any more', async () => {
    const gateway = await servedWith(await upstreamOf(() => OK), 'pipe');
    expect((await fetch(gateway.origin)).status).toBe(200);
    gateway.closeStderr();
    for (let count = 0; count < 20; count += 1) {
      expect((await fetch(`${gateway.origin}/${count}`)).status).toBe(200);
    }
    expect(await metricOf(gateway.control, 'digest_gateway_internal_errors_total')).toBe(0);
  });
});

test('a gateway without a free file descriptor blames itself, not the upstream, and recovers', async () => {
  const origin = await upstreamOf(() => OK.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
  needPackages('util-linux');
  const gateway = await served(origin);
  const client = await closedAtEnd(RawClient.open(Number(new URL(gateway.origin).port)));
  const ask = async (): Promise<string> => {
    await client.send('GET /a HTTP/1.1\r\nHost: x\r\n\r\n');
    const { status, body } = await client.answer();
    return `${status} ${body}`;
  };
  // The soft limit, which can be raised again. What is open stays.
  const permitFiles = (count: number) => execute('prlimit', [`--pid=${gateway.pid}`, `--nofile=${count}:`]);
  expect(await ask()).toBe('200 ok');
  await permitFiles(1);
  expect(await ask()).toMatch(/^500 .*"code":"internal-error"/);
  expect(gateway.logged.at(-1)?.['cause']).toMatch(/EMFILE/);
  await permitFiles(1024);
  expect(await ask()).toBe('200 ok');
});
