import { FieldNames, type RawHeaders } from '../base/raw-headers.ts';

const DIGITS = /^\d+$/;
const CLOSE = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i;
const KEEP_ALIVE = /(?:^|,)[ \t]*keep-alive[ \t]*(?:,|$)/i;

const FRAMING_FIELDS = new FieldNames(['content-length', 'transfer-encoding']);
const CONNECTION_FIELDS = new FieldNames(['connection', 'proxy-connection', 'keep-alive', 'upgrade']);

/**
 * Reads a Content-Length; undefined: it is not one number. A repeated one is a list (`joinedValue`), and so no number:
 * RFC 9110 §8.6 allows equal ones, but another program might choose another of them.
 */
export function contentLength(value: string): number | undefined {
  const length = DIGITS.test(value) ? Number(value) : Number.NaN;
  return Number.isSafeInteger(length) ? length : undefined;
}

/**
 * True if the connection persists behind a message (RFC 9112 §9.3).
 * @param options all values of Connection, possibly none; if they disagree, close wins
 */
export function persists(options: string, isHttp11: boolean): boolean {
  return !CLOSE.test(options) && (isHttp11 || KEEP_ALIVE.test(options));
}

/** True if these fields, which are trailers, say something about the length of the body. */
export function speaksOfFraming(trailers: RawHeaders): boolean {
  return hasOneOf(trailers, FRAMING_FIELDS);
}

/** True if these fields, which are trailers, say something about the connection. */
export function speaksOfConnection(trailers: RawHeaders): boolean {
  return hasOneOf(trailers, CONNECTION_FIELDS);
}

function hasOneOf(fields: RawHeaders, names: FieldNames): boolean {
  return fields.some((name, at) => at % 2 === 0 && names.has(name));
}
