import { FieldNames, joinedValue, type RawHeaders } from '../base/raw-headers.ts';

/** The API key of a request. */
export interface PresentedKey {
  /** With Basic: the client id that the request claims. */
  readonly id: string | undefined;
  readonly key: string;
}

/** The identity that the fields of a request present. */
export interface Presented {
  readonly key?: PresentedKey;
  /** The Bearer token (RFC 6750 §2.1). */
  readonly token?: string;
  /** The error in the fields; undefined if they can be read in one way only. */
  readonly malformed?: string;
}

const IDENTITY_FIELDS = new FieldNames(['x-api-key', 'authorization', 'proxy-authorization']);
/** RFC 9110 §11.4: a scheme, and behind spaces what belongs to it. */
const CREDENTIALS = /^([!#$%&'*+.^_`|~\w-]+)(?: +([^ ].*))?$/;
/** RFC 6750 §2.1. */
const TOKEN = /^[\w.~+/-]+=*$/;

/**
 * Returns the identity that a request presents; undefined if it presents none. A field that comes twice, a second key
 * or token, and any form but the one of the standard is malformed: somebody before the gateway may have read another
 * identity from it. Schemes but Basic, and Bearer where tokens are accepted, present nothing to the gateway.
 */
export function presentedIdentity(headers: RawHeaders, acceptsTokens: boolean): Presented | undefined {
  let found: Presented | undefined;
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const field = headers[at] ?? '';
    if (!IDENTITY_FIELDS.has(field)) continue;
    const read = readField(headers, field.toLowerCase(), headers[at + 1] ?? '', acceptsTokens);
    if (read !== undefined) found = found === undefined ? read : bothOf(found, read);
  }
  return found;
}

function bothOf(one: Presented, other: Presented): Presented {
  if (one.malformed !== undefined) return one;
  if (other.malformed !== undefined) return other;
  if (one.key !== undefined && other.key !== undefined) return { malformed: 'two API keys' };
  if (one.token !== undefined && other.token !== undefined) return { malformed: 'two Bearer tokens' };
  return { ...one, ...other };
}

function readField(
  headers: RawHeaders,
  name: string,
  value: string,
  acceptsTokens: boolean,
): Presented | undefined {
  if (joinedValue(headers, name) !== value) return { malformed: `${name} twice` };
  return name === 'x-api-key' ? readKey(value) : readCredentials(name, value, acceptsTokens);
}

function readKey(key: string): Presented {
  return key === '' ? { malformed: 'an empty API key' } : { key: { id: undefined, key } };
}

function readCredentials(field: string, value: string, acceptsTokens: boolean): Presented | undefined {
  const [, scheme, credentials = ''] = CREDENTIALS.exec(value) ?? [];
  switch (scheme?.toLowerCase()) {
    case undefined:
      return { malformed: `a malformed ${field}` };
    case 'basic':
      return readBasic(credentials);
    case 'bearer':
      if (!acceptsTokens) return undefined;
      return TOKEN.test(credentials) ? { token: credentials } : { malformed: 'a malformed Bearer token' };
    default:
      return undefined;
  }
}

/** RFC 7617 §2. Base64 has one form for each text: Node.js alone would also read others. */
function readBasic(credentials: string): Presented {
  const bytes = Buffer.from(credentials, 'base64');
  const pair = bytes.toString('utf8');
  const colon = pair.indexOf(':');
  if (colon < 1 || colon === pair.length - 1 || bytes.toString('base64') !== credentials) {
    return { malformed: 'malformed Basic credentials' };
  }
  return { key: { id: pair.slice(0, colon), key: pair.slice(colon + 1) } };
}
