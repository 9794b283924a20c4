import { types } from 'node:util';
import { deserialize, serialize } from 'node:v8';
import { fromPlain, toPlain } from '../base/plain-form.ts';
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

type Piece = readonly [field: string, value: unknown];

/** Prepares a setup for `fromTransfer` in another process. It holds secrets in plain text: it must not be stored. */
export function toTransfer({ config: _, source, ...rest }: AppSetup): TransferredSetup {
  // Only the primary sends to audit sinks and has the control plane, so only it needs their secrets.
  const pieces = Object.entries({ ...rest, auditSinks: [], oidc: undefined }).flatMap(([field, value]) =>
    types.isMap(value) ? mapPieces(field, value) : [[field, value] as const],
  );
  return { ...source, rest: pieces.map((piece) => serialize(toPlain(piece))) };
}

/** Restores a setup in slices, so that requests are served meanwhile. */
export function fromTransfer(transferred: TransferredSetup): Promise<AppSetup> {
  return runInSlices(restored(transferred));
}

function* restored({ file, config: pieces, rest }: TransferredSetup): Steps<AppSetup> {
  const config = yield* fromPieces(pieces, file);
  const fields: Record<string, unknown> = { config, source: { file, config: pieces } };
  for (const piece of rest) {
    const [field, value] = fromPlain(deserialize(piece)) as Piece;
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
