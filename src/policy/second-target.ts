/** Headers that some servers and frameworks take for the method or target, instead of the request line. */
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

/** The parameter, and of some the header, that many frameworks take for the method. */
export const METHOD = '_method';

/** Bodies whose fields many servers mix with the parameters of the query. */
const FORMS = ['application/x-www-form-urlencoded', 'multipart/form-data'];

/** What a server could go by instead of the request line. */
export interface SecondTarget {
  /** Another method or path. */
  readonly override: boolean;
  /** More parameters. */
  readonly form: boolean;
}

/** @param headers flat list: name, value, name, value … */
export function secondTarget(headers: readonly string[]): SecondTarget {
  let override = false;
  let form = false;
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const written = headers[index] ?? '';
    // Nothing of these lengths is among them, and most headers end here.
    if ((written.length < 12 && written.length !== METHOD.length) || written.length > 22) continue;
    // CGI and its kind cannot tell the two apart.
    const name = written.toLowerCase().replaceAll('_', '-');
    if (OVERRIDES.has(name)) override = true;
    else if (name === 'content-type') form ||= isForm(headers[index + 1] ?? '');
  }
  return { override, form };
}

function isForm(contentType: string): boolean {
  const type = contentType.trim().toLowerCase();
  return FORMS.some((known) => type.includes(known));
}
