import type { ClientContext, Result } from 'ioredis';

/*
 * What has to happen at once, in Redis. KEYS[1] of whatever writes is the ticket of the call: it is gone
 * when the caller has given up, so a Redis that hung does not catch up on old calls, with ages that were
 * right then, once it goes on; and a call that a client library sends again does not happen twice.
 */

const SPEND_TICKET = `
if redis.call('DEL', KEYS[1]) == 0 then return redis.error_reply('LATE the caller has given up') end
`;

/** Only differences of it count, and always those of one Redis with itself. */
const NOW = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`;

/** More than any number of processes that could drain at once. */
const PARKED_AT_MOST = 256;

export const scripts = {
  /** (shared) → value, maxAgeMs, ms left; or nil */
  loadShared: {
    numberOfKeys: 1,
    readOnly: true,
    lua: `
local held = redis.pcall('HMGET', KEYS[1], 'value', 'max')
if held.err or not held[1] or not held[2] then return false end
return { held[1], held[2], redis.call('PTTL', KEYS[1]) }`,
  },
  /** (ticket, shared; seen or '', nonce, value, maxAgeMs, ms left, channel, message) → nil, or as `loadShared` with the nonce that is held */
  replaceShared: {
    numberOfKeys: 2,
    lua: `${SPEND_TICKET}
local held = redis.pcall('HMGET', KEYS[2], 'nonce', 'value', 'max')
if held.err then
  redis.call('DEL', KEYS[2])
elseif held[1] and held[1] ~= ARGV[1] then
  return { held[2], held[3], redis.call('PTTL', KEYS[2]), held[1] }
end
redis.call('HSET', KEYS[2], 'nonce', ARGV[2], 'value', ARGV[3], 'max', ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('PUBLISH', ARGV[6], ARGV[7])
return false`,
  },
  /** (ticket, parked; value, maxAgeMs, ageMs) */
  park: {
    numberOfKeys: 2,
    lua: `${SPEND_TICKET}${NOW}
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'zset' then redis.call('DEL', KEYS[2]) end
redis.call('ZADD', KEYS[2], string.format('%.0f', now - ARGV[3]), ARGV[2] .. ' ' .. ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -${PARKED_AT_MOST + 1})
local left = math.max(1, ARGV[2] - ARGV[3])
if redis.call('PTTL', KEYS[2]) < left then redis.call('PEXPIRE', KEYS[2], left) end`,
  },
  /** (ticket, parked) → value, ageMs; or nil */
  takeParked: {
    numberOfKeys: 2,
    lua: `${SPEND_TICKET}${NOW}
local waiting = redis.pcall('ZREVRANGE', KEYS[2], 0, -1, 'WITHSCORES')
if waiting.err then return false end
for at = 1, #waiting, 2 do
  redis.call('ZREM', KEYS[2], waiting[at])
  local age = math.max(0, now - waiting[at + 1])
  local max, value = string.match(waiting[at], '^(%d+) (.*)$')
  if max and age < tonumber(max) then return { value, string.format('%.0f', age) } end
end
return false`,
  },
  /** (learned) → value or nil */
  recallLearned: {
    numberOfKeys: 1,
    readOnly: true,
    lua: `
local value = redis.pcall('GET', KEYS[1])
return type(value) == 'string' and value`,
  },
  /** (ticket, learned; value, ms, channel, message) */
  learnFor: {
    numberOfKeys: 2,
    lua: `${SPEND_TICKET}
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[3], ARGV[4])`,
  },
  /** (ticket, leader; process, ms) → 1 or 0 */
  leadFor: {
    numberOfKeys: 2,
    lua: `${SPEND_TICKET}
local leader = redis.pcall('GET', KEYS[2])
if type(leader) == 'string' and leader ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return 1`,
  },
  /** (pulse; ms, channel, message): whether this Redis takes writes and passes on messages */
  beatPulse: {
    numberOfKeys: 1,
    lua: `
redis.call('SET', KEYS[1], '', 'PX', ARGV[1])
redis.call('PUBLISH', ARGV[2], ARGV[3])`,
  },
} as const;

type Script<Context extends ClientContext> = (...args: (string | number)[]) => Result<unknown, Context>;

declare module 'ioredis' {
  interface RedisCommander<Context extends ClientContext = { type: 'default' }> {
    loadShared: Script<Context>;
    replaceShared: Script<Context>;
    park: Script<Context>;
    takeParked: Script<Context>;
    recallLearned: Script<Context>;
    learnFor: Script<Context>;
    leadFor: Script<Context>;
    beatPulse: Script<Context>;
  }
}
