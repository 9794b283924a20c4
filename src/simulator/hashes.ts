import { hash } from 'node:crypto';
import type { algorithmNames } from './settings.ts';

export type AlgorithmName = (typeof algorithmNames)[number];

/** Hash names of Node's crypto; `sha512-256` is a function of its own, not truncated SHA-512. */
export type HashName = 'md5' | 'sha256' | 'sha512-256';

interface Algorithm {
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

/** Returns the lower-case hex hash of the parts joined by colons; each part is Latin-1 decoded bytes. */
export function hashOf(name: HashName, ...parts: readonly string[]): string {
  return hash(name, Buffer.from(parts.join(':'), 'latin1'), 'hex');
}

/** Converts text to UTF-8 bytes decoded as Latin-1, the form of header values in Node. */
export function wireText(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}
