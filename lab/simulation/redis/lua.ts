import { createRequire } from 'node:module';
import { type Keyspace, RedisError, type Reply } from './keyspace.ts';
import { compileLua, type LuaFunction, LuaTable, type LuaValue } from './lua-compiler.ts';
import { luaLibrary } from './lua-library.ts';

const require = createRequire(import.meta.url);
const { parse } = require('luaparse') as typeof import('luaparse');

/** Runs the gateway's Lua scripts on the keys of a server, as Redis does. Each script is translated once. */
export class LuaScripts {
  readonly #compiled = new Map<string, LuaFunction>();
  readonly #globals = new Map<string, LuaValue>(luaLibrary);
  #keyspace: Keyspace | undefined;

  constructor() {
    const redis = new LuaTable();
    redis.set('call', (...args) => [luaValue(this.#call(args))]);
    redis.set('pcall', (...args) => {
      try {
        return [luaValue(this.#call(args))];
      } catch (error) {
        if (error instanceof RedisError) return [errorTable(error.message)];
        throw error;
      }
    });
    redis.set('error_reply', (message) => [errorTable(String(message))]);
    this.#globals.set('redis', redis);
  }

  /**
   * Runs a script on the keys.
   * @throws RedisError
   */
  run(source: string, keys: readonly string[], args: readonly string[], keyspace: Keyspace): Reply {
    let script = this.#compiled.get(source);
    if (script === undefined) {
      script = compileLua(
        parse(source, { luaVersion: '5.1', comments: false, encodingMode: 'pseudo-latin1' }),
        this.#globals,
      );
      this.#compiled.set(source, script);
    }
    this.#keyspace = keyspace;
    this.#globals.set('KEYS', LuaTable.of(keys));
    this.#globals.set('ARGV', LuaTable.of(args));
    const [result] = script();
    return replyOf(result);
  }

  #call([name, ...args]: readonly LuaValue[]): Reply {
    if (this.#keyspace === undefined) throw new TypeError('no script runs');
    return this.#keyspace.call(String(name), args.map(argumentOf));
  }
}

/** Redis passes a number on with 17 digits. */
function argumentOf(value: LuaValue): string {
  if (typeof value === 'string' || typeof value === 'number') return String(value);
  throw new RedisError('ERR Lua redis lib command arguments must be strings or integers');
}

function errorTable(message: string): LuaTable {
  const table = new LuaTable();
  table.set('err', message);
  return table;
}

function luaValue(reply: Reply): LuaValue {
  if (reply === null) return false;
  if (typeof reply === 'string' || typeof reply === 'number') return reply;
  if (!('ok' in reply)) return LuaTable.of(reply.map(luaValue));
  const table = new LuaTable();
  table.set('ok', reply.ok);
  return table;
}

/**
 * The value of a script as Redis replies it: a number without its fraction, false as nil, a list up to its first nil.
 * @throws RedisError for an error reply
 */
function replyOf(value: LuaValue): Reply {
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return Math.trunc(value);
  if (value === true) return 1;
  if (!(value instanceof LuaTable)) return null;
  const error = value.get('err');
  if (typeof error === 'string') throw new RedisError(error);
  const ok = value.get('ok');
  if (typeof ok === 'string') return { ok };
  return Array.from({ length: value.length }, (_, at) => replyOf(value.get(at + 1)));
}
