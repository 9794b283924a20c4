import { type LuaFunction, LuaTable, type LuaValue, numberOf } from './lua-compiler.ts';

/** The parts of Lua 5.1's library that the gateway's scripts use. */
export const luaLibrary: ReadonlyMap<string, LuaValue> = new Map<string, LuaValue>([
  ['tonumber', (value) => [toNumber(value)]],
  ['type', (value) => [typeOf(value)]],
  ['ipairs', (list) => [LuaTable.check(list)]],
  [
    'math',
    table({
      floor: (x) => [Math.floor(numberOf(x))],
      ceil: (x) => [Math.ceil(numberOf(x))],
      exp: (x) => [Math.exp(numberOf(x))],
      max: (...all) => [Math.max(...all.map(numberOf))],
      min: (...all) => [Math.min(...all.map(numberOf))],
    }),
  ],
  [
    'string',
    table({
      len: (text) => [Buffer.byteLength(String(text))],
      sub: (text, from, to) => [substring(String(text), numberOf(from), numberOf(to))],
      match: (text, pattern) => match(String(text), String(pattern)),
      format: (form, ...values) => [format(String(form), values)],
    }),
  ],
]);

function table(functions: Readonly<Record<string, LuaFunction>>): LuaTable {
  const result = new LuaTable();
  for (const [name, run] of Object.entries(functions)) result.set(name, run);
  return result;
}

/** `strtod` of C also reads `nan` and `inf`. */
function toNumber(value: LuaValue): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string') return undefined;
  const text = value.trim().toLowerCase();
  if (/^[-+]?nan$/.test(text)) return Number.NaN;
  const infinite = /^([-+]?)inf(?:inity)?$/.exec(text);
  if (infinite !== null) return infinite[1] === '-' ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  if (!/^[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?$|^0x[0-9a-f]+$/.test(text)) return undefined;
  return Number(text);
}

function typeOf(value: LuaValue): string {
  if (value === undefined) return 'nil';
  if (value instanceof LuaTable) return 'table';
  return typeof value;
}

function substring(text: string, from: number, to: number): string {
  const end = to < 0 ? text.length + to + 1 : to;
  return text.slice(Math.max(0, from - 1), Math.max(0, end));
}

const CLASSES: ReadonlyMap<string, string> = new Map([
  ['S', '\\S'],
  ['s', '\\s'],
  ['w', '[A-Za-z0-9]'],
  ['d', '[0-9]'],
]);
const patterns = new Map<string, RegExp>();

/** @throws TypeError for a part of patterns that no script uses */
function match(text: string, pattern: string): LuaValue[] {
  let known = patterns.get(pattern);
  if (known === undefined) {
    if (/[-[\]]|%[^Sswd]/.test(pattern)) throw new TypeError(`not translated: ${pattern}`);
    const source = pattern.replace(/%(.)|\./g, (_, name) => CLASSES.get(name) ?? '[^]');
    known = new RegExp(source);
    patterns.set(pattern, known);
  }
  const found = known.exec(text);
  if (found === null) return [undefined];
  return found.length === 1 ? [found[0]] : found.slice(1);
}

/** @throws TypeError for a form that no script uses */
function format(form: string, values: readonly LuaValue[]): string {
  let at = 0;
  return form.replace(/%(?:\.(\d))?(.)/g, (_, digits: string | undefined, kind: string) => {
    const value = values[at];
    at += 1;
    if (kind === 'f') return numberOf(value).toFixed(Number(digits ?? 6));
    if (kind === 'd') return String(Math.trunc(numberOf(value)));
    if (kind === 's') return String(value);
    throw new TypeError(`not translated: %${kind}`);
  });
}
