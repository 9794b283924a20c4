import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { useFolders } from '../support/audit-log.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { type LoopbackServer, listenOnLoopback } from '../support/loopback-server.ts';
import { type CommandEnd, PROGRAM, runCommand } from '../support/program.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';

const folder = useFolders();
let taken: LoopbackServer;
/** A server that accepts connections and says nothing. */
let silent: LoopbackServer;
let redis: RedisServer;
beforeAll(async () => {
  [taken, silent] = await Promise.all([listenOnLoopback(createServer()), listenOnLoopback(createServer())]);
  redis = await startRedis();
});
afterAll(async () => {
  await Promise.all([taken.close(), silent.close(), redis.close()]);
});

const REDIS = {
  'no Redis': () => undefined,
  Redis: () => redis.url,
  'a Redis that is gone': () => 'redis://127.0.0.1:1',
  'a Redis that hangs': () => `redis://127.0.0.1:${silent.port}`,
};

/** Runs `serve` to its end. */
async function serve(
  top: object,
  [command = '', ...args]: readonly string[] = [PROGRAM],
): Promise<CommandEnd> {
  const file = join(await folder(), 'gateway.yaml');
  const deployment = { baseUrl: 'https://127.0.0.1:1', match: { pathPrefix: '/a/' }, credential: 'a' };
  const config = {
    listen: { port: 0 },
    control: { port: 0 },
    anonymous: true,
    credentials: { a: { username: { value: 'me' }, password: { value: 'hunter2' } } },
    deployments: { d: deployment },
    ...top,
  };
  await writeFile(file, JSON.stringify(config));
  return runCommand(command, [...args, 'serve', '--config', file]);
}

test.each([
  ['listen', 1, 'no Redis'],
  ['listen', 1, 'Redis'],
  ['listen', 1, 'a Redis that is gone'],
  ['listen', 1, 'a Redis that hangs'],
  ['listen', 2, 'Redis'],
  ['listen', 2, 'a Redis that hangs'],
  ['control', 1, 'Redis'],
  ['control', 2, 'Redis'],
] as const)(
  'serve ends with status 1 when %s.port is taken: %d workers, with %s',
  async (plane, workers, store) => {
    const url = REDIS[store]();
    const top = { workers, [plane]: { port: taken.port }, ...(url !== undefined && { redis: { url } }) };
    const { status, printed } = await serve(top);
    const last = JSON.parse(printed.trimEnd().split('\n').at(-1) ?? '');
    expect(last).toMatchObject({
      level: 'error',
      msg: expect.stringMatching(`^${plane}\\.port: .*\\b${taken.port} of 127\\.0\\.0\\.1\\b`),
    });
    expect(printed).not.toContain('    at ');
    expect(status).toBe(1);
  },
);

test('serve ends with status 1 when listen.address is not of this machine', async () => {
  const { status, printed } = await serve({
    listen: { address: '203.0.113.7', port: 0 },
    anonymous: false,
    clients: [{ id: 'c', identify: { addresses: ['127.0.0.1'] }, allow: [{ deployment: 'd' }] }],
  });
  expect(printed).toContain('listen.address: 203.0.113.7 ');
  expect(status).toBe(1);
});

test.each([1, 2])(
  'serve with %d workers ends with status 2 when another gateway writes its audit log',
  async (workers) => {
    const place = await folder();
    const keyFile = join(place, 'key');
    await writeFile(keyFile, 'a1'.repeat(32), { mode: 0o600 });
    const audit = {
      directory: join(place, 'audit'),
      replica: 'r1',
      keyFile,
      sinks: [{ name: 'stream', redis: {} }],
    };
    const top = { workers, audit, redis: { url: redis.url } };
    await using first = await startGatewayProcess({ d: { origin: 'https://127.0.0.1:1' } }, top);
    const { status, printed } = await serve(top);
    expect(printed).toContain('audit.directory');
    expect(status).toBe(2);
    await first.drain();
  },
);

test('serve ends after drain.timeout when its start failed and something stays open', async () => {
  const open = '--import=data:text/javascript,setInterval(()=>{},1e6)';
  const top = { listen: { port: taken.port }, drain: { timeout: '200ms' } };
  const { status, printed } = await serve(top, ['env', `NODE_OPTIONS=${open}`, PROGRAM]);
  expect(printed).toMatch(new RegExp(`listen\\.port: .*\\b${taken.port}\\b`));
  expect(status).toBe(1);
});
