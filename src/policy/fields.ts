import { FieldNames, type RawHeaders } from '../base/raw-headers.ts';

/** The context of a trace (W3C Trace Context §3, W3C Baggage §3, its draft; B3, cloud providers, vendors, gRPC). */
export const TRACE_FIELDS: readonly string[] = [
  ...['traceparent', 'tracestate', 'baggage', 'correlation-context'],
  ...['b3', 'x-b3-traceid', 'x-b3-spanid', 'x-b3-parentspanid', 'x-b3-sampled', 'x-b3-flags'],
  ...['x-amzn-trace-id', 'x-cloud-trace-context', 'uber-trace-id', 'sentry-trace'],
  ...['elastic-apm-traceparent', 'grpc-trace-bin', 'newrelic'],
];

/**
 * Fields that say nothing of the target: content, negotiation, conditions, ranges, caches, traces, and what browsers
 * add. Any other name can be one that some server, framework or proxy takes for another method, path or host.
 */
const USUAL_NAMES = [
  ...['accept', 'accept-charset', 'accept-datetime', 'accept-encoding', 'accept-language', 'user-agent'],
  ...['content-type', 'content-length', 'content-encoding', 'content-language', 'content-disposition'],
  ...['content-digest', 'content-md5', 'content-range', 'digest', 'repr-digest'],
  ...['want-content-digest', 'want-digest', 'want-repr-digest', 'signature', 'signature-input'],
  ...['if-match', 'if-none-match', 'if-modified-since', 'if-unmodified-since', 'if-range', 'range'],
  ...['cache-control', 'pragma', 'priority', 'prefer', 'idempotency-key', 'max-forwards', 'via', 'date'],
  ...['x-request-id', 'request-id', 'x-correlation-id', 'correlation-id'],
  ...TRACE_FIELDS,
  ...['origin', 'referer', 'access-control-request-method', 'access-control-request-headers'],
  ...[
    'x-requested-with',
    'upgrade-insecure-requests',
    'dnt',
    'sec-gpc',
    'save-data',
    'purpose',
    'sec-purpose',
  ],
  ...['sec-fetch-dest', 'sec-fetch-mode', 'sec-fetch-site', 'sec-fetch-user', 'sec-fetch-storage-access'],
  ...['sec-ch-ua', 'sec-ch-ua-mobile', 'sec-ch-ua-platform'],
];
const USUAL = new FieldNames(USUAL_NAMES);

/** Fields that servers, frameworks and proxies use as method, path or host instead of the request line and Host. */
const OVERRIDES = new FieldNames([
  ...[
    '_method',
    '-method',
    'x-http-method',
    'x-http-method-override',
    'x-method-override',
    'x-tunneled-method',
  ],
  ...['x-original-method', 'x-forwarded-method', 'x-original-url', 'x-original-uri', 'x-original-path'],
  ...['x-rewrite-url', 'x-rewrite-uri', 'x-forwarded-uri', 'x-forwarded-url', 'x-forwarded-path'],
  ...['x-envoy-original-path', 'x-envoy-original-dst-host', 'x-host'],
  // CGI variables, which gunicorn takes from a field; and the second target of COPY and MOVE (RFC 4918 §10.3).
  ...['script-name', 'path-info', 'request-uri', 'request-method', 'query-string', 'destination'],
]);

const CONTENT_TYPE = 'content-type';

/** True if the field can name another method, path or host, in any spelling that CGI takes for the same. */
export function isOverride(name: string): boolean {
  return OVERRIDES.has(name) || OVERRIDES.resemble(name);
}

/** Returns the fields that restricted clients may send: the usual ones and these. */
export function allowedFields(more: readonly string[]): FieldNames {
  if (more.length === 0) return USUAL;
  return new FieldNames([...USUAL_NAMES, ...more.map((name) => name.toLowerCase())]);
}

/** The fields of a request as restricted clients may send them. */
export interface JudgedFields {
  /** Those that are allowed. */
  readonly kept: RawHeaders;
  /** True if one of the others can name another method or path. */
  readonly override: boolean;
  /**
   * True if servers could read other parameters than those of the query as it is: from the body, unless it has one
   * content type that has none, or by another charset.
   */
  readonly form: boolean;
}

