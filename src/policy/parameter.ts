import { parameterInvalid } from './query.ts';

/** Kinds of parameter values. */
export const PARAMETER_KINDS = ['quoted-list', 'digits', 'site', 'text'] as const;

export type ParameterKind = (typeof PARAMETER_KINDS)[number];

/** A kind in the configuration; a question mark makes the parameter optional. */
export type ParameterForm = ParameterKind | `${ParameterKind}?`;

/** One parameter of an operation. */
export interface Parameter {
  readonly name: string;
  readonly kind: ParameterKind;
  readonly optional: boolean;
}

/** Descriptions of the kinds, for error messages and the OpenAPI document. */
export const FORMS: Readonly<Record<ParameterKind, string>> = {
  'quoted-list': "identifiers in single quotes, with commas between them: 'A-1' or 'A-1','A-2'",
  digits: 'digits only',
  site: 'the name of a site',
  text: 'text that is not empty',
};

/** Parses the form of a parameter, such as `digits?`. */
export function parameterOf(name: string, form: ParameterForm): Parameter {
  const kind = PARAMETER_KINDS.find((known) => form.startsWith(known)) ?? 'text';
  return { name, kind, optional: form.endsWith('?') };
}

/**
 * Checks a decoded value against the form of its parameter.
 * @throws GatewayError `parameter-invalid`
 */
export function checkForm({ name, kind }: Parameter, value: string): void {
  if (kind === 'quoted-list') checkList(name, value);
  else if (value === '' || (kind === 'digits' && !/^\d+$/.test(value))) throw malformed(name, kind);
}

/**
 * Returns the items of a decoded quoted list, without their quotes; at least one.
 * @throws GatewayError `parameter-invalid`
 */
export function itemsOf(name: string, value: string): string[] {
  const items: string[] = [];
  checkList(name, value, items);
  return items;
}

/**
 * Checks a decoded quoted list, which has at least one item.
 * @param items gets them, without their quotes
 * @throws GatewayError `parameter-invalid`
 */
export function checkList(name: string, value: string, items?: string[]): void {
  // A remaining escape, also as %u0027, could become a quote or comma in a server that decodes twice.
  if (/%(?:u|[\da-f]{2})/i.test(value)) throw parameterInvalid(name, 'is encoded twice: encode it once');
  let start = 0;
  for (;;) {
    const end = value[start] === "'" ? value.indexOf("'", start + 1) : -1;
    if (end <= start + 1) throw malformed(name, 'quoted-list');
    items?.push(value.slice(start + 1, end));
    if (end + 1 === value.length) return;
    if (value[end + 1] !== ',') throw malformed(name, 'quoted-list');
    start = end + 2;
  }
}

/** Creates the error for a missing parameter: `parameter-invalid`. */
export function missing({ name, kind }: Parameter): Error {
  return parameterInvalid(name, `is missing: give ${FORMS[kind]}`);
}

function malformed(name: string, kind: ParameterKind): Error {
  return parameterInvalid(name, `does not have the expected form: ${FORMS[kind]}`);
}
