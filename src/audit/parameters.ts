/** Bounds of what one request can put into a record: it is the client who chooses it. */
const MOST_PARAMETERS = 32;
const LONGEST_NAME = 64;
const LONGEST_VALUE = 512;
const LONGEST_PATH = 2048;

/** By name: the value, or the values, of a parameter that is recorded by value; null: by name only. */
export type RecordedParameters = Map<string, string | string[] | null>;

export interface RecordedTarget {
  readonly path: string;
  readonly parameters: RecordedParameters;
  /** Whether something was too long or too much, and left out. */
  readonly cut: boolean;
}

/** A request's target as it is recorded: the path as it was sent, and the query by name and value. */
export function recordedTarget(target: string, byValue: ReadonlySet<string>): RecordedTarget {
  const question = target.indexOf('?');
  const path = question === -1 ? target : target.slice(0, question);
  const parameters: RecordedParameters = new Map();
  const cut = question !== -1 && collect(target, question + 1, byValue, parameters);
  if (path.length <= LONGEST_PATH) return { path, parameters, cut };
  return { path: path.slice(0, LONGEST_PATH), parameters, cut: true };
}

/** Reads the query from `start` on into `into`; true: not all of it was taken. */
function collect(
  target: string,
  start: number,
  byValue: ReadonlySet<string>,
  into: RecordedParameters,
): boolean {
  let cut = false;
  let count = 0;
  for (let from = start; from < target.length; ) {
    const end = indexOrEnd(target, '&', from);
    count += 1;
    if (count > MOST_PARAMETERS) return true;
    const equals = Math.min(indexOrEnd(target, '=', from), end);
    const name = decoded(target.slice(from, Math.min(equals, from + LONGEST_NAME)));
    if (byValue.has(name)) {
      add(into, name, decoded(target.slice(equals + 1, Math.min(end, equals + 1 + LONGEST_VALUE))));
      cut ||= end - equals - 1 > LONGEST_VALUE;
    } else {
      if (!into.has(name)) into.set(name, null);
    }
    cut ||= equals - from > LONGEST_NAME;
    from = end + 1;
  }
  return cut;
}

function add(into: RecordedParameters, name: string, value: string): void {
  const before = into.get(name);
  if (before === undefined || before === null) into.set(name, value);
  else if (typeof before === 'string') into.set(name, [before, value]);
  else before.push(value);
}

function indexOrEnd(text: string, mark: string, from: number): number {
  const index = text.indexOf(mark, from);
  return index === -1 ? text.length : index;
}

/** Without percent signs, or as it was sent if it is no UTF-8. */
function decoded(text: string): string {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
