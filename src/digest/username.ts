import { hash } from './algorithms.ts';
import type { Challenge } from './challenge.ts';
import { quotedParameter } from './parameters.ts';

/** attr-char of RFC 8187 §3.2.1: all that an extended value may hold without percent-encoding. */
const ATTRIBUTE_CHARACTERS = new Set(
  Buffer.from('!#$&+-.^_`|~ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'),
);

/** ASCII that a quoted-string holds. */
const PLAIN = /^[\t -~]*$/;

/** The UTF-8 bytes of a credential's text, as Latin-1 text; NFC first, as RFC 7616 §4 says. */
export function credentialBytes(text: string): string {
  return Buffer.from(text.normalize('NFC')).toString('latin1');
}

/**
 * The parameter that names the user: hashed, extended or plain (RFC 7616 §3.4.4). `username` is from
 * `credentialBytes`. Throws RangeError when only the plain form is left and cannot hold the name.
 */
export function usernameParameter(challenge: Challenge, username: string): string {
  if (challenge.userhash) {
    return quotedParameter('username', hash(challenge.algorithm.name, `${username}:${challenge.realm}`));
  }
  if (challenge.utf8 && !PLAIN.test(username)) return `username*=UTF-8''${percentEncoded(username)}`;
  return quotedParameter('username', username);
}

function percentEncoded(bytes: string): string {
  return Array.from(Buffer.from(bytes, 'latin1'), (byte) =>
    ATTRIBUTE_CHARACTERS.has(byte)
      ? String.fromCharCode(byte)
      : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`,
  ).join('');
}
