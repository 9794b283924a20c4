/** A path into the configuration: names of keys, and indexes of lists. */
export type Path = readonly (string | number)[];

/** One thing that is wrong with the configuration, or should be changed. `message` never contains a secret. */
export interface Issue {
  readonly path: Path;
  /** Continues a sentence about the value at `path`, and ends with a remedy: `is empty: give a list`. */
  readonly message: string;
  /** Path of the key that the issue is about; undefined if it is about the value at `path`. */
  readonly key?: Path;
  /** Path of an earlier value that the issue is about, too. Its place is added to the message. */
  readonly other?: Path;
}

/** An issue with its place in the configuration file. Line and column count from 1. */
export interface LocatedIssue {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** Such as `deployments.submissions.digest.algorithms[0]`; empty for the whole file. */
  readonly path: string;
  readonly message: string;
}

/** An invalid configuration. The message contains every issue, one on each line, in the order of each file. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly issues: readonly LocatedIssue[];

  constructor(issues: readonly LocatedIssue[]) {
    const byFile = Map.groupBy(issues, ({ file }) => file);
    const sorted = [...byFile.values()].flatMap((of) =>
      of.toSorted((a, b) => a.line - b.line || a.column - b.column),
    );
    // One cause can produce equal issues: a broken bracket, or a value that an alias repeats.
    const distinct = new Map(sorted.map((issue) => [formatIssue(issue), issue]));
    super([...distinct.keys()].join('\n'));
    this.issues = [...distinct.values()];
  }
}

/** Formats an issue as `file:line:column path: message`. */
export function formatIssue({ file, line, column, path, message }: LocatedIssue): string {
  return `${file}:${line}:${column} ${path === '' ? '(file)' : path}: ${message}`;
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
