/**
 * Content types that no server is known to read as a form. Many servers mix the fields of forms with the parameters of
 * the query; some read a body without a type, or of text/plain, as a form.
 */
const NO_FORMS: ReadonlySet<string> = new Set([
  ...['application/json', 'application/ndjson', 'application/x-ndjson', 'application/jsonl'],
  ...['application/xml', 'text/xml', 'text/csv', 'application/octet-stream', 'application/pdf'],
  ...['application/zip', 'application/gzip', 'application/cbor', 'application/msgpack'],
  ...['application/x-msgpack', 'application/protobuf', 'application/x-protobuf', 'application/sparql-query'],
]);
const NO_FORM_KINDS: ReadonlySet<string> = new Set(['image', 'audio', 'video', 'font', 'model']);
const NO_FORM_SUFFIXES = ['+json', '+xml', '+zip', '+cbor'];
/** RFC 9110 §8.3.1, in lower case. */
const TYPE = /^([a-z\d!#$&^_.+-]+)\/([a-z\d!#$&^_.+-]+)$/;

/** Some servers search the whole value for the type of a form. */
const FORM_WORDS = ['urlencoded', 'url-encoded', 'form-data', 'multipart/'];

/** Returns the content types that are not taken for forms: the known ones and these. */
export function noForms(more: readonly string[]): ReadonlySet<string> {
  return more.length === 0 ? NO_FORMS : new Set([...NO_FORMS, ...more.map((type) => type.toLowerCase())]);
}

/**
 * True if the body is no form for any server.
 * @param contentType the value; values of several lines have commas between them, and are none
 */
export function isNoForm(contentType: string | undefined, known: ReadonlySet<string>): boolean {
  if (contentType === undefined) return false;
  const value = contentType.toLowerCase();
  const semicolon = value.indexOf(';');
  const type = (semicolon === -1 ? value : value.slice(0, semicolon)).trimEnd();
  const rest = value.slice(type.length);
  if (rest.includes(',') || FORM_WORDS.some((word) => rest.includes(word))) return false;
  if (known.has(type)) return true;
  if (FORM_WORDS.some((word) => type.includes(word))) return false;
  const parts = TYPE.exec(type);
  if (parts === null) return false;
  const [, kind = '', subtype = ''] = parts;
  return NO_FORM_KINDS.has(kind) || NO_FORM_SUFFIXES.some((suffix) => subtype.endsWith(suffix));
}
