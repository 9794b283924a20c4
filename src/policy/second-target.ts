import type { RawHeaders } from '../base/raw-headers.ts';

/** Headers that some servers and frameworks use as method or target instead of the request line. */
const OVERRIDES: ReadonlySet<string> = new Set([
  '-method',
  'x-forwarded-method',
  'x-forwarded-uri',
  'x-original-method',
  'x-original-uri',
  'x-http-method',
  'x-http-method-override',
  'x-method-override',
  'x-original-url',
  'x-rewrite-url',
]);

/** The parameter, and for some frameworks the header, that overrides the method. */
export const METHOD = '_method';

/** Content types whose fields many servers mix with the parameters of the query. */
const FORMS = ['application/x-www-form-urlencoded', 'multipart/form-data'];

const CONTENT_TYPE = 'content-type';

/** First characters and lengths of the names above and of Content-Type; they rule out most headers at once. */
const STARTS: ReadonlySet<string> = new Set('xXcC_-');
const LENGTHS: ReadonlySet<number> = new Set(
  Array.from([...OVERRIDES, CONTENT_TYPE], ({ length }) => length),
);

/** Parts of a request that a server could use instead of the request line. */
export interface SecondTarget {
  /** True for another method or path. */
  readonly override: boolean;
  /** True for additional parameters. */
  readonly form: boolean;
}

/** @param headers flat list: name, value, name, value … */
export function secondTarget(headers: RawHeaders): SecondTarget {
  let override = false;
  let form = false;
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const written = headers[index] ?? '';
    if (!LENGTHS.has(written.length) || !STARTS.has(written.charAt(0))) continue;
    // CGI maps `_` and `-` to the same character.
    const name = written.toLowerCase().replaceAll('_', '-');
    if (OVERRIDES.has(name)) override = true;
    else if (name === CONTENT_TYPE) form ||= isForm(headers[index + 1] ?? '');
  }
  return { override, form };
}

function isForm(contentType: string): boolean {
  const type = contentType.trim().toLowerCase();
  return FORMS.some((known) => type.includes(known));
}
