import { createHmac, hash, timingSafeEqual } from 'node:crypto';
import type { AuditKeys } from './keys.ts';
import { NEWLINE } from './line.ts';
import { type Digest, leavesOf } from './merkle.ts';
import { parseProcessName } from './replica-name.ts';

/** Bytes of records that the writer puts under one seal; a larger batch is sealed in parts, of one record at least. */
export const MOST_BATCH = 1024 * 1024;
/** Bytes of lines without a seal that a reader keeps: a header, and a batch or the longest line. */
export const LARGEST_BATCH = 2 * MOST_BATCH;

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
  readonly form: SealForm;
  /** SHA-256, base64url, of what `form` says. */
  readonly digest: string;
  /** HMAC-SHA-256 of replica, `hmac` of the previous seal, numbers, form and digest; base64url. */
  readonly hmac: string;
}

/**
 * `sha256`: the digest is of all bytes since the line of the previous seal. `leaves`: it is of the leaf hashes of these
 * lines, one after the other. A log with signed heads has them anyway, and hashing its bytes a second time would cost a
 * third of the tree.
 */
type SealForm = 'sha256' | 'leaves';

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
// A number has one spelling: the seal itself is under no other one.
const SHAPE =
  /^\{"seal":\[([1-9]\d{0,14}),(0|[1-9]\d{0,14})\],"(sha256|leaves)":"([\w-]{43})","hmac":"([\w-]{43})"\}$/;

/** Makes the seal for the lines of a batch, given as their bytes or as their leaf hashes. */
export function sealFor(
  keys: AuditKeys,
  chain: Chain,
  range: { readonly first: number; readonly last: number },
  batch: Buffer | readonly Digest[],
): Seal {
  const { first, last } = range;
  const content = { first, last, ...digestOf(batch) };
  return { ...content, hmac: hmacOf(keys, chain, content) };
}

function digestOf(batch: Buffer | readonly Digest[]): Pick<Seal, 'form' | 'digest'> {
  if (Buffer.isBuffer(batch)) return { form: 'sha256', digest: hash('sha256', batch, 'base64url') };
  return { form: 'leaves', digest: hash('sha256', Buffer.from(batch.join(''), 'latin1'), 'base64url') };
}

function hmacOf(
  keys: AuditKeys,
  { replica, previous }: Chain,
  { first, last, form, digest }: Omit<Seal, 'hmac'>,
): string {
  // A digest of one form is never taken for one of the other.
  const named = form === 'sha256' ? digest : `${form}\n${digest}`;
  const text = `${replica}\n${previous}\n${first}\n${last}\n${named}`;
  return createHmac('sha256', keys.seal).update(text).digest('base64url');
}

/** Returns the line of a seal, with its line end. */
export function sealLine({ first, last, form, digest, hmac }: Seal): string {
  return `${SEAL_START}[${first},${last}],"${form}":"${digest}","hmac":"${hmac}"}\n`;
}

/** A line, without its line end, as a seal; undefined: it is none. */
export function parseSeal(line: string): Seal | undefined {
  const match = SHAPE.exec(line);
  if (match === null) return undefined;
  const [, first, last, form, digest = '', hmac = ''] = match;
  return {
    first: Number(first),
    last: Number(last),
    form: form === 'leaves' ? 'leaves' : 'sha256',
    digest,
    hmac,
  };
}

/** The place of a seal in a chain. */
interface Chain {
  readonly replica: string;
  /** `hmac` of the previous seal. */
  readonly previous: string;
}

/** `fits`: the seal is for just these lines; `authentic`: one of the keys made it, as a part of that chain. */
interface SealCheck {
  readonly fits: boolean;
  readonly authentic: boolean;
  /** The leaf hashes of the lines, if the seal is over them. */
  readonly leaves: readonly Digest[] | undefined;
}

/** Checks a seal and the lines before it. Without keys, no seal is authentic. */
export function checkSeal(keys: readonly AuditKeys[], chain: Chain, seal: Seal, lines: Buffer): SealCheck {
  const given = Buffer.from(seal.hmac);
  const leaves = seal.form === 'leaves' ? leavesOf(lines) : undefined;
  // Bytes after the last line end have no leaf.
  const areWhole = lines.length === 0 || lines.at(-1) === NEWLINE;
  return {
    fits: areWhole && digestOf(leaves ?? lines).digest === seal.digest,
    leaves,
    authentic: keys.some((key) => timingSafeEqual(Buffer.from(hmacOf(key, chain, seal)), given)),
  };
}

/** The form in which a head is logged and given to `audit verify --head`. */
export function formatHead({ replica, seq, hmac }: Head): string {
  return `${replica}:${seq}:${hmac}`;
}

/** Undefined: the text is not a head. The inverse of `formatHead`. */
export function parseHead(text: string): Head | undefined {
  const match = /^([^:]+):(\d{1,15}):([\w-]{43})$/.exec(text);
  const [, replica = '', seq, hmac = ''] = match ?? [];
  if (parseProcessName(replica) === undefined) return undefined;
  return { replica, seq: Number(seq), hmac };
}
