import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { scripts } from '../src/challenges/store/redis-scripts.ts';
import { settleLimit } from '../src/limits/redis.ts';
import { type RedisServer, startRedis } from '../test/support/redis.ts';
import { Random } from './simulation/random.ts';
import { Keyspace, RedisError, type Reply } from './simulation/redis/keyspace.ts';
import { LuaScripts } from './simulation/redis/lua.ts';

/*
 * The simulation runs the gateway's scripts in a translation, on keys of its own. Both are compared with a real Redis
 * here, over histories of chance.
 */

const HISTORIES = 40;
const STEPS = 60;
const SHARED = '{k}:shared';
const PARKED = '{k}:parked';
const LEARNED = '{k}:learned';
const LEADER = '{k}:leader';
const LIMIT = '{k}:limit';
const KEYS = [SHARED, PARKED, LEARNED, LEADER, LIMIT];

let server: RedisServer;
let client: Redis;
beforeAll(async () => {
  server = await startRedis();
  client = new Redis({ host: '127.0.0.1', port: server.port });
});
afterAll(async () => {
  client.disconnect();
  await server.close();
});

/** A script or a plain command. */
interface Step {
  readonly name: string;
  readonly script?: { readonly lua: string; readonly keys: readonly string[] };
  readonly args: readonly string[];
}

function scriptStep(random: Random): Step {
  const ticket = '{k}:ticket';
  const nonce = random.pick(['n1', 'n2', 'n3']);
  const run = (name: keyof typeof scripts, keys: string[], ...args: (string | number)[]): Step => ({
    name,
    script: { lua: scripts[name].lua, keys },
    args: args.map(String),
  });
  switch (random.whole(0, 8)) {
    case 0:
      return run('loadShared', [SHARED]);
    case 1:
      return run(
        'replaceShared',
        [ticket, SHARED],
        random.pick(['', 'n1', 'n2']),
        nonce,
        'value',
        900_000,
        random.whole(100_000, 900_000),
        'c',
        'm',
      );
    case 2:
      return run('discardShared', [SHARED], nonce);
    case 3:
      return run(
        'park',
        [ticket, PARKED],
        `value ${nonce}`,
        random.pick([1_000, 900_000]),
        random.whole(0, 2_000),
      );
    case 4:
      return run('takeParked', [ticket, PARKED]);
    case 5:
      return run('readValue', [LEARNED]);
    case 6:
      return run('learnFor', [ticket, LEARNED], `facts ${nonce}`, 900_000, 'c', 'm');
    case 7:
      return run(
        'leadFor',
        [ticket, LEADER],
        random.pick(['a', 'b']),
        random.pick([1, 60_000]),
        random.pick(['', '', '1']),
      );
    default:
      return settleStep(random);
  }
}

function settleStep(random: Random): Step {
  const total = random.whole(0, 40);
  const rate = random.pick([0, 0.001]);
  const used = random.whole(0, 10);
  const report = [
    random.pick(['a', 'b', 'c']),
    total,
    random.whole(0, total),
    random.whole(0, 3),
    random.whole(0, 9),
  ];
  const ofDay = random.pick([0, 1, total]);
  const rest = [
    random.whole(0, 5),
    random.pick([0, 3_000]),
    rate,
    20,
    random.whole(-5, 20),
    used,
    20_000,
    ofDay,
  ];
  return {
    name: 'settleLimit',
    script: { lua: settleLimit.lua, keys: [LIMIT] },
    args: [...report, ...rest].map(String),
  };
}

/** Writes of other programs to the same Redis. */
function strangerStep(random: Random): Step {
  const key = random.pick(KEYS);
  return random.pick<Step>([
    { name: 'SET', args: [key, 'text'] },
    { name: 'DEL', args: [key] },
    { name: 'HSET', args: [SHARED, 'nonce', 'n1', 'value', 'x'.repeat(random.pick([1, 70_000]))] },
    {
      name: 'HSET',
      args: [LIMIT, random.pick(['tokens', 'day', '@a']), random.pick(['nan', '1e9', 'x', '1 2 3 4 5'])],
    },
    { name: 'ZADD', args: [PARKED, '5', 'no number'] },
  ]);
}

