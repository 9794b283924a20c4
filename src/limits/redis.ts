import { randomUUID } from 'node:crypto';
import type { ClientContext, Result } from 'ioredis';
import { z } from 'zod';
import { RedisClient } from '../redis/client.ts';
import type { RedisOptions } from '../redis/connection.ts';
import {
  DEMAND_MS,
  LEAST_SHARE,
  type LimitState,
  type LimitStore,
  LONGEST_LIFE_MS,
  limitStateForm,
  NEWCOMER_PART,
  type Report,
} from './store.ts';

/** More fields than any number of processes has. */
const FIELDS_AT_MOST = 2_048;
/** Larger than any number in a limit. */
const LARGEST = 1e15;

/**
 * Settles one limit: (limit; process, and the fields of a `Report` in their order) → tokens, used, others in
 * flight, members, share, day, values discarded. One hash holds the bucket, the day, and a line for each process:
 * until when it counts, when it reported, its demand, its requests under way, and its total then, so that a report
 * that comes twice is charged once. What the hash does not hold is as the report says.
 *
 * Others may write to the same Redis: a value that is not a number, or that no process would write, is discarded.
 */
export const settleLimit = {
  numberOfKeys: 1,
  lua: `
local me = '@' .. ARGV[1]
local arg = {}
for at = 2, #ARGV do arg[at] = tonumber(ARGV[at]) end
local total, settled, forgiven, wanted = arg[2], arg[3], arg[4], arg[5]
local lifetime, rate, burst, known, used, day = arg[7], arg[8], arg[9], arg[10], arg[11], arg[12]
local ofDay = arg[13]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local today = math.floor(now / 86400000)
local discarded = 0
local stored = {}
local count = redis.pcall('HLEN', KEYS[1])
if type(count) == 'number' and count <= ${FIELDS_AT_MOST} then
  stored = redis.call('HGETALL', KEYS[1])
else
  redis.call('UNLINK', KEYS[1])
  discarded = 1
end

-- Neither a comparison with what is no number, as nan, nor one with nil holds.
local function between(text, low, high)
  local value = tonumber(text)
  if value and value >= low and value <= high then return value end
end
local function line(value)
  local ends, seen, demand, flying, counted = string.match(value, '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
  ends = between(ends, 0, now + ${LONGEST_LIFE_MS})
  -- The clock of a Redis that took over may be behind.
  seen = between(seen, 0, now + ${LONGEST_LIFE_MS})
  seen = seen and math.min(seen, now)
  demand, flying = between(demand, 0, ${LARGEST}), between(flying, 0, ${LARGEST})
  counted = between(counted, 0, ${LARGEST})
  if ends and seen and demand and flying and counted then return ends, seen, demand, flying, counted end
end

local pool = {}
local members, others, demands, mine = 1, 0, 0, 0
for at = 1, #stored, 2 do
  local name, value = stored[at], stored[at + 1]
  if string.sub(name, 1, 1) ~= '@' then
    pool[name] = between(value, -${LARGEST}, ${LARGEST})
    if not pool[name] then
      redis.call('HDEL', KEYS[1], name)
      discarded = discarded + 1
    end
  else
    local ends, seen, demand, flying, counted = line(value)
    if not ends then
      redis.call('HDEL', KEYS[1], name)
      discarded = discarded + 1
    elseif name == me then
      mine = demand * math.exp((seen - now) / ${DEMAND_MS})
      settled = math.max(settled, counted)
    elseif ends < now then
      redis.call('HDEL', KEYS[1], name)
    else
      members = members + 1
      others = others + flying
      demands = demands + demand * math.exp((seen - now) / ${DEMAND_MS}) + 1
    end
  end
end
mine = mine + wanted
local spent = math.max(0, total - settled)

local tokens = math.min(burst, (pool.tokens or known) + math.max(0, now - (pool.at or now)) * rate / 1000)
tokens = math.max(-burst * members, tokens - math.max(0, spent - forgiven))
if day ~= today then used = 0 end
if pool.day == today then used = math.max(used, 0, pool.used or 0) end
used = used + math.min(spent, ofDay)

if rate > 0 then
  redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.0f', now))
else
  redis.call('HDEL', KEYS[1], 'tokens', 'at')
end
redis.call('HSET', KEYS[1], 'day', today, 'used', string.format('%.0f', used))
if lifetime > 0 then
  redis.call('HSET', KEYS[1], me,
    string.format('%.0f %.0f %.3f %d %.0f', now + lifetime, now, mine, arg[6], total))
else
  redis.call('HDEL', KEYS[1], me)
end
local full = rate > 0 and math.ceil(burst / rate) * 1000 or 0
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', 86400000 + full))
local share = math.max((mine + 1) / (demands + mine + 1), ${NEWCOMER_PART} / members)
return { string.format('%.6f', tokens), used, others, members, string.format('%.6f', share), today, discarded }`,
} as const;

type Script<Context extends ClientContext> = (...args: (string | number)[]) => Result<unknown, Context>;

declare module 'ioredis' {
  interface RedisCommander<Context extends ClientContext = { type: 'default' }> {
    settleLimit: Script<Context>;
  }
}

/** tokens, used, others in flight, members, share, day, values discarded; numbers with a fraction are texts */
const answer = z.array(z.coerce.number()).length(7);

/** The limits that processes share; Redis may be absent at the start and go away at any time. */
export class RedisLimitStore implements LimitStore {
  /** Names this process among all. */
  readonly #process = randomUUID();
  readonly #prefix: string;
  readonly #client: RedisClient;
  readonly #onRejected: () => void;

  /** `onRejected`: Redis held a value of a limit that no process wrote; it was removed. */
  constructor(redis: RedisOptions, onRejected: () => void) {
    this.#prefix = `${redis.keyPrefix}:v1:limits`;
    this.#client = new RedisClient(redis, { settleLimit });
    this.#onRejected = onRejected;
  }

  async settle(name: string, report: Report): Promise<LimitState> {
    const reply = await this.#client.call((commands) =>
      commands.settleLimit(
        `${this.#prefix}:${name}`,
        this.#process,
        report.total,
        report.settled,
        report.forgiven,
        report.wanted,
        report.inFlight,
        report.lifetimeMs,
        report.perSecond,
        report.burst,
        report.tokens,
        report.used,
        report.day,
        report.ofDay,
      ),
    );
    const [tokens, used, othersInFlight, members, share = 0, day, discarded = 0] = answer.parse(reply);
    if (discarded > 0) this.#onRejected();
    const state = { tokens, used, othersInFlight, members, share: Math.max(share, LEAST_SHARE), day };
    return limitStateForm.parse(state);
  }

  close(): Promise<void> {
    return this.#client.close();
  }
}