/** Judges fields, which are those that the upstream gets, without the ones that Connection lists. */
export function judgeFields(
  { headers, hasBody }: { readonly headers: RawHeaders; readonly hasBody: boolean },
  { fields, bodyTypes }: { readonly fields: FieldNames; readonly bodyTypes: ReadonlySet<string> },
): JudgedFields {
  // Undefined: all fields so far.
  let kept: string[] | undefined;
  let override = false;
  let contentType: string | undefined;
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = headers[index] ?? '';
    const value = headers[index + 1] ?? '';
    if (!fields.has(name)) {
      override ||= isOverride(name);
      kept ??= headers.slice(0, index);
      continue;
    }
    kept?.push(name, value);
    if (name.length !== CONTENT_TYPE.length || name.toLowerCase() !== CONTENT_TYPE) continue;
    contentType = contentType === undefined ? value : `${contentType},${value}`;
  }
  const type = contentType?.toLowerCase();
  const form = (hasBody && !isNoForm(type, bodyTypes)) || (type !== undefined && hasOtherCharset(type));
  return { kept: kept ?? headers, override, form };
}

/** A charset in which ASCII means ASCII. */
const ASCII_CHARSET = /charset="?(?:utf-8|us-ascii|iso-8859-\d{1,2}|windows-125\d)"?(?=[\s;,]|$)/g;

/** True if a content type, in lower case, may have another charset. Django and ASP.NET read the query by it, too. */
function hasOtherCharset(type: string): boolean {
  return type.includes('charset') && type.replaceAll(ASCII_CHARSET, '').includes('charset');
}

/**
 * Content types that no server is known to read as a form. Many servers mix the fields of forms with the parameters of
 * the query; some read a body without a type, or of text/plain, as a form. Members of a JSON object and elements of XML
 * count like fields: Express 4 and Slim 3 look for a parameter in the parsed body before the query.
 */
const NO_FORMS: ReadonlySet<string> = new Set([
  ...['application/ndjson', 'application/x-ndjson', 'text/csv', 'application/octet-stream'],
  ...['application/pdf', 'application/zip', 'application/gzip', 'application/cbor', 'application/msgpack'],
  ...['application/x-msgpack', 'application/protobuf', 'application/x-protobuf', 'application/sparql-query'],
]);
const NO_FORM_KINDS: ReadonlySet<string> = new Set(['image', 'audio', 'video', 'font', 'model']);
const NO_FORM_SUFFIXES = ['+zip', '+cbor'];
/** RFC 9110 §8.3.1, in lower case. */
const TYPE = /^([a-z\d!#$&^_.+-]+)\/([a-z\d!#$&^_.+-]+)$/;

/** Some servers search the whole value for the type of a form. */
const FORM_WORDS = ['urlencoded', 'url-encoded', 'form-data', 'multipart/'];

/** Returns the content types that are not taken for forms: the known ones and these. */
export function noForms(more: readonly string[]): ReadonlySet<string> {
  return more.length === 0 ? NO_FORMS : new Set([...NO_FORMS, ...more.map((type) => type.toLowerCase())]);
}

/**
 * True if no server takes the body for a form.
 * @param value the content type in lower case; values of several lines have commas between them, and are none
 */
function isNoForm(value: string | undefined, known: ReadonlySet<string>): boolean {
  if (value === undefined) return false;
  const semicolon = value.indexOf(';');
  const type = (semicolon === -1 ? value : value.slice(0, semicolon)).trimEnd();
  const rest = value.slice(type.length);
  if (rest.includes(',') || FORM_WORDS.some((word) => rest.includes(word))) return false;
  if (known.has(type)) return isJson(type) || !isJson(rest);
  if (isJson(value) || FORM_WORDS.some((word) => type.includes(word))) return false;
  const parts = TYPE.exec(type);
  if (parts === null) return false;
  const [, kind = '', subtype = ''] = parts;
  // Slim reads image/svg+xml by its suffix.
  if (subtype.includes('+')) return NO_FORM_SUFFIXES.some((suffix) => subtype.endsWith(suffix));
  return NO_FORM_KINDS.has(kind);
}

/** True if Laravel takes a body for JSON: it searches the whole value. */
function isJson(text: string): boolean {
  return text.includes('/json') || text.includes('+json');
}
