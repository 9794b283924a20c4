import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import type { RedisStoreOptions } from '../../src/challenges/store/redis.ts';
import { storeKeys } from '../../src/challenges/store/value-signer.ts';
import { examineRedis } from '../../src/doctor/doctor.ts';
import { closing } from '../support/closing.ts';
import { listenOnLoopback } from '../support/loopback-server.ts';
import { type RedisServer, type RedisSetup, startRedis } from '../support/redis.ts';
import { redisOptions, single } from '../support/redis-store.ts';

async function start(setup: RedisSetup = {}): Promise<RedisServer> {
  const server = await startRedis(setup);
  closing.push(() => server.close());
  return server;
}

function examine({ port }: { port: number }, more: Partial<RedisStoreOptions> = {}) {
  return examineRedis(redisOptions(single(port), more));
}

describe('Redis', () => {
  test('that is there takes a write that does not stay', async () => {
    const server = await start();
    const keys = storeKeys(new Secret('a'.repeat(64)));
    const finding = await examine(server, { keys });
    expect(finding).toEqual({
      check: 'redis',
      mark: 'ok',
      saw: expect.stringMatching(/^reachable, writable, answers in [\d.]+ ms, values are signed$/),
      facts: { latencyMs: expect.any(Number), signed: true },
    });
    const places = (await server.command('KEYS', '*')) as string[];
    for (const key of places) expect(await server.command('PTTL', key)).toBeGreaterThan(0);
  });

  test('whose values nobody signs is a warning', async () => {
    expect(await examine(await start())).toMatchObject({
      mark: 'warn',
      problem: 'redis-unsigned',
      facts: { signed: false },
    });
  });

  test('that is not there', async () => {
    const server = await start();
    await server.kill();
    expect(await examine(server)).toMatchObject({
      problem: 'redis-unreachable',
      saw: `127.0.0.1:${server.port}: nothing listens there: the connection was refused`,
    });
  });

  test('that has no TLS', async () => {
    const finding = await examine(await start(), { tls: { ca: undefined } });
    expect(finding).toMatchObject({ problem: 'redis-not-tls', saw: 'it does not speak TLS' });
    expect(finding.advice).toContain('redis://');
  });

  test('whose name DNS does not know', async () => {
    const server = await start();
    const servers = { ...single(server.port), address: { host: 'redis.invalid', port: server.port } };
    const { saw } = await examineRedis(redisOptions(servers));
    expect(saw).toMatch(/^redis\.invalid: DNS (?:does not know|did not answer for) the name/);
  });

  test('that hangs', async () => {
    const server = await start();
    await server.hang();
    const finding = await examine(server);
    await server.goOn();
    expect(finding.problem).toBe('redis-unreachable');
  });

  test('that refuses the password, which is not told', async () => {
    const server = await start({ settings: ['requirepass right'] });
    const without = await examine(server);
    const wrong = await examine(server, { password: new Secret('marked-secret') });
    expect([without.problem, wrong.problem]).toEqual(['redis-refused', 'redis-refused']);
    expect(JSON.stringify([without, wrong])).not.toContain('marked-secret');
  });

  test('that has no AUTH and repeats what was sent with it', async () => {
    const server = await start({ settings: ['rename-command AUTH ""'] });
    const finding = await examine(server, { password: new Secret('marked-secret') });
    expect(finding.saw).toContain("unknown command 'auth'");
    expect(JSON.stringify(finding)).not.toContain('marked-secret');
  });

  test.each([
    ['DENIED Redis is running in protected mode', 'redis-refused'],
    ['MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to no.', 'redis-not-writable'],
    ['LOADING Redis is loading the dataset in memory', 'redis-not-ready'],
    ['CLUSTERDOWN Hash slot not served', 'redis-not-ready'],
  ])('that says %s', async (error, problem) => {
    const server = createServer((socket) => {
      socket.on('error', () => socket.destroy());
      socket.on('data', (data) =>
        socket.write(`-${error}\r\n`.repeat(`${data}`.match(/^\*/gm)?.length ?? 0)),
      );
    });
    const { port, close } = await listenOnLoopback(server);
    closing.push(close);
    expect(await examine({ port })).toMatchObject({ problem, saw: expect.stringContaining(error) });
  });

  test('that still loads its data', async () => {
    const source = await start();
    await source.command('DEBUG', 'POPULATE', 5_000);
    await source.command('SAVE');
    const files = { 'dump.rdb': await source.read('dump.rdb') };
    // Each key takes 2 ms; commands are read in between.
    const slow = ['key-load-delay 2000', 'loading-process-events-interval-bytes 1024'];
    expect(await examine(await start({ files, settings: slow }))).toMatchObject({
      problem: 'redis-not-ready',
      saw: 'LOADING Redis is loading the dataset in memory',
    });
  });

  test('that has as many clients as it takes', async () => {
    const server = await start({ settings: ['maxclients 1'] });
    const client = connect(server.port, '127.0.0.1');
    closing.push(async () => void client.destroy());
    client.write('PING\r\n');
    await once(client, 'data');
    expect(await examine(server)).toMatchObject({
      problem: 'redis-full',
      saw: 'ERR max number of clients reached',
    });
  });

  test('that takes no writes', async () => {
    const server = await start({ settings: ['replicaof 127.0.0.1 1', 'replica-serve-stale-data yes'] });
    expect((await examine(server)).problem).toBe('redis-not-writable');
  });
});
