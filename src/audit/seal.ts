import { createHmac, hash, timingSafeEqual } from 'node:crypto';
import type { AuditKeys } from './keys.ts';
import { parseProcessName } from './replica-name.ts';

/**
 * Bytes of records that the writer puts under one seal; a larger batch is sealed in parts. Earlier versions put up to
 * `LARGEST_BATCH` under one seal, so a reader has to keep as much.
 */
export const MOST_BATCH = 1024 * 1024;
export const LARGEST_BATCH = 32 * 1024 * 1024;

/**
 * A line that covers the lines since the previous seal, and through `hmac` everything before them. A seal with
 * `last` = `first` - 1 covers no record: a process writes one before its first record ("opening seal"), which covers
 * the header if the segment is new. So a header is never without a seal, and lines without a seal after the last record
 * of a process that stopped were written by somebody else.
 */
export interface Seal {
  /** Numbers of the first and the last record. */
  readonly first: number;
  readonly last: number;
  /** SHA-256 of all bytes since the line of the previous seal, base64url. */
  readonly sha256: string;
  /** HMAC-SHA-256 of `REPLICA\nPREVIOUS\nFIRST\nLAST\nSHA256`, PREVIOUS being the `hmac` of the previous seal; base64url. */
  readonly hmac: string;
}

/** The end of a chain. Kept elsewhere, it shows later whether the log was cut off before it. */
export interface Head {
  /** The replica, or a worker of it (`REPLICA@K`): each process has a chain of its own. */
  readonly replica: string;
  readonly seq: number;
  readonly hmac: string;
}

/** Stands for the `hmac` of the previous seal in the first seal of a chain. */
export const GENESIS = '';

export const SEAL_START = '{"seal":';
const SHAPE = /^\{"seal":\[(\d{1,15}),(\d{1,15})\],"sha256":"([\w-]{43})","hmac":"([\w-]{43})"\}$/;

/** Makes the seal for the lines of a batch. */
export function sealFor(
  keys: AuditKeys,
  chain: { readonly replica: string; readonly previous: string },
  range: { readonly first: number; readonly last: number },
  batch: Buffer,
): Seal {
  const content = { ...range, sha256: hash('sha256', batch, 'base64url') };
  return { ...content, hmac: hmacOf(keys, chain, content) };
}

function hmacOf(
  keys: AuditKeys,
  { replica, previous }: { readonly replica: string; readonly previous: string },
  { first, last, sha256 }: Omit<Seal, 'hmac'>,
): string {
  const text = `${replica}\n${previous}\n${first}\n${last}\n${sha256}`;
  return createHmac('sha256', keys.seal).update(text).digest('base64url');
}

/** Returns the line of a seal, with its line end. */
export function sealLine({ first, last, sha256, hmac }: Seal): string {
  return `${SEAL_START}[${first},${last}],"sha256":"${sha256}","hmac":"${hmac}"}\n`;
}

/** A line, without its line end, as a seal; undefined: it is none. */
export function parseSeal(line: string): Seal | undefined {
  const match = SHAPE.exec(line);
  if (match === null) return undefined;
  const [, first, last, sha256 = '', hmac = ''] = match;
  return { first: Number(first), last: Number(last), sha256, hmac };
}

/** True if the seal is for just these lines. It may be forged: see `isAuthentic`. */
export function isSealOf({ sha256 }: Seal, lines: Buffer): boolean {
  return hash('sha256', lines, 'base64url') === sha256;
}

/** True if the key made the seal, as a part of that chain. */
export function isAuthentic(
  keys: AuditKeys,
  chain: { readonly replica: string; readonly previous: string },
  seal: Seal,
): boolean {
  return timingSafeEqual(Buffer.from(hmacOf(keys, chain, seal)), Buffer.from(seal.hmac));
}

/** The form in which a head is logged and given to `audit verify --head`. */
export function formatHead({ replica, seq, hmac }: Head): string {
  return `${replica}:${seq}:${hmac}`;
}

/** Undefined: the text is no head. The inverse of `formatHead`. */
export function parseHead(text: string): Head | undefined {
  const match = /^([^:]+):(\d{1,15}):([\w-]{43})$/.exec(text);
  const [, replica = '', seq, hmac = ''] = match ?? [];
  if (parseProcessName(replica) === undefined) return undefined;
  return { replica, seq: Number(seq), hmac };
}
