import type { ClientContext, Result } from 'ioredis';
import { PARKED_AT_MOST } from './store.ts';
import { LONGEST_VALUE } from './stored-form.ts';

/*
 * Scripts for the steps that must be atomic. KEYS[1] of a script that writes is the ticket of the call. It is gone
 * when the caller has given up, so that a Redis that hung does not carry out old calls, with outdated ages, when it
 * goes on; and a call that a client library sends again does not happen twice.
 *
 * Others may write to the same Redis. A value of another type, or one that is longer than any of a gateway, never
 * leaves it: the reply has an empty text in its place, which no gateway has written.
 */

const SPEND_TICKET = `
if redis.call('DEL', KEYS[1]) == 0 then return redis.error_reply('LATE the caller has given up') end
`;

/** Only differences of it count, and always those of one Redis with itself. */
const NOW = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`;

/**
 * Names the run of this Redis server as a master. A replica that took over, a master that was a replica meanwhile, and a
 * server that was restarted from disk may hold again what was taken out before; they are other runs.
 */
const RUN = `
local server, replication = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
local id = type(server) == 'string' and string.match(server, 'run_id:(%w+)')
local term = type(replication) == 'string' and string.match(replication, 'master_replid:(%w+)')
local run = id and term and id .. term
`;

/** Bytes of the name of a leader, with its signature. */
const LONGEST_LEADER = 256;
/** A leader for longer, in milliseconds, is not of a gateway's making: the longest time is six hours. */
const LONGEST_LEAD_MS = 24 * 60 * 60_000;

/** shared(key) → false: none is held; or value, max, ms left, nonce. */
const SHARED = `
local function shared(key)
  local lengths = {}
  for at, field in ipairs({ 'value', 'max', 'nonce' }) do
    lengths[at] = redis.pcall('HSTRLEN', key, field)
    if type(lengths[at]) ~= 'number' then return { '', '', 0, '' } end
  end
  if lengths[1] + lengths[2] + lengths[3] > ${LONGEST_VALUE} then return { '', '', 0, '' } end
  local held = redis.call('HMGET', key, 'value', 'max', 'nonce')
  if not held[1] and not held[2] and not held[3] then return false end
  return { held[1] or '', held[2] or '', redis.call('PTTL', key), held[3] or '' }
end
`;

export const scripts = {
  /** (shared) → value, maxAgeMs, ms left, nonce; or nil */
  loadShared: {
    numberOfKeys: 1,
    readOnly: true,
    lua: `${SHARED}
return shared(KEYS[1])`,
  },
  /** (ticket, shared; seen or '', nonce, value, maxAgeMs, ms left, channel, message) → nil, or as `loadShared` */
  replaceShared: {
    numberOfKeys: 2,
    lua: `${SPEND_TICKET}${SHARED}
local held = shared(KEYS[2])
if held and held[4] ~= '' and held[4] ~= ARGV[1] then return held end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'nonce', ARGV[2], 'value', ARGV[3], 'max', ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('PUBLISH', ARGV[6], ARGV[7])
return false`,
  },
  /** (shared; nonce): removes the challenge if it has this nonce */
  discardShared: {
    numberOfKeys: 1,
    lua: `${SHARED}
local held = shared(KEYS[1])
if held and (held[4] == '' or held[4] == ARGV[1]) then redis.call('DEL', KEYS[1]) end`,
  },
  /** (ticket, parked; value, maxAgeMs, ageMs): only what was left in the same run is taken again */
  park: {
    numberOfKeys: 2,
    lua: `${SPEND_TICKET}${NOW}${RUN}
if not run then return end
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'zset' then redis.call('DEL', KEYS[2]) end
redis.call('ZADD', KEYS[2], string.format('%.0f', now - ARGV[3]), ARGV[2] .. ' ' .. run .. ' ' .. ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -${PARKED_AT_MOST + 1})
local left = math.max(1, ARGV[2] - ARGV[3])
if redis.call('PTTL', KEYS[2]) < left then redis.call('PEXPIRE', KEYS[2], left) end`,
  },
  /** (ticket, parked) → value, ageMs; or nil */
  takeParked: {
    numberOfKeys: 2,
    lua: `${SPEND_TICKET}${NOW}${RUN}
local count = redis.pcall('ZCARD', KEYS[2])
if type(count) ~= 'number' or count > ${PARKED_AT_MOST} then
  redis.call('UNLINK', KEYS[2])
  return { '', '0' }
end
for _ = 1, count do
  local waiting = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  if not waiting[1] then return false end
  redis.call('ZREM', KEYS[2], waiting[1])
  if string.len(waiting[1]) > ${LONGEST_VALUE} then return { '', '0' } end
  local age = math.max(0, now - waiting[2])
  local max, left, value = string.match(waiting[1], '^(%d+) (%w+) (.*)$')
  if not max then return { '', '0' } end
  if left == run and age < tonumber(max) then return { value, string.format('%.0f', age) } end
end
return false`,
  },
  /** (key) → value or nil */
  readValue: {
    numberOfKeys: 1,
    readOnly: true,
    lua: `
local length = redis.pcall('STRLEN', KEYS[1])
if type(length) ~= 'number' or length > ${LONGEST_VALUE} then return '' end
return redis.call('GET', KEYS[1])`,
  },
  /** (ticket, learned; value, ms, channel, message) */
  learnFor: {
    numberOfKeys: 2,
    lua: `${SPEND_TICKET}
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[3], ARGV[4])`,
  },
  /** (ticket, leader; process, ms, '1': even if another one leads) → 1, or the process that leads */
  leadFor: {
    numberOfKeys: 2,
    lua: `${SPEND_TICKET}
local length = redis.pcall('STRLEN', KEYS[2])
if ARGV[3] ~= '1' and type(length) == 'number' and length > 0 and length <= ${LONGEST_LEADER} then
  local left = redis.call('PTTL', KEYS[2])
  local leader = redis.call('GET', KEYS[2])
  if leader ~= ARGV[1] and left >= 0 and left <= ${LONGEST_LEAD_MS} then return leader end
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return 1`,
  },
} as const;

type Script<Context extends ClientContext> = (...args: (string | number)[]) => Result<unknown, Context>;

declare module 'ioredis' {
  interface RedisCommander<Context extends ClientContext = { type: 'default' }> {
    loadShared: Script<Context>;
    replaceShared: Script<Context>;
    discardShared: Script<Context>;
    park: Script<Context>;
    takeParked: Script<Context>;
    readValue: Script<Context>;
    learnFor: Script<Context>;
    leadFor: Script<Context>;
  }
}
