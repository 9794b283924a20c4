/** A way into the configuration: names of keys, and indexes of lists. */
export type Path = readonly (string | number)[];

/** Something to say about one place of the configuration. `message` never holds a secret. */
export interface Finding {
  path: Path;
  message: string;
}

/** A finding against a value; with `key`, against the key at that path. */
export interface Complaint extends Finding {
  key?: Path;
}

/** What is wrong in a configuration file, and what would be right. Line and column count from 1. */
export interface Fault {
  file: string;
  line: number;
  column: number;
  /** Such as `deployments.submissions.digest.algorithms[0]`; empty for the file as a whole. */
  path: string;
  message: string;
}

/** A configuration that cannot be used. The message holds every fault, one a line. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly faults: readonly Fault[];

  constructor(faults: readonly Fault[]) {
    const sorted = faults.toSorted((a, b) => a.line - b.line || a.column - b.column);
    // One cause can come up more than once: a broken bracket, or a value that an alias repeats.
    const distinct = new Map(sorted.map((fault) => [formatFault(fault), fault]));
    super([...distinct.keys()].join('\n'));
    this.faults = [...distinct.values()];
  }
}

/** `file:line:column path: what, and what would be right` */
export function formatFault(fault: Fault): string {
  const path = fault.path === '' ? '(file)' : fault.path;
  return `${fault.file}:${fault.line}:${fault.column} ${path}: ${fault.message}`;
}

/** `a.b[0]["odd name"]` */
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
