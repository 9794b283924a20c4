import type { ParameterLimit } from '../policy/rules.ts';
import type { RecordedRequest } from './replay.ts';

/** Values of a parameter that are kept at most; with more, a rule does not list them. */
const MAX_VALUES = 1_000;
/** Characters that a record has in the same way for two spellings. */
const AMBIGUOUS = /[%+]/;

/** A value that a rule can name; the empty one is none. */
const NAMEABLE = /./u;

/** The values of a parameter, as far as they are known. */
export interface Values {
  max: number;
  /** Undefined: there are too many. */
  values: Set<string> | undefined;
  isMissing: boolean;
  /** True: a value is not recorded, or a limit would refuse its request. */
  isUnlimited: boolean;
}

/** The limit of the same kind that just allows a value; undefined: it is not known, or there is none. */
export function justLimit(
  { name, max, values }: ParameterLimit,
  value: RecordedRequest['parameters'][string] | undefined,
): ParameterLimit | undefined {
  if (typeof value !== 'string' || AMBIGUOUS.test(value)) return undefined;
  const items = Array.from(value.matchAll(/'([^']*)'/g), ([, item = '']) => item);
  const listed = value.startsWith("'") ? items : [value];
  return {
    name,
    max: max === undefined ? undefined : value.split(',').length,
    values: values && listed.every((each) => NAMEABLE.test(each)) ? new Set(listed) : undefined,
  };
}

/** Adds the limit that just allows the value of a request to what is known of its parameter. */
export function addValues(
  known: Map<string, Values>,
  name: string,
  just: ParameterLimit | undefined,
  isUnlimited: boolean,
): void {
  const before = known.get(name) ?? { max: 0, values: new Set(), isMissing: false, isUnlimited: false };
  known.set(name, before);
  before.isUnlimited ||= isUnlimited;
  before.max = Math.max(before.max, just?.max ?? 0);
  before.isMissing ||= just === undefined;
  if (just !== undefined && just.values === undefined) before.values = undefined;
  for (const each of just?.values ?? []) before.values?.add(each);
  if (before.values !== undefined && before.values.size > MAX_VALUES) before.values = undefined;
}