async function onRedis({
  name,
  script,
  args,
}: Step): Promise<{ readonly time: number; readonly reply: unknown }> {
  const transaction = client.multi().time();
  const chained =
    script === undefined
      ? transaction.call(name, ...args)
      : transaction.eval(script.lua, script.keys.length, ...script.keys, ...args);
  const [timed, done] = (await chained.exec()) ?? [];
  const [seconds = 0, micros = 0] = Array.isArray(timed?.[1]) ? timed[1].map(Number) : [];
  return { time: seconds * 1_000 + micros / 1_000, reply: done?.[0] instanceof Error ? 'error' : done?.[1] };
}

function onModel(model: Keyspace, interpreter: LuaScripts, { name, script, args }: Step): Reply {
  try {
    const reply =
      script === undefined ? model.call(name, args) : interpreter.run(script.lua, script.keys, args, model);
    return typeof reply === 'object' && reply !== null && 'ok' in reply ? reply.ok : reply;
  } catch (error) {
    if (error instanceof RedisError) return 'error';
    throw error;
  }
}

/** Equal, but for what some microseconds between the two make of times and shares. */
function expectAlike(model: unknown, real: unknown, context: string): void {
  if (Array.isArray(model) && Array.isArray(real)) {
    expect(`${context}: ${model.length} items`).toBe(`${context}: ${real.length} items`);
    for (const [at, item] of model.entries()) expectAlike(item, real[at], context);
    return;
  }
  const isNumber =
    model !== null && real !== null && Number.isFinite(Number(model)) && Number.isFinite(Number(real));
  if (isNumber && Math.abs(Number(model) - Number(real)) < Math.max(0.02, Math.abs(Number(real)) * 1e-4))
    return;
  if (isNumber && Math.abs(Number(model) - Number(real)) <= 3 && Number(real) > 20) return;
  expect(`${context}: ${JSON.stringify(model)}`).toBe(`${context}: ${JSON.stringify(real)}`);
}

/** Runs one history on both; returns the number of replies that were not nil. */
async function compare(seed: number, runId: string): Promise<number> {
  const random = new Random(`history ${seed}`);
  let now = 0;
  let replies = 0;
  const model = new Keyspace({ now: () => now, publish() {} }, runId);
  const interpreter = new LuaScripts();
  await client.flushall();
  for (let number = 0; number < STEPS; number += 1) {
    const ticket: Step = { name: 'SET', args: ['{k}:ticket', '', 'PX', '600000'] };
    const step = random.chance(0.85) ? scriptStep(random) : strangerStep(random);
    // Without it, a call whose ticket is gone.
    for (const each of random.chance(0.9) ? [ticket, step] : [step]) {
      const { time, reply } = await onRedis(each);
      now = time;
      const context = `history ${seed}, step ${number}, ${each.name} ${each.args.join(' ').slice(0, 200)}`;
      expectAlike(onModel(model, interpreter, each), reply, context);
      if (reply !== null) replies += 1;
    }
  }
  return replies;
}

/**
 * Redis looks at its clock once for a whole transaction, a little before TIME does. So a key may be gone in only one of
 * the two; a real difference comes again in every run of the same history.
 */
async function compareUntilEqual(seed: number, runId: string, runs = 5): Promise<number> {
  try {
    return await compare(seed, runId);
  } catch (error) {
    if (runs === 1) throw error;
    return compareUntilEqual(seed, runId, runs - 1);
  }
}

test('the simulated Redis replies to the scripts as a real one, whatever happened before', async () => {
  const [, runId = ''] = /run_id:(\w+)/.exec(String(await server.command('INFO', 'server'))) ?? [];
  let replies = 0;
  for (let seed = 0; seed < HISTORIES; seed += 1) replies += await compareUntilEqual(seed, runId);
  expect(replies).toBeGreaterThan(HISTORIES * STEPS);
});
