import { z } from 'zod';
import type { Path } from './issues.ts';
import { instant, listOf, oneOrMore, section, text } from './value-schemas.ts';

/** An API key of a client. */
export interface ApiKey {
  /** 64 hex digits in lower case. */
  readonly sha256: string;
  /** The first instant at which the key no longer holds, in Unix milliseconds; undefined: it has no end. */
  readonly expires?: number | undefined;
  readonly note?: string | undefined;
}

const HEX_256 = /^[0-9a-fA-F]{64}$/;
const NOTE = /^\P{C}{1,64}$/u;
const HASH = 'the SHA-256 of an API key, 64 hex digits, as `digest-gateway client add NAME` prints it';

const KEY_ITSELF =
  'the SHA-256 of an API key: this is a key, not its SHA-256, and readers of this file know it; make another with `digest-gateway client add NAME`';

/** Start of the API keys that this program makes, by which people and secret scanners know them. */
export const KEY_PREFIX = 'dgk_';

function holdsKey(written: unknown): boolean {
  return [written].flat().some((each) => typeof each === 'string' && each.startsWith(KEY_PREFIX));
}

const sha256 = (expected: string) =>
  z
    .string({ error: expected })
    .regex(HEX_256, { error: ({ input }) => (holdsKey(input) ? KEY_ITSELF : expected) })
    .transform((hex) => hex.toLowerCase());

/** Schema of keys that have no end: one hash, or several. */
export const apiKeySha256Schema = () =>
  oneOrMore(sha256('64 hex digits'), ({ input }) =>
    holdsKey(input) ? KEY_ITSELF : `${HASH}; or a list of them`,
  );

/** Schema of keys with their ends and notes. */
export const apiKeysSchema = () =>
  listOf(
    section({
      sha256: sha256(HASH).describe('The hash of the key.'),
      expires: instant()
        .exactOptional()
        .describe(
          'When the key ends: a date, from whose beginning in UTC the key is refused, or a time of RFC 3339. Without it the key has no end.',
        ),
      note: text('a note of 1 to 64 characters on one line', NOTE)
        .exactOptional()
        .describe(
          'What the key is called in metrics, the audit log and messages, such as who has it. Without it these show the first 8 digits of its hash. It is not secret.',
        ),
    }),
    'a list of at least one key, such as [{ sha256: HASH, expires: 2027-03-01 }]',
  );

/** Conditions of a client with API keys in both forms; undefined: what was refused. */
interface KeyedIdentify {
  readonly apiKeySha256?: readonly (string | undefined)[] | undefined;
  readonly apiKeys?:
    | readonly ({ readonly [Key in keyof ApiKey]: ApiKey[Key] | undefined } | undefined)[]
    | undefined;
}

/** Returns the API keys of a client in either form, each with its path below `identify`; a refused one is left out. */
export function* apiKeysOf(identify: KeyedIdentify): Generator<ApiKey & { readonly path: Path }> {
  for (const sha256 of identify.apiKeySha256 ?? []) {
    if (sha256 !== undefined) yield { sha256, path: ['apiKeySha256'] };
  }
  for (const [index, key] of (identify.apiKeys ?? []).entries()) {
    const { sha256, expires, note } = { ...key };
    if (sha256 !== undefined) yield { sha256, expires, note, path: ['apiKeys', index] };
  }
}

/** Hex digits of a hash that distinguish keys. */
export const SHOWN_DIGITS = 8;

/** Returns what a key is called: its note, or the first digits of its hash. */
export function keyName({ note, sha256 }: ApiKey): string {
  return note ?? sha256.slice(0, SHOWN_DIGITS);
}
