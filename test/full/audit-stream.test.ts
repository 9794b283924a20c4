import { readdir, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import type { Verified } from '../../src/audit/reader/verify.ts';
import { segmentsIn } from '../../src/audit/segments/segment.ts';
import type { RedisStream } from '../../src/audit/shipping/redis-stream.ts';
import { SinkSet } from '../../src/audit/shipping/sink-set.ts';
import type { RedisSinkOptions } from '../../src/audit/shipping/streamed-log.ts';
import { Secret } from '../../src/base/secret.ts';
import {
  AUDIT_KEY,
  openTestAudit,
  REPLICA,
  recordAccess,
  recordsIn,
  useFolders,
} from '../support/audit-log.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { gateway } from '../support/program.ts';
import { moveSlot, type RedisServer, startRedisCluster, startRedisSentinel } from '../support/redis.ts';
import { single } from '../support/redis-store.ts';
import { authors, startScene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import {
  expectOutagesAndTheirEnds,
  numbersIn,
  openStreamed,
  recordSteadily,
  type StreamedAudit,
  type StreamScene,
  streamOn,
  streamTo,
  untilSent,
  useStreams,
} from './audit-stream-scene.ts';

const folder = useFolders();

const setScene = useStreams();
const RECORDS = 'test:v2:{audit}:records';
const POSITIONS = 'test:v2:{audit}:positions';

/** Numbers of the records in the stream, in its order. */
async function sentTo(redis: RedisServer): Promise<number[]> {
  const entries = (await redis.command('XRANGE', RECORDS, '-', '+')) as [string, string[]][];
  return entries.flatMap(([, fields]) => numbersIn(fields[3] ?? ''));
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1);

/** Sends the log of a scene to its stream, with this key. */
function sinkOf(
  { directory, redis }: StreamScene,
  key: Secret,
  change: Partial<RedisSinkOptions> = {},
): SinkSet {
  const log = { warn: () => undefined, error: () => undefined, info: () => undefined };
  const sinks = [streamTo(single(redis.port), change)];
  const options = { directory: join(directory, 'log'), replica: REPLICA, keys: auditKeys(key), sinks };
  return new SinkSet(options, { log, recordLoss: () => Promise.resolve(true) });
}

const failingOf = async ({ status }: StreamedAudit): Promise<string | undefined> => (await status()).failing;

async function untilReached(opened: StreamedAudit): Promise<void> {
  await until(async () => (await failingOf(opened)) === undefined);
}

async function untilFailing(opened: StreamedAudit): Promise<void> {
  await until(async () => (await failingOf(opened)) !== undefined);
}

const faults: [string, (redis: RedisServer, failing: () => Promise<unknown>) => Promise<void>][] = [
  [
    'that hangs and goes on',
    async (redis, failing) => {
      await redis.hang();
      await failing();
      await redis.goOn();
    },
  ],
  [
    'that is killed and comes back with an old snapshot',
    async (redis, failing) => {
      await redis.command('SAVE');
      const before = { 'dump.rdb': await redis.read('dump.rdb') };
      const count = (await sentTo(redis)).length;
      await until(async () => (await sentTo(redis)).length > count);
      await redis.kill();
      await failing();
      await redis.restart({ files: before });
    },
  ],
  [
    'that is killed and comes back empty',
    async (redis, failing) => {
      await redis.kill();
      await failing();
      await redis.restart();
    },
  ],
  [
    'that takes no writes for a while',
    async (redis, failing) => {
      await redis.command('CONFIG', 'SET', 'min-replicas-to-write', '1');
      await failing();
      await redis.command('CONFIG', 'SET', 'min-replicas-to-write', '0');
    },
  ],
];

describe('sends each record once and in order to a Redis', () => {
  test.each(faults)('%s', async (_title, fault) => {
    const scene = await setScene();
    const opened = await scene.open();
    const stop = recordSteadily(opened.audit);
    await until(async () => (await sentTo(scene.redis)).length > 100);
    await fault(scene.redis, () => untilFailing(opened));
    await untilReached(opened);
    const count = await stop();
    await untilSent(scene.stream(), count);
    expect(await sentTo(scene.redis)).toEqual(upTo(count));
    expect((await opened.status()).failures).toBeGreaterThan(0);
    expectOutagesAndTheirEnds(opened.logged);
  });

  test('that was away at the start, through closed segments', async () => {
    const scene = await setScene();
    await scene.redis.kill();
    const opened = await scene.open(REPLICA, { segment: { size: 20_000, age: 1e9, keep: 1e9 } });
    for (let index = 0; index < 300; index += 1) await recordAccess(opened.audit);
    await untilFailing(opened);
    expect(await failingOf(opened)).toMatch(/connect|ECONNREFUSED/);
    await scene.redis.restart();
    await untilSent(scene.stream(), 300);
    expect(await sentTo(scene.redis)).toEqual(upTo(300));
  });
});

test('does not repeat a call that hung and then took effect', async () => {
  const scene = await setScene();
  const opened = await scene.open();
  await recordAccess(opened.audit);
  await untilSent(scene.stream(), 1);
  await scene.redis.hang();
  await recordAccess(opened.audit);
  await untilFailing(opened);
  await scene.redis.goOn();
  await untilReached(opened);
  expect(opened.logged[0]).toMatchObject({ reason: expect.stringMatching(/did not answer within \d+ ms$/) });
  expect(await sentTo(scene.redis)).toEqual([1, 2]);
});

test('continues after the last record in the stream when a new process starts', async () => {
  const scene = await setScene();
  const first = await scene.open();
  for (let index = 0; index < 5; index += 1) await recordAccess(first.audit);
  await first.close();
  expect(await sentTo(scene.redis)).toEqual(upTo(5));
  const second = await scene.open();
  await recordAccess(second.audit);
  await second.close();
  expect(await sentTo(scene.redis)).toEqual(upTo(6));
  expect(await scene.stream().heads()).toEqual({
    heads: [{ replica: REPLICA, seq: 6, hmac: expect.any(String) }],
    forged: [],
  });
  expect(second.logged).toEqual([]);
});

test('continues after the last record in the stream under another key, and after a forged position sends all', async () => {
  const scene = await setScene();
  const first = await scene.open();
  for (let index = 0; index < 5; index += 1) await recordAccess(first.audit);
  await first.close();
  const change = { key: new Secret('f'.repeat(64)) };
  const second = await scene.open(REPLICA, change);
  await recordAccess(second.audit);
  await second.close();
  expect(await sentTo(scene.redis)).toEqual(upTo(6));
  expect(second.logged).toEqual([]);
  const [seq, hmac] = String(await scene.redis.command('HGET', POSITIONS, REPLICA)).split(' ');
  await scene.redis.command('HSET', POSITIONS, REPLICA, `${seq} ${hmac} ${'x'.repeat(43)}`);
  const third = await scene.open(REPLICA, change);
  await recordAccess(third.audit);
  await third.close();
  expect(await sentTo(scene.redis)).toEqual([...upTo(6), ...upTo(7)]);
  expect(third.logged).toEqual([{ sink: 'stream', log: REPLICA }]);
});

test('goes on under another key after what was sent if the position in the stream is further, and skips no record', async () => {
  const scene = await setScene();
  const first = await scene.open();
  await recordAccess(first.audit);
  await first.close();
  const { audit } = await openTestAudit(join(scene.directory, 'log'));
  await recordAccess(audit);
  await audit.close();
  const { hmac } = audit.head ?? {};
  await scene.redis.command('HSET', POSITIONS, REPLICA, `2 ${hmac} ${'x'.repeat(43)}`);
  const second = await scene.open(REPLICA, { key: new Secret('f'.repeat(64)) });
  await recordAccess(second.audit);
  await second.close();
  expect(await sentTo(scene.redis)).toEqual(upTo(3));
  expect(second.logged).toEqual([]);
});

test('goes on under another key although its position cannot be written', async () => {
  const scene = await setScene();
  const first = await scene.open();
  for (let index = 0; index < 5; index += 1) await recordAccess(first.audit);
  await first.close();
  const key = new Secret('f'.repeat(64));
  const { audit } = await openTestAudit(join(scene.directory, 'log'), { key });
  await recordAccess(audit);
  await audit.close();
  // The name of the file that is to replace it is too long.
  const name = 's'.repeat(250);
  const log = join(scene.directory, 'log', REPLICA);
  await rename(join(log, 'stream.sink'), join(log, `${name}.sink`));
  const sink = sinkOf(scene, key, { name });
  await untilSent(scene.stream(), 6);
  await sink.finish(AbortSignal.timeout(100));
  expect(await sentTo(scene.redis)).toEqual(upTo(6));
});

test('goes on under another key although the segment of the position in the stream is damaged', async () => {
  const scene = await setScene();
  const first = await scene.open(REPLICA, { segment: { size: 1200, age: 1e9, keep: 1e9 } });
  for (let index = 0; index < 9; index += 1) await recordAccess(first.audit);
  const log = join(scene.directory, 'log', REPLICA);
  await until(async () => (await segmentsIn(log)).filter(({ compressed }) => compressed).length > 1);
  await first.close();
  const [, damaged] = await segmentsIn(log);
  if (damaged === undefined) throw new Error('no segment');
  const file = join(log, damaged.name);
  await writeFile(file, (await readFile(file)).fill(0, 20));
  const position = `${damaged.first} ${'x'.repeat(43)} ${'x'.repeat(43)}`;
  await scene.redis.command('HSET', POSITIONS, REPLICA, position);
  const second = await scene.open(REPLICA, { key: new Secret('f'.repeat(64)) });
  await recordAccess(second.audit);
  await second.close();
  expect((await sentTo(scene.redis)).at(-1)).toBe(10);
});

test.each([
  ['of', 0],
  ['behind', 1],
])(
  'goes on under the same key although the segment %s the position in the stream is damaged',
  async (_where, at) => {
    const scene = await setScene();
    const options = { segment: { size: 1200, age: 1e9, keep: 1e9 } };
    const first = await scene.open(REPLICA, options);
    for (let index = 0; index < 2; index += 1) await recordAccess(first.audit);
    await untilSent(scene.stream(), 2);
    const position = await scene.redis.command('HGET', POSITIONS, REPLICA);
    for (let index = 0; index < 8; index += 1) await recordAccess(first.audit);
    const log = join(scene.directory, 'log', REPLICA);
    await until(async () => (await segmentsIn(log)).filter(({ compressed }) => compressed).length > 2);
    await first.close();
    // As in a Redis that was restored.
    await scene.redis.command('HSET', POSITIONS, REPLICA, String(position));
    const names = (await segmentsIn(log)).map(({ name }) => name);
    const file = join(log, names[at] ?? '');
    await writeFile(file, (await readFile(file)).fill(0, 20));
    const second = await scene.open(REPLICA, options);
    await recordAccess(second.audit);
    await untilSent(scene.stream(), 11);
    const again = (await sentTo(scene.redis)).slice(10);
    expect(again).toEqual(upTo(11).slice(Number.parseInt(names[at + 1] ?? '', 10) - 1));
  },
);

test('reports a log that was begun anew, sends its records, and has it in the log for good', async () => {
  const scene = await setScene();
  const first = await scene.open();
  for (let index = 0; index < 5; index += 1) await recordAccess(first.audit);
  await first.close();
  await rm(join(scene.directory, 'log', REPLICA), { recursive: true });
  const second = await scene.open();
  for (let index = 0; index < 2; index += 1) await recordAccess(second.audit);
  await untilSent(scene.stream(), 3);
  await second.close();
  expect(await sentTo(scene.redis)).toEqual([1, 2, 3, 4, 5, 1, 2, 3]);
  expect(second.logged).toEqual([
    { sink: 'stream', log: REPLICA, seq: 5 },
    { sink: 'stream', log: REPLICA, reason: 'the log lacks the seal of the position' },
  ]);
  const third = await scene.open();
  await recordAccess(third.audit);
  await third.close();
  const records = await recordsIn(join(scene.directory, 'log'));
  const lost = records.filter(({ event }) => event === 'records-lost');
  expect(lost).toEqual([
    expect.objectContaining({
      seq: expect.any(Number),
      log: REPLICA,
      last: 5,
      end: 0,
      hmac: expect.any(String),
    }),
  ]);
  const loss = `${REPLICA}:5:${lost[0]?.['hmac']}`;
  const found = { replica: REPLICA, kind: 'records-lost', facts: { from: 1, to: 5, loss, known: false } };
  const unknown = await verified(scene);
  expect(unknown).toMatchObject({ status: 1, alterations: [found], notes: [] });
  const known = { ...found, facts: { ...found.facts, known: true } };
  expect(await verified(scene, '--known-loss', loss)).toMatchObject({
    status: 0,
    stderr: '',
    alterations: [],
    notes: [known],
  });
  const another = loss.replace(':5:', ':4:');
  expect(await verified(scene, '--known-loss', another)).toEqual(unknown);
});

test('leaves the position in Redis while it cannot record a loss', async () => {
  const scene = await setScene();
  const first = await scene.open();
  for (let index = 0; index < 5; index += 1) await recordAccess(first.audit);
  await first.close();
  const before = await scene.stream().position(REPLICA);
  await rm(join(scene.directory, 'log', REPLICA), { recursive: true });
  const { audit } = await openTestAudit(join(scene.directory, 'log'));
  const tried = Promise.withResolvers<void>();
  let attempts = 0;
  const set = new SinkSet(
    {
      directory: join(scene.directory, 'log'),
      replica: REPLICA,
      keys: auditKeys(new Secret(AUDIT_KEY)),
      sinks: [streamTo(single(scene.redis.port))],
    },
    {
      log: { info() {}, warn() {}, error() {} },
      recordLoss: () => {
        attempts += 1;
        if (attempts === 2) tried.resolve();
        return Promise.resolve(false);
      },
    },
  );
  closing.push(() => set.finish(AbortSignal.abort()));
  await recordAccess(audit);
  await tried.promise;
  await until(async () => (await set.status())['stream']?.failing !== undefined);
  expect((await set.status())['stream']?.failing).toBe(
    'the audit log cannot record that it has lost records',
  );
  await audit.close();
  expect(await scene.stream().position(REPLICA)).toEqual(before);
  expect(await verified(scene)).toMatchObject({
    status: 1,
    alterations: [{ replica: REPLICA, kind: 'log-truncated', facts: { seq: 5 } }],
  });
});

describe('two gateways of one name, each with a log of its own', () => {
  const OTHER = `another gateway sends its log under the name ${REPLICA}: give each an audit.replica of its own`;
  const QUIET_MS = 500;
  const lossesIn = async (directory: string) =>
    (await recordsIn(directory)).filter(({ event }) => event === 'records-lost');
  const outage = [{ sink: 'stream', log: REPLICA, reason: OTHER }];

  async function setTwins() {
    const scene = await setScene();
    const directory = await folder();
    const startTwin = (log = directory) =>
      closedAtEnd(openStreamed(log, single(scene.redis.port), REPLICA, {}, 1_000_000, QUIET_MS));
    return { scene, directory, startTwin };
  }

  test('one sends; the other says so, and sends its log once when that one has stopped', async () => {
    const { scene, directory, startTwin } = await setTwins();
    const first = await scene.open();
    const stop = recordSteadily(first.audit);
    await until(async () => (await sentTo(scene.redis)).length > 100);
    const twin = await startTwin();
    for (let index = 0; index < 3; index += 1) await recordAccess(twin.audit);
    await untilFailing(twin);
    await until(async () => (await twin.status()).behind === 3);
    expect(await twin.status()).toMatchObject({ failing: OTHER, delivered: 0 });
    const { failures } = await twin.status();
    await until(async () => (await twin.status()).failures > failures);
    const count = await stop();
    await untilSent(scene.stream(), count);
    await first.close();
    const { length } = await sentTo(scene.redis);
    expect(await sentTo(scene.redis)).toEqual(upTo(count));
    expect(first.logged).toEqual([]);
    await untilReached(twin);
    await twin.close();
    expect((await sentTo(scene.redis)).slice(length)).toEqual(upTo(twin.audit.counts.records));
    const again = { sink: 'stream', log: REPLICA, reason: 'the log lacks the seal of the position' };
    const end = { sink: 'stream', log: REPLICA, seq: expect.any(Number) };
    expect(twin.logged).toEqual([...outage, again, end]);
    expect(await lossesIn(directory)).toEqual([]);
    expect(await lossesIn(join(scene.directory, 'log'))).toEqual([]);
  });

  test('one that was idle when the other began says so, and does not send its log again', async () => {
    const { scene, startTwin } = await setTwins();
    const first = await scene.open();
    for (let index = 0; index < 5; index += 1) await recordAccess(first.audit);
    await untilSent(scene.stream(), first.audit.counts.records);
    const twin = await startTwin();
    await until(async () => (await twin.status()).delivered > 0);
    await recordAccess(first.audit);
    await untilFailing(first);
    const before = await sentTo(scene.redis);
    for (let index = 0; index < 5; index += 1) {
      for (const { audit } of [first, twin]) await recordAccess(audit);
      await until(async () => (await twin.status()).behind === 0);
    }
    expect(before).toEqual([1, 2, 3, 4, 5, 1]);
    expect(await sentTo(scene.redis)).toEqual([...before, 2, 3, 4, 5, 6]);
    expect((await first.status()).failing).toBe(OTHER);
    expect(first.logged).toEqual(outage);
    expect(await lossesIn(join(scene.directory, 'log'))).toEqual([]);
    expect((await twin.status()).failing).toBeUndefined();
  });

  test('two that take turns wait twice as long each time before they send their logs again', async () => {
    const { scene, startTwin } = await setTwins();
    const sent = async ({ audit, status }: StreamedAudit): Promise<number> => {
      const { delivered } = await status();
      const begun = performance.now();
      await recordAccess(audit);
      await until(async () => (await status()).delivered > delivered);
      return performance.now() - begun;
    };
    const first = await startTwin(join(scene.directory, 'log'));
    await sent(first);
    const twin = await startTwin();
    await sent(twin);
    for (let quiet = QUIET_MS; quiet <= 4 * QUIET_MS; quiet *= 2) {
      for (const each of [first, twin]) expect(await sent(each)).toBeGreaterThanOrEqual(quiet);
    }
  });
});

test('goes on at once when Redis is restored to a position that retention has removed', async () => {
  const scene = await setScene();
  const { audit, logged } = await scene.open(REPLICA, { segment: { size: 2000, age: 3_600_000, keep: 1 } });
  for (let index = 0; index < 5; index += 1) await recordAccess(audit);
  const stream = scene.stream();
  const sentAtLeast = (count: number) =>
    until(async () => ((await stream.position(REPLICA)).position?.seq ?? 0) >= count);
  // The record of a retirement may be among them, or follow at once.
  await sentAtLeast(5);
  const old = String(await scene.redis.command('HGET', POSITIONS, REPLICA));
  await until(async () => {
    await recordAccess(audit);
    const [oldest] = await segmentsIn(join(scene.directory, 'log', REPLICA));
    return (oldest?.first ?? 0) > 10;
  });
  await sentAtLeast(audit.counts.records);
  await scene.redis.command('HSET', POSITIONS, REPLICA, old);
  await recordAccess(audit);
  await sentAtLeast(audit.counts.records);
  // What retention removed meanwhile is logged, too.
  expect(logged).toContainEqual(
    expect.objectContaining({ first: Number.parseInt(old, 10) + 1, last: expect.any(Number) }),
  );
  expect(logged.filter(({ reason }) => /another gateway/.test(String(reason)))).toEqual([]);
  const records = await recordsIn(join(scene.directory, 'log'));
  expect(records.filter(({ event }) => event === 'records-lost')).toEqual([]);
});

test('sends no more records after an outage than the stream keeps', async () => {
  const scene = await setScene();
  const { audit } = await scene.open(REPLICA, {}, 10);
  await scene.redis.hang();
  for (let index = 0; index < 50; index += 1) await recordAccess(audit);
  await scene.redis.goOn();
  await untilSent(scene.stream(), 50);
  expect((await sentTo(scene.redis)).at(-1)).toBe(50);
  expect((await sentTo(scene.redis)).length).toBeLessThan(50);
});

describe('audit export --follow', () => {
  test('collects all replicas in one file, across kills and an emptied Redis', async () => {
    const scene = await setScene();
    const replicas = await Promise.all(['r1', 'r2'].map((replica) => scene.open(replica)));
    const stops = replicas.map(({ audit }) => recordSteadily(audit));
    const file = join(scene.directory, 'all.jsonl');
    const size = async (): Promise<number> => (await readFile(file).catch(() => '')).length;
    for (let kill = 0; kill < 4; kill += 1) {
      const before = await size();
      const collector = scene.collector('--output', file);
      await until(async () => (await size()) > before);
      await collector.end('SIGKILL');
      if (kill !== 2) continue;
      await scene.redis.kill();
      await scene.redis.restart();
    }
    const counts = await Promise.all(stops.map((stop) => stop()));
    for (const [index, count] of counts.entries()) {
      await untilSent(scene.stream(), count, `r${index + 1}`);
    }
    const collector = scene.collector('--output', file);
    const records = async () => {
      const text = await readFile(file, 'utf8');
      // The last line may be incomplete.
      const lines = text.slice(0, text.lastIndexOf('\n')).split('\n');
      return lines
        .map((line) => JSON.parse(line) as { kind: string; replica: string; seq: number })
        .filter(({ kind }) => kind !== 'head');
    };
    await until(async () => (await records()).length >= counts.reduce((sum, count) => sum + count, 0));
    const { status, stderr, stdout } = await collector.end('SIGTERM');
    expect([status, stderr, stdout]).toEqual([0, '', '']);
    for (const [index, count] of counts.entries()) {
      const own = (await records()).filter(({ replica }) => replica === `r${index + 1}`);
      expect(own.map(({ seq }) => seq)).toEqual(upTo(count));
    }
  });

  test('prints each record once across runs', async () => {
    const scene = await setScene();
    const { audit } = await scene.open();
    await recordAccess(audit, { requestId: 'first' });
    const stream = scene.stream();
    await untilSent(stream, 1);
    const first = scene.collector();
    await until(async () => (await pendingOf(scene.redis)) === 'read');
    expect((await first.end('SIGTERM')).stdout).toContain('"requestId":"first"');
    for (const requestId of ['second', 'third']) await recordAccess(audit, { requestId });
    await untilSent(stream, 3);
    const second = scene.collector();
    await until(async () => (await pendingOf(scene.redis)) === 'read');
    const { stdout } = await second.end('SIGTERM');
    expect(
      stdout
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line).requestId),
    ).toEqual(['second', 'third']);
  });

  test('goes on in a new file when its own is moved away, and ends when it is cut off', async () => {
    const scene = await setScene();
    const { audit } = await scene.open();
    const file = join(scene.directory, 'all.jsonl');
    const collector = scene.collector('--output', file);
    const untilCollected = async (requestId: string): Promise<void> => {
      await recordAccess(audit, { requestId });
      await until(async () => (await readFile(file, 'utf8').catch(() => '')).includes(requestId));
      await until(async () => (await pendingOf(scene.redis)) === 'read');
    };
    await untilCollected('first');
    await rename(file, join(scene.directory, 'all.1.jsonl'));
    await untilCollected('second');
    expect(await readFile(file, 'utf8')).not.toContain('first');
    await truncate(file);
    await recordAccess(audit, { requestId: 'third' });
    await collector.ended;
    const { stderr, status } = await collector.end('SIGTERM');
    expect(status).toBe(1);
    expect(stderr).toBe(
      `${file} was cut off by another program, so records may be lost: move it away instead (logrotate without copytruncate), and start again\n`,
    );
    scene.collector('--output', file);
    await until(async () => (await readFile(file, 'utf8')).includes('third'));
    expect(await readFile(file, 'utf8')).not.toMatch(/first|second/);
  });

  test('refuses a second collector with the same file', async () => {
    const scene = await setScene();
    const { audit } = await scene.open();
    await recordAccess(audit);
    const file = join(scene.directory, 'all.jsonl');
    scene.collector('--output', file);
    await until(async () => (await readFile(file).catch(() => '')).length > 0);
    const second = scene.collector('--output', file);
    await second.ended;
    const { stderr, status } = await second.end('SIGTERM');
    expect(status).toBe(1);
    expect(stderr).toBe(
      `${file} belongs to another audit export that is running: stop that one, or name another file\n`,
    );
  });
});

