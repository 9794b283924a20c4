import { createHmac, hash } from 'node:crypto';
import type { AuditKeys } from './keys.ts';

/** Vouches for the records `first` to `last`, and through `hmac` for everything before them. */
export interface Seal {
  readonly first: number;
  readonly last: number;
  /** Of all bytes since the line of the seal before, base64url. */
  readonly sha256: string;
  /** Over all of the above and the `hmac` of the seal before, base64url. */
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

export function hmacOf(
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
