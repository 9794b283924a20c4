import type { ParameterLimit, Rule } from '../policy/rules.ts';
import { AMBIGUOUS, type RecordedRequest } from './replay.ts';

/** Values of a parameter that are kept at most; with more, a rule does not list them. */
const MAX_VALUES = 1_000;

/** A value that a rule can name; the empty one is none. */
const NAMEABLE = /./u;

/** The values of a parameter, as far as they are known. */
export interface Values {
  /** Infinite: it is not known. */
  max: number;
  /** Undefined: there are too many, or they are not known. */
  values: Set<string> | undefined;
  isMissing: boolean;
  /** True: no present rule limits a value that is not recorded, or a limit would refuse its request. */
  isUnlimited: boolean;
}

/** The limit of the same kind that just allows a value; undefined: it is not known, or there is none. */
function justLimit(
  { name, max, values }: ParameterLimit,
  value: RecordedRequest['parameters'][string] | undefined,
): ParameterLimit | undefined {
  if (typeof value !== 'string' || AMBIGUOUS.test(value)) return undefined;
  const items = Array.from(value.matchAll(/'([^']*)'/g), ([, item = '']) => item);
  const isList = value.startsWith("'");
  const listed = isList ? items : [value];
  return {
    name,
    max: max === undefined || !isList ? undefined : value.split(',').length,
    values: values && listed.every((each) => NAMEABLE.test(each)) ? new Set(listed) : undefined,
  };
}

/**
 * The limits that a value of a parameter needs. For one that is not known, or that did not come, they are within those
 * of the present rules that may have allowed the request: without a limit, a rule takes requests from those behind it.
 */
export function limitsOf(
  limit: ParameterLimit,
  value: RecordedRequest['parameters'][string] | undefined,
  allowing: readonly Rule[],
): readonly ParameterLimit[] {
  const just = justLimit(limit, value);
  if (just !== undefined) return [just];
  const { name } = limit;
  const own = allowing.flatMap(({ parameters }) => parameters.find((each) => each.name === name) ?? []);
  if (own.length < allowing.length) return [];
  if (value !== undefined) return own;
  return own.some(({ max }) => max !== undefined) ? [{ name, max: 1, values: undefined }] : [];
}

/** Adds the limits that a request needs to what is known of its parameter. */
export function addValues(
  known: Map<string, Values>,
  name: string,
  just: readonly ParameterLimit[],
  isUnlimited: boolean,
): void {
  const before = known.get(name) ?? { max: 0, values: new Set(), isMissing: false, isUnlimited: false };
  known.set(name, before);
  before.isUnlimited ||= isUnlimited;
  before.isMissing ||= just.length === 0;
  for (const { max = Number.POSITIVE_INFINITY, values } of just) {
    before.max = Math.max(before.max, max);
    if (values === undefined) before.values = undefined;
    for (const each of values ?? []) before.values?.add(each);
  }
  if (before.values !== undefined && before.values.size > MAX_VALUES) before.values = undefined;
}
