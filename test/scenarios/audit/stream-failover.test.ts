import { join } from 'node:path';
import { afterEach, expect, test } from '@jest/globals';
import type { RedisStream } from '../../../src/audit/stream/redis-stream.ts';
import { useFolders } from '../../support/audit-log.ts';
import { moveSlot, startRedisCluster } from '../../support/redis-cluster.ts';
import { startRedisSentinel } from '../../support/redis-sentinel.ts';
import {
  expectOutagesAndTheirEnds,
  numbersIn,
  openStreamed,
  recordSteadily,
  streamOn,
  untilSent,
} from '../../support/stream-scene.ts';
import { until } from '../../support/until.ts';

const KEY = 'test:v2:{audit}:records';
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});
// Hooks run in this order: folders go when nothing writes there any more.
const folder = useFolders();

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
  const streamed = await openStreamed(join(await folder(), 'log'), streamOn(servers));
  closing.push(() => streamed.close());
  const reader = streamOn(servers);
  closing.push(() => reader.close());
  return { ...streamed, reader };
}

test('survives a Cluster that moves the stream to another node', async () => {
  const cluster = await startRedisCluster(3);
  closing.push(() => cluster.close());
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
  const redis = await startRedisSentinel();
  closing.push(() => redis.close());
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
