/** A path into the configuration: names of keys, and indexes of lists. */
export type Path = readonly (string | number)[];

/** A message about one place of the configuration. `message` never contains a secret. */
export interface Finding {
  path: Path;
  message: string;
}

/** An issue with a value or, if `key` is set, with the key at that path. */
export interface Complaint extends Finding {
  key?: Path;
}

/** An issue with its place in the configuration file. Line and column count from 1. */
export interface Fault {
  file: string;
  line: number;
  column: number;
  /** Such as `deployments.submissions.digest.algorithms[0]`; empty for the whole file. */
  path: string;
  message: string;
}

/** An invalid configuration. The message contains every issue, one on each line. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly faults: readonly Fault[];

  constructor(faults: readonly Fault[]) {
    const sorted = faults.toSorted((a, b) => a.line - b.line || a.column - b.column);
    // One cause can produce equal issues: a broken bracket, or a value that an alias repeats.
    const distinct = new Map(sorted.map((fault) => [formatFault(fault), fault]));
    super([...distinct.keys()].join('\n'));
    this.faults = [...distinct.values()];
  }
}

/** Formats an issue as `file:line:column path: message`. */
export function formatFault(fault: Fault): string {
  const path = fault.path === '' ? '(file)' : fault.path;
  return `${fault.file}:${fault.line}:${fault.column} ${path}: ${fault.message}`;
}

/** Formats a path as `a.b[0]["odd name"]`. */
export function formatPath(path: Path): string {
  let text = '';
  for (const segment of path) {
    if (typeof segment === 'string' && /^[\w-]+$/.test(segment)) {
      text += text === '' ? segment : `.${segment}`;
    } else {
      text += `[${JSON.stringify(segment)}]`;
    }
  }
  return text;
}