test('serves requests while the stream is unreachable, and finds a cut-off log by the stream', async () => {
  const scene = await setScene();
  const { simulator } = await startScene();
  const keyFile = join(scene.directory, 'key');
  const { origin } = simulator.deployments.submissions;
  {
    await using served = await startGatewayProcess(
      { upstream: { origin, ca: simulator.ca } },
      {
        redis: { url: scene.redis.url, keyPrefix: 'test' },
        audit: {
          directory: join(scene.directory, 'log'),
          keyFile,
          replica: REPLICA,
          sinks: [{ name: 'stream', redis: {} }],
        },
      },
    );
    const failures = () => served.metric('digest_gateway_audit_sink_failures_total', { sink: 'stream' });
    const lag = (unit: 'seconds' | 'records') =>
      served.metric(`digest_gateway_audit_sink_lag_${unit}`, { sink: 'stream' });
    const ask = async () => (await fetch(`${served.origin}${authors}`)).status;
    const isHere = async () =>
      (await (await fetch(`${served.control}/readyz`)).text()).includes('"audit-sink-stream","ok":true');
    await until(isHere);
    expect(await failures()).toBe(0);
    await scene.redis.kill();
    expect(await ask()).toBe(200);
    await until(async () => (await failures()) > 0);
    expect(await isHere()).toBe(false);
    expect(await lag('seconds')).toBeGreaterThan(0);
    expect(await lag('records')).toBeGreaterThan(0);
    expect(await ask()).toBe(200);
    await scene.redis.restart();
    await until(isHere);
    await until(async () => (await lag('records')) === 0);
    expect(await lag('seconds')).toBe(0);
  }
  const sent = await sentTo(scene.redis);
  expect(sent).toEqual(upTo(sent.length));
  expect(await verified(scene)).toMatchObject({ status: 0, stderr: '' });
  const [name = ''] = (await readdir(join(scene.directory, 'log', REPLICA))).filter((each) =>
    each.endsWith('.jsonl'),
  );
  const path = join(scene.directory, 'log', REPLICA, name);
  const text = await readFile(path, 'utf8');
  const seals = [...text.matchAll(/^\{"seal".*\n/gm)];
  await writeFile(
    path,
    text.slice(0, text.lastIndexOf(seals.at(-2)?.[0] ?? '') + (seals.at(-2)?.[0].length ?? 0)),
  );
  expect(await verified(scene)).toMatchObject({
    status: 1,
    alterations: [{ replica: 'r1', kind: 'log-truncated', facts: { seq: sent.length } }],
  });
  await scene.redis.kill();
  expect(await verified(scene)).toMatchObject({
    status: 0,
    stderr: expect.stringContaining('the stream could not be asked where the log ended'),
  });
});

test('gets the whole log, though a file in its folder has a higher number', async () => {
  const scene = await setScene();
  const directory = join(scene.directory, 'log');
  const { audit } = await openTestAudit(directory);
  closing.push(() => audit.close());
  for (let index = 0; index < 5; index += 1) await recordAccess(audit);
  await writeFile(join(directory, REPLICA, '999999999999999.jsonl'), '');
  const set = sinkOf(scene, new Secret(AUDIT_KEY));
  closing.push(() => set.finish(AbortSignal.timeout(2_000)));
  await untilSent(scene.stream(), 5);
  expect(await sentTo(scene.redis)).toEqual(upTo(5));
});

test('gets the logs of the workers of a gateway that runs', async () => {
  const scene = await setScene();
  const { simulator } = await startScene();
  const { origin } = simulator.deployments.submissions;
  await using served = await startGatewayProcess(
    { upstream: { origin, ca: simulator.ca } },
    {
      workers: 2,
      redis: { url: scene.redis.url, keyPrefix: 'test' },
      audit: {
        directory: join(scene.directory, 'log'),
        keyFile: join(scene.directory, 'key'),
        replica: REPLICA,
        sinks: [{ name: 'stream', redis: {} }],
      },
    },
  );
  expect((await fetch(`${served.origin}${authors}`)).status).toBe(200);
  const names = async () => (await scene.stream().heads()).heads.map(({ replica }) => replica);
  await until(async () => {
    const found = await names();
    return found.includes('r1') && found.some((name) => name.startsWith('r1@'));
  });
  expect(await served.metric('digest_gateway_audit_sink_failures_total', { sink: 'stream' })).toBe(0);
});

test('has the logs of all workers of a replica, and finds by the stream that one of them is gone', async () => {
  const scene = await setScene();
  const names = ['r1', 'r1@1', 'r1@2'];
  for (const name of names) {
    const { audit } = await openTestAudit(join(scene.directory, 'log'), { replica: name });
    for (const part of ['a', 'b']) await recordAccess(audit, { requestId: `${name}-${part}` });
    await audit.close();
  }
  await scene.open();
  for (const name of names) await untilSent(scene.stream(), 2, name);
  const collector = scene.collector();
  await until(async () => (await pendingOf(scene.redis)) === 'read');
  const { stdout } = await collector.end('SIGTERM');
  const collected = Array.from(stdout.matchAll(/"requestId":"([^"]+)"/g), ([, id]) => id);
  expect(collected.toSorted()).toEqual(names.flatMap((name) => [`${name}-a`, `${name}-b`]));
  expect(await verified(scene)).toMatchObject({ status: 0, stderr: '' });
  await rm(join(scene.directory, 'log', 'r1@2'), { recursive: true });
  expect(await verified(scene)).toMatchObject({
    status: 1,
    alterations: [{ replica: 'r1@2', kind: 'log-missing', facts: { process: 'worker' } }],
    stderr: '',
  });
});

test('records in the log of the primary process what the log of a worker has lost', async () => {
  const scene = await setScene();
  const log = join(scene.directory, 'log');
  const record = async (count: number): Promise<void> => {
    const { audit } = await openTestAudit(log, { replica: 'r1@2' });
    for (let index = 0; index < count; index += 1) await recordAccess(audit);
    await audit.close();
  };
  const first = await scene.open();
  await record(3);
  await untilSent(scene.stream(), 3, 'r1@2');
  await first.close();
  await rm(join(log, 'r1@2'), { recursive: true });
  await record(1);
  const second = await scene.open();
  await untilSent(scene.stream(), 1, 'r1@2');
  await second.close();
  const facts = { to: 3, log: 'r1@2', loss: expect.stringMatching(/^r1@2:3:/), known: false };
  expect(await verified(scene)).toMatchObject({
    status: 1,
    alterations: [{ replica: 'r1', kind: 'records-lost', facts }],
  });
});

test('leaves a forged entry out and collects the others', async () => {
  const scene = await setScene();
  const { audit } = await scene.open();
  await recordAccess(audit);
  await untilSent(scene.stream(), 1);
  const time = '2999-01-01T00:00:00.000Z';
  const line = `{"seq":900000000,"time":"${time}","kind":"admin","replica":"${REPLICA}","event":"forged"}`;
  const seal = `{"seal":[900000000,900000000],"sha256":"${'x'.repeat(43)}","hmac":"${'x'.repeat(43)}"}`;
  for (const fields of [
    ['seq', '900000000', 'record', line],
    ['lines', `${line}\n`, 'seal', seal, 'previous', '', 'anchor', '1'],
    ['later', '1'],
    // More elements than a reply may have, in few bytes.
    new Array<string>(66_000).fill(''),
  ]) {
    await scene.redis.command('XADD', RECORDS, '*', 'replica', REPLICA, ...fields);
  }
  const file = join(scene.directory, 'all.jsonl');
  const collector = scene.collector('--output', file);
  const collected = async (): Promise<string> => await readFile(file, 'utf8').catch(() => '');
  await until(async () => numbersIn(await collected()).length === 1);
  for (let index = 0; index < 5; index += 1) await recordAccess(audit);
  await until(async () => numbersIn(await collected()).length === 6);
  const { stderr, status } = await collector.end('SIGTERM');
  expect(numbersIn(await collected())).toEqual([1, 2, 3, 4, 5, 6]);
  expect(stderr).toContain('2 entries of the stream were left out');
  expect([status, (await collected()).includes('forged')]).toEqual([1, false]);
});

const spoilers: [string, [string, ...string[]]][] = [
  ['an entry with the largest id', ['XADD', RECORDS, '18446744073709551615-18446744073709551615', 'a', 'b']],
  ['an entry with an id that no double holds', ['XADD', RECORDS, '9007199254740993-0', 'a', 'b']],
  ['a value of another type', ['SET', RECORDS, 'x']],
];
test.each(spoilers)('goes on after another writer has put %s there, and says so', async (_title, command) => {
  const scene = await setScene();
  const opened = await scene.open();
  const file = join(scene.directory, 'all.jsonl');
  const collector = scene.collector('--output', file);
  const collected = async (): Promise<number[]> => numbersIn(await readFile(file, 'utf8').catch(() => ''));
  await recordAccess(opened.audit);
  await until(async () => (await collected()).length === 1);
  await scene.redis.command(...command);
  for (let index = 0; index < 5; index += 1) await recordAccess(opened.audit);
  await until(async () => (await collected()).length === 6);
  const { stderr, status } = await collector.end('SIGTERM');
  expect([await collected(), status]).toEqual([[1, 2, 3, 4, 5, 6], expect.any(Number)]);
  expect(stderr).not.toContain('no longer in the stream');
  expect(opened.logged).toContainEqual({
    sink: 'stream',
    log: REPLICA,
    reason: expect.stringMatching(
      /^the stream took no entries, since another writer of Redis left (the id \d+-\d+|string) there/,
    ),
  });
  expect((await opened.status()).failures).toBeGreaterThan(0);
});

test('goes on after another writer has put another value in the place of the positions', async () => {
  const scene = await setScene();
  const { audit, status } = await scene.open();
  await recordAccess(audit);
  await untilSent(scene.stream(), 1);
  await scene.redis.command('SET', POSITIONS, 'x');
  for (let index = 0; index < 5; index += 1) await recordAccess(audit);
  await untilSent(scene.stream(), 6);
  expect(await sentTo(scene.redis)).toEqual(expect.arrayContaining(upTo(6)));
  expect((await status()).failures).toBeGreaterThan(0);
});

function ignoreTimeout(error: Error): undefined {
  if (!error.message.includes('did not answer within')) throw error;
}

test('reads no huge position of another writer, and goes on', async () => {
  const scene = await setScene();
  const opened = await scene.open();
  await recordAccess(opened.audit);
  await untilSent(scene.stream(), 1);
  const sentBytes = async (): Promise<number> => {
    const [, bytes] =
      /total_net_output_bytes:(\d+)/.exec(String(await scene.redis.command('INFO', 'stats'))) ?? [];
    return Number(bytes);
  };
  const before = await sentBytes();
  await scene.redis.command(
    'HSET',
    POSITIONS,
    REPLICA,
    'x'.repeat(16 * 2 ** 20),
    'other',
    'x'.repeat(16 * 2 ** 20),
  );
  for (let index = 0; index < 5; index += 1) await recordAccess(opened.audit);
  await untilSent(scene.stream(), 6);
  let forged: readonly string[] | undefined;
  // Redis can be busy with the large values for longer than a call may take.
  await until(async () => {
    const found = await scene.stream().heads().catch(ignoreTimeout);
    forged = found?.forged;
    return found !== undefined;
  });
  expect(forged).toEqual(['other']);
  expect((await sentBytes()) - before).toBeLessThan(2 ** 20);
});

test('ignores a forged position in Redis, in the gateway and in audit verify', async () => {
  const scene = await setScene();
  const first = await scene.open();
  for (let index = 0; index < 3; index += 1) await recordAccess(first.audit);
  await first.close();
  await scene.redis.command('HSET', POSITIONS, REPLICA, `900000000 ${'x'.repeat(43)} ${'x'.repeat(43)}`);
  const verified = await gateway(['audit', 'verify', '--config', join(scene.directory, 'gateway.yaml')]);
  expect(verified.status).toBe(0);
  expect(verified.stderr).toContain(
    `the position of ${REPLICA} in Redis has no valid signature: it is ignored`,
  );

  const second = await scene.open();
  await recordAccess(second.audit);
  await untilSent(scene.stream(), 4);
  expect(second.logged).toEqual([{ sink: 'stream', log: REPLICA }]);
  const entries = (await scene.redis.command('XRANGE', RECORDS, '-', '+')) as [string, string[]][];
  const sent = entries.flatMap(([, fields]) => numbersIn(fields[3] ?? ''));
  expect(new Set(sent)).toEqual(new Set([1, 2, 3, 4]));
});

/** Resolves to the exit status and the findings of `audit verify`. */
async function verified({ directory }: StreamScene, ...args: string[]): Promise<Verdict> {
  const command = ['audit', 'verify', '--json', '--config', join(directory, 'gateway.yaml'), ...args];
  const { status, stdout, stderr } = await gateway(command);
  return { status, stderr, ...JSON.parse(stdout) };
}

interface Verdict extends Pick<Verified, 'alterations' | 'notes'> {
  readonly status: number;
  readonly stderr: string;
}

/** `read` if the group has read and acknowledged all entries. */
async function pendingOf(redis: RedisServer): Promise<string> {
  const groups = (await redis.command('XINFO', 'GROUPS', RECORDS).catch(() => [])) as (string | number)[][];
  const [group = []] = groups;
  const at = (name: string): unknown => group[group.indexOf(name) + 1];
  return group.length > 0 && at('pending') === 0 && at('lag') === 0 ? 'read' : 'behind';
}

describe('the stream', () => {
  const KEY = 'test:v2:{audit}:records';
  // Hooks run in this order: folders go when nothing writes there any more.

  /** Numbers of the records in the order of a collector. */
  async function collected(stream: RedisStream): Promise<number[]> {
    await stream.openGroup('g');
    const numbers: number[] = [];
    for (;;) {
      const { entries } = await stream.read('g', 'c', 'new');
      if (entries.length === 0) return numbers;
      await stream.acknowledge(
        'g',
        entries.map(({ id }) => id),
      );
      numbers.push(...entries.flatMap(({ lines }) => numbersIn(lines)));
    }
  }

  async function setScene(servers: Parameters<typeof streamOn>[0]) {
    const streamed = await closedAtEnd(openStreamed(join(await folder(), 'log'), servers));
    const reader = streamOn(servers);
    closing.push(() => reader.close());
    return { ...streamed, reader };
  }

  test('survives a Cluster that moves the stream to another node', async () => {
    const cluster = await closedAtEnd(startRedisCluster(3));
    const { audit, reader } = await setScene(cluster.servers);
    const stop = recordSteadily(audit);
    await until(async () => ((await reader.position('r1')).position?.seq ?? 0) > 100);

    const slot = Number(await cluster.nodes[0]?.command('CLUSTER', 'KEYSLOT', KEY));
    const counts = await Promise.all(cluster.nodes.map((node) => node.command('DBSIZE')));
    const [from, to] = [cluster.nodes[counts.findIndex(Number)], cluster.nodes[counts.indexOf(0)]];
    if (from === undefined || to === undefined) throw new Error('no node has it alone');
    await moveSlot(slot, from, to);
    const moved = (await reader.position('r1')).position?.seq ?? 0;
    await until(async () => ((await reader.position('r1')).position?.seq ?? 0) > moved + 100);

    const count = await stop();
    await untilSent(reader, count);
    expect(await to.command('EXISTS', KEY)).toBe(1);
    expect(await collected(reader)).toEqual(Array.from({ length: count }, (_, index) => index + 1));
  });

  test('survives the promotion of a replica that was behind', async () => {
    const redis = await closedAtEnd(startRedisSentinel());
    const { audit, reader, logged } = await setScene(redis.servers);
    const stop = recordSteadily(audit);
    await until(async () => ((await reader.position('r1')).position?.seq ?? 0) > 100);
    await redis.replica.hang();
    const known = (await reader.position('r1')).position?.seq ?? 0;
    await until(async () => ((await reader.position('r1')).position?.seq ?? 0) > known + 100);

    await redis.master.kill();
    await redis.replica.goOn();
    await redis.promoted();
    const count = await stop();
    await untilSent(reader, count);
    expect(await collected(reader)).toEqual(Array.from({ length: count }, (_, index) => index + 1));
    expectOutagesAndTheirEnds(logged);
  });
});
