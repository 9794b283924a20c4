import { hash, randomBytes } from 'node:crypto';
import { Secret } from '../base/secret.ts';

/*
 * A pseudonym is a value encrypted under a key that can be destroyed: `ps1:KEYID:DATA`. Equal values have equal
 * pseudonyms under a key, so a holder of the key can search without reading every record. The form is SIV (Rogaway and
 * Shrimpton, 2006): the tag is a keyed hash of the value, and the tag selects the key stream. Both are SHA-3 with the
 * key in front, since one call of each costs a third of HMAC and AES, which have to be set up for every value.
 */

/** The values that a key hides: those of a month, of a client, or of an address. */
export type KeyScope = 'month' | 'client' | 'address';

/** The beginning of every pseudonym, and with the quote of its JSON string. */
export const PSEUDONYM_MARK = 'ps1:';
export const PSEUDONYM_START = `"${PSEUDONYM_MARK}`;
const PSEUDONYM = /^ps1:[\w-]{12}:[\w-]{24,2200}$/;
/** As a whole string, or behind the name of a criterion of a search. */
const PSEUDONYMS_IN_JSON = /(["=])ps1:([\w-]{12}):([\w-]{24,2200})"/g;
/** Characters of the id of a key, which follows the beginning. */
export const KEY_ID_LENGTH = 12;
const KEY_ID = /^[\w-]{12}$/;
const KEY_TEXT = /^[\w-]{43}$/;
/** Characters of the tag, for 18 bytes. */
const TAG = 24;
/** Bytes of SHA3-512, which are one block of the key stream. */
const BLOCK = 64;
/** Values are cut at 512 characters, each of three bytes at most. */
const MAX_BYTES = 1600;

/** A new id of a key: 72 random bits. It is in every pseudonym, so it must not say whose key it is. */
export function newKeyId(): string {
  return randomBytes(9).toString('base64url');
}

/** A new key: 256 random bits. */
export function newKeyText(): Secret {
  return new Secret(randomBytes(32).toString('base64url'));
}

/** True for the id of a key, which is also the name of its file. */
export function isKeyId(text: string): boolean {
  return KEY_ID.test(text);
}

/** True for a text in the form of a pseudonym. */
export function isPseudonym(text: string): boolean {
  return PSEUDONYM.test(text);
}

const scratch = Buffer.alloc(MAX_BYTES);

/** A key with the values that it hides. */
export class PseudonymKey {
  readonly id: string;
  readonly scope: KeyScope;
  /** The month (`2026-03`), the id of the client, or the address. */
  readonly subject: string;
  /** Unix milliseconds. */
  readonly made: number;
  /** The key as it is stored. */
  readonly secret: Secret;
  readonly #tagKey: string;
  readonly #streamKey: string;
  readonly #start: string;

  /** @throws RangeError if the text is not a key; the message does not quote it */
  constructor(
    id: string,
    { scope, subject, made, secret }: Pick<PseudonymKey, 'scope' | 'subject' | 'made' | 'secret'>,
  ) {
    const text = secret.reveal();
    if (!KEY_TEXT.test(text)) throw new RangeError('does not hold a key of pseudonyms');
    this.id = id;
    this.scope = scope;
    this.subject = subject;
    this.made = made;
    this.secret = secret;
    // The key has one length, so no value of one use can be one of the other.
    this.#tagKey = `${text}tag`;
    this.#streamKey = `${text}stream`;
    this.#start = `ps1:${id}:`;
  }

  /** The pseudonym of a value. */
  hide(value: string): string {
    const tag = this.#tagOf(value);
    const size = scratch.write(value);
    this.#applyStream(tag, scratch, size);
    return this.#start + tag + scratch.toString('base64url', 0, size);
  }

  /** The value of a pseudonym's data; undefined: the key did not make it. */
  reveal(data: string): string | undefined {
    const tag = data.slice(0, TAG);
    const bytes = Buffer.from(data.slice(TAG), 'base64url');
    this.#applyStream(tag, bytes, bytes.length);
    const value = bytes.toString();
    return this.#tagOf(value) === tag ? value : undefined;
  }

  #tagOf(value: string): string {
    return hash('sha3-256', this.#tagKey + value, 'base64url').slice(0, TAG);
  }

  /** Encrypts or decrypts bytes. */
  #applyStream(tag: string, bytes: Buffer, size: number): void {
    for (let from = 0; from < size; from += BLOCK) {
      const stream = hash('sha3-512', `${this.#streamKey}${from / BLOCK}.${tag}`, 'latin1');
      const to = Math.min(from + BLOCK, size);
      for (let at = from; at < to; at += 1) bytes[at] = (bytes[at] ?? 0) ^ stream.charCodeAt(at - from);
    }
  }
}

/** True if a JSON text has a string that may be a pseudonym. */
export function hasPseudonym(text: string): boolean {
  return text.includes(PSEUDONYM_START);
}

/** Replaces the pseudonyms in a JSON text that keys made by their values; others stay. `keyOf`: the key with that id. */
export function revealJson(text: string, keyOf: (id: string) => PseudonymKey | undefined): string {
  if (!text.includes(PSEUDONYM_MARK)) return text;
  return text.replace(PSEUDONYMS_IN_JSON, (pseudonym, before: string, id: string, data: string) => {
    const value = keyOf(id)?.reveal(data);
    return value === undefined ? pseudonym : before + JSON.stringify(value).slice(1);
  });
}
