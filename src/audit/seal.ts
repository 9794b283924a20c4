import { createHmac, hash, timingSafeEqual } from 'node:crypto';
import type { AuditKeys } from './keys.ts';

/**
 * Bytes of records that the writer puts under one seal; more are sealed in parts. Before this bound was set, one seal
 * could cover up to `LARGEST_BATCH`: what a reader waits for a seal for is never more.
 */
export const MOST_BATCH = 1024 * 1024;
export const LARGEST_BATCH = 32 * 1024 * 1024;

/**
 * A line that vouches for the lines since the seal before, and through `hmac` for everything before them. A seal with
 * `last` = `first` - 1 covers no record: a process writes one before its first record ("opening seal"), which covers
 * the header if the segment is new. So a header is never without a seal, and what follows the last record of a process
 * that stopped, and has no seal, was written by somebody else.
 */
export interface Seal {
  /** Numbers of the first and the last record. */
  readonly first: number;
  readonly last: number;
  /** Of all bytes since the line of the seal before, base64url. */
  readonly sha256: string;
  /** HMAC-SHA-256 of `REPLICA\nPREVIOUS\nFIRST\nLAST\nSHA256`, PREVIOUS being the `hmac` of the seal before; base64url. */
  readonly hmac: string;
}

/** The end of a chain: whoever knows it notices when later the log ends before it. */
export interface Head {
  readonly replica: string;
  readonly seq: number;
  readonly hmac: string;
}

/** Where a chain begins: what its first seal has for the `hmac` of the seal before. */
export const GENESIS = '';

export const SEAL_START = '{"seal":';
const SHAPE = /^\{"seal":\[(\d{1,15}),(\d{1,15})\],"sha256":"([\w-]{43})","hmac":"([\w-]{43})"\}$/;

/** Seals a batch that continues the chain of a replica. */
export function sealed(
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

export function sealLine({ first, last, sha256, hmac }: Seal): string {
  return `${SEAL_START}[${first},${last}],"sha256":"${sha256}","hmac":"${hmac}"}\n`;
}

/** A line, without its end, as a seal; undefined: it is not exactly one. */
export function parseSeal(line: string): Seal | undefined {
  const match = SHAPE.exec(line);
  if (match === null) return undefined;
  const [, first, last, sha256 = '', hmac = ''] = match;
  return { first: Number(first), last: Number(last), sha256, hmac };
}

/** Whether the key made the seal, as one of that chain. */
export function isAuthentic(
  keys: AuditKeys,
  chain: { readonly replica: string; readonly previous: string },
  seal: Seal,
): boolean {
  return timingSafeEqual(Buffer.from(hmacOf(keys, chain, seal)), Buffer.from(seal.hmac));
}

/** As it is logged, and given to `audit verify --head`. */
export function formatHead({ replica, seq, hmac }: Head): string {
  return `${replica}:${seq}:${hmac}`;
}

/** Undefined: the text is no head. */
export function parseHead(text: string): Head | undefined {
  const match = /^([\w.-]{1,64}):(\d{1,15}):([\w-]{43})$/.exec(text);
  if (match === null) return undefined;
  const [, replica = '', seq, hmac = ''] = match;
  return { replica, seq: Number(seq), hmac };
}
