import { createSecretKey, KeyObject } from 'node:crypto';
import { types } from 'node:util';
import { Secret } from './secret.ts';

/** Stand in the plain form for what is not copied between processes and threads. */
const SECRET = '\0secret';
const KEY = '\0key';

/**
 * Replaces secrets and keys in maps, lists and plain objects, which a copy for another process or thread would lose, by
 * their content. The result holds secrets in plain text: it must not be stored.
 * @throws TypeError for an object of another kind, whose copy would not be the same
 */
export function toPlain(value: unknown): unknown {
  if (value instanceof Secret) return { [SECRET]: value.reveal() };
  if (value instanceof KeyObject) return { [KEY]: value.export() };
  return mapped(value, toPlain);
}

/** The inverse of `toPlain`. */
export function fromPlain(value: unknown): unknown {
  if (typeof value === 'object' && value !== null) {
    if (SECRET in value) return new Secret(String(value[SECRET]));
    if (KEY in value) return createSecretKey(value[KEY] as Buffer);
  }
  return mapped(value, fromPlain);
}

function mapped(value: unknown, change: (value: unknown) => unknown): unknown {
  if (typeof value !== 'object' || value === null || types.isDate(value)) return value;
  if (Array.isArray(value)) return value.map(change);
  if (types.isMap(value)) return new Map([...value].map(([key, entry]) => [key, change(entry)]));
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null) {
    throw new TypeError(`a setup holds an object of ${prototype.constructor.name}`);
  }
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, change(entry)]));
}
