import { hash } from 'node:crypto';
import type { algorithmNames } from './settings.ts';

export type AlgorithmName = (typeof algorithmNames)[number];

/** The names that Node's crypto knows; `sha512-256` is its own function, not SHA-512 cut short. */
export type HashName = 'md5' | 'sha256' | 'sha512-256';

export interface Algorithm {
  readonly hash: HashName;
  /** A1 also covers the nonce and the client's nonce (RFC 7616 §3.4.2). */
  readonly session: boolean;
}

export const algorithms: Readonly<Record<AlgorithmName, Algorithm>> = {
  MD5: { hash: 'md5', session: false },
  'MD5-sess': { hash: 'md5', session: true },
  'SHA-256': { hash: 'sha256', session: false },
  'SHA-256-sess': { hash: 'sha256', session: true },
  'SHA-512-256': { hash: 'sha512-256', session: false },
  'SHA-512-256-sess': { hash: 'sha512-256', session: true },
};

/** Lower-case hex over the parts joined by colons; each part is Latin-1 decoded bytes. */
export function hashOf(name: HashName, ...parts: readonly string[]): string {
  return hash(name, Buffer.from(parts.join(':'), 'latin1'), 'hex');
}

/** Text as its UTF-8 bytes look in a header that was decoded as Latin-1. */
export function wireText(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}
