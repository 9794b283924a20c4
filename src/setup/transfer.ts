import { createSecretKey, KeyObject } from 'node:crypto';
import { types } from 'node:util';
import { deserialize, serialize } from 'node:v8';
import { Secret } from '../base/secret.ts';
import { runInSlices, type Steps } from '../base/steps.ts';
import { fromPieces, type Pieces } from '../config/transfer.ts';
import type { AppSetup } from './setup.ts';

/** A setup with its secrets, for another process of this program, in pieces that are each quick to read. */
export interface TransferredSetup {
  /** Name of the configuration file, which relative names in it start from. */
  readonly file: string;
  readonly config: Pieces;
  /** Everything but the configuration, as entries of the setup's fields. */
  readonly rest: readonly Uint8Array[];
}

/** Maximum number of entries of a map in one piece. */
const ENTRIES = 50;
/** Stand in the serialized form for what cannot be serialized. */
const SECRET = '\0secret';
const KEY = '\0key';

type Piece = readonly [field: string, value: unknown];

/** Prepares a setup for `fromTransfer` in another process. It holds secrets in plain text: it must not be stored. */
export function toTransfer({ config: _, source, ...rest }: AppSetup): TransferredSetup {
  const pieces = Object.entries(rest).flatMap(([field, value]) =>
    types.isMap(value) ? mapPieces(field, value) : [[field, value] as const],
  );
  return { ...source, rest: pieces.map((piece) => serialize(plain(piece))) };
}

/** Restores a setup in slices, so that requests are served meanwhile. */
export function fromTransfer(transferred: TransferredSetup): Promise<AppSetup> {
  return runInSlices(restored(transferred));
}

function* restored({ file, config: pieces, rest }: TransferredSetup): Steps<AppSetup> {
  const config = yield* fromPieces(pieces, file);
  const fields: Record<string, unknown> = { config, source: { file, config: pieces } };
  for (const piece of rest) {
    const [field, value] = original(deserialize(piece)) as Piece;
    const known = fields[field];
    if (types.isMap(known) && types.isMap(value)) for (const [key, entry] of value) known.set(key, entry);
    else fields[field] = value;
    yield;
  }
  return fields as unknown as AppSetup;
}

function mapPieces(field: string, map: ReadonlyMap<unknown, unknown>): Piece[] {
  const entries = [...map];
  const pieces: Piece[] = [];
  for (let at = 0; at === 0 || at < entries.length; at += ENTRIES) {
    pieces.push([field, new Map(entries.slice(at, at + ENTRIES))]);
  }
  return pieces;
}

/** Replaces secrets and keys, which are not copied by serialization, by their content. */
function plain(value: unknown): unknown {
  if (value instanceof Secret) return { [SECRET]: value.reveal() };
  if (value instanceof KeyObject) return { [KEY]: value.export() };
  return mapped(value, plain);
}

function original(value: unknown): unknown {
  if (typeof value === 'object' && value !== null) {
    if (SECRET in value) return new Secret(String(value[SECRET]));
    if (KEY in value) return createSecretKey(value[KEY] as Buffer);
  }
  return mapped(value, original);
}

/**
 * Maps what is in a map, a list or a plain object.
 * @throws TypeError for an object of another kind, whose copy would not be the same
 */
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
