import {
  type Alias,
  type Document,
  isAlias,
  isCollection,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  parseDocument,
  type YAMLMap,
} from 'yaml';
import { getOrInsert } from '../base/maps.ts';
import { formatPath, type Issue, type LocatedIssue, type Path } from './issues.ts';

/** A parsed YAML text with the source positions of its keys and values. */
export interface YamlSource {
  /** The parsed value; undefined if the syntax is too broken. */
  readonly value: unknown;
  readonly syntaxIssues: readonly LocatedIssue[];
  /**
   * Locates an issue: at its key; else at the value of its path, or at that value's key if the value is
   * empty. If the path does not exist, at the last existing key of it.
   */
  locate(issue: Issue): LocatedIssue;
}

/**
 * Messages for the parser's error codes. The parser's own messages quote the surrounding text, which may
 * contain a password.
 */
const SYNTAX: Readonly<Record<string, string>> = {
  ALIAS_PROPS: 'an alias can have neither anchor nor tag: leave them out',
  BAD_ALIAS:
    'an anchor or alias has no name, or one that YAML does not allow: put text with & or * in quotes',
  BAD_COLLECTION_TYPE: 'a tag does not fit its value: leave the tag out',
  BAD_DIRECTIVE: 'a line that starts with % is a directive that is not known: leave it out',
  BAD_DQ_ESCAPE: 'a backslash in double quotes starts no known escape: write \\\\, or use single quotes',
  BAD_INDENT:
    'the indentation does not fit: keys of one mapping start in the same column, brackets are closed',
  BAD_SCALAR_START: 'a plain text cannot start with @, ` or %: put it in quotes',
  BLOCK_AS_IMPLICIT_KEY: 'a second ": " on one line: put the text in quotes, or start a new line',
  MISSING_CHAR: 'a quote, bracket, comma or colon is missing: close what is open, write ": " after a key',
  MULTILINE_IMPLICIT_KEY:
    'a ": " is missing, or a key goes over several lines: write "key: value" on one line',
  MULTIPLE_DOCS: 'a second document starts here: keep one document in the file',
  NON_STRING_KEY: 'a key is not a text: write a plain word',
  RESOURCE_EXHAUSTION: 'the nesting is too deep',
  TAB_AS_INDENT: 'the indentation contains a tab: use spaces',
  TAG_RESOLVE_FAILED: 'the tag is not known: leave it out, or put text that starts with ! in quotes',
};

/** Codes of errors behind which the parser still reads the rest of the text right. */
const LOCAL: ReadonlySet<string> = new Set([
  'BAD_ALIAS',
  'BAD_DIRECTIVE',
  'BAD_DQ_ESCAPE',
  'BAD_SCALAR_START',
  'TAG_RESOLVE_FAILED',
]);

const OTHER_SYNTAX = 'this is not YAML: write "key: value", one on a line';

/** Reads YAML. Never throws: errors are in `syntaxIssues`. */
export function readYaml(text: string, file: string): YamlSource {
  const lines = new LineCounter();
  const document = parseDocument(text, {
    lineCounter: lines,
    prettyErrors: false,
    stringKeys: true,
    // The parser compares each pair of keys; `scanNodes` visits each key once.
    uniqueKeys: false,
  });

  const located = (offset: number, path: Path, message: string): LocatedIssue => {
    const { line, col } = lines.linePos(offset);
    return { file, line: Math.max(line, 1), column: Math.max(col, 1), path: formatPath(path), message };
  };

  const { repeatedKeys, danglingAliases, unclosed, targets } = scanNodes(document, text);
  const faults = syntaxFaults(document, text, unclosed);
  // Behind a structural error, these may only follow from it.
  const isReadable = faults.every(({ isLocal }) => isLocal);
  const syntaxIssues = faults.map(({ offset, message }) => located(offset, [], message));
  for (const offset of isReadable ? danglingAliases : []) {
    syntaxIssues.push(
      located(offset, [], 'the alias has no anchor before it: put text that starts with * in quotes'),
    );
  }

  let value: unknown;
  // After a duplicate key the rest is still reliable; after any other error it is not.
  if (syntaxIssues.length === 0) {
    try {
      value = document.toJS();
    } catch {
      // The parser limits the expansion of nested aliases.
      syntaxIssues.push(located(0, [], 'aliases or nesting go too deep: write the values out'));
    }
  }
  for (const { offset, first } of isReadable ? repeatedKeys : []) {
    const { line } = lines.linePos(first);
    // Without its name, which may be a password: `password: { hunter2, hunter2 }`.
    const message = `this key comes twice in its mapping, first in line ${line}: keep one of them`;
    syntaxIssues.push(located(offset, [], message));
  }

  const positions = new Positions(document, targets);
  return {
    value,
    syntaxIssues,
    locate: ({ path, key, message }) => {
      const offset = key === undefined ? positions.offsetOf(path, 'value') : positions.offsetOf(key, 'key');
      return located(offset, path, message);
    },
  };
}

interface Fault {
  readonly offset: number;
  readonly message: string;
  readonly isLocal: boolean;
}

/**
 * Returns the syntax errors in the order of the text, up to the first one that breaks the structure: the
 * parser's errors after it follow from it. An open bracket or quote, which the parser reports where the text
 * ends, is one at its start.
 */
function syntaxFaults(document: Document, text: string, unclosed: readonly number[]): readonly Fault[] {
  const errors = [...document.errors, ...document.warnings];
  const blocks = new Set(errors.flatMap(({ code, pos }) => (code === 'BLOCK_AS_IMPLICIT_KEY' ? pos[0] : [])));
  // The parser has two errors for a line that is indented too far.
  const distinct = errors.filter(({ code, pos }) => code !== 'MULTILINE_IMPLICIT_KEY' || !blocks.has(pos[0]));
  const faults = [
    // Before an error of the parser at the same place.
    ...unclosed.slice(-1).map((offset) => {
      const what = /["']/.test(text.charAt(offset)) ? 'quote' : 'bracket';
      return { offset, message: `the ${what} that opens here is not closed: close it`, isLocal: false };
    }),
    ...distinct.map(({ code, pos }) => faultOf(code, pos[0], text)),
  ].sort((a, b) => a.offset - b.offset);
  const broken = faults.findIndex(({ isLocal }) => !isLocal);
  return broken === -1 ? faults : faults.slice(0, broken + 1);
}

function faultOf(code: string, offset: number, text: string): Fault {
  const message = SYNTAX[code] ?? OTHER_SYNTAX;
  if (code === 'UNEXPECTED_TOKEN' && /[\]}]/.test(text.charAt(offset))) {
    return { offset, message: 'the bracket that closes here was not opened: remove it', isLocal: false };
  }
  if (code !== 'BLOCK_AS_IMPLICIT_KEY') return { offset, message, isLocal: LOCAL.has(code) };
  const start = text.lastIndexOf('\n', offset - 1) + 1;
  const [line = ''] = text.slice(start).split('\n', 1);
  if (/: .*:(?:\s|$)/.test(line)) return { offset, message, isLocal: true };
  // The parser read a line that is indented too far as a part of the value above it.
  const below = start + line.length + 1;
  const isAbove = line.includes(': ') && below < text.length;
  const cause = isAbove ? below + text.slice(below).search(/\S|$/) : offset;
  return { offset: cause, message: SYNTAX['BAD_INDENT'] ?? OTHER_SYNTAX, isLocal: false };
}

interface NodeScan {
  /** Offsets of duplicate keys, each with that of the first one. */
  readonly repeatedKeys: readonly {
    readonly offset: number;
    readonly first: number;
  }[];
  /** Offsets of aliases without an earlier anchor. */
  readonly danglingAliases: readonly number[];
  /** Offsets of brackets and quotes that are not closed; an inner one after those around it. */
  readonly unclosed: readonly number[];
  /** Targets of the other aliases. */
  readonly targets: ReadonlyMap<Alias, Node>;
}

/** Visits each node once, in the order of the text: an alias refers to the latest anchor of its name. */
function scanNodes(document: Document, text: string): NodeScan {
  const anchors = new Map<string, Node>();
  const found = {
    repeatedKeys: [] as { offset: number; first: number }[],
    danglingAliases: [] as number[],
    unclosed: [] as number[],
    targets: new Map(),
  };
  const visit = (node: unknown): void => {
    if (isAlias(node)) {
      const target = anchors.get(node.source);
      if (target === undefined) found.danglingAliases.push(startOf(node));
      else found.targets.set(node, target);
      return;
    }
    if (isNode(node) && !isClosed(node, text)) found.unclosed.push(startOf(node));
    if ((isScalar(node) || isCollection(node)) && node.anchor !== undefined) anchors.set(node.anchor, node);
    if (isSeq(node)) for (const item of node.items) visit(item);
    if (isMap(node)) visitPairs(node.items);
  };
  const visitPairs = (pairs: readonly Pair[]): void => {
    const keys = new Map<unknown, number>();
    for (const { key, value } of pairs) {
      const name = isScalar(key) ? key.value : key;
      const first = keys.get(name);
      if (first === undefined) keys.set(name, startOf(key));
      else found.repeatedKeys.push({ offset: startOf(key), first });
      visit(key);
      visit(value);
    }
  };
  visit(document.contents);
  return found;
}

/** False for a node with an opening bracket or quote and no closing one. */
function isClosed(node: Node, text: string): boolean {
  const [start, end] = node.range ?? [0, 0];
  const closing = { '{': '}', '[': ']', '"': '"', "'": "'" }[text.charAt(start)];
  const isFlow = isCollection(node) ? node.flow === true : isScalar(node) && /^QUOTE/.test(node.type ?? '');
  return !isFlow || closing === undefined || (end - start > 1 && text.charAt(end - 1) === closing);
}

/** A value of the document with its key; list items and the root have none. */
interface Entry {
  readonly key: unknown;
  readonly value: unknown;
}

/** Source positions of keys and values. Each mapping on a path is indexed once. */
class Positions {
  readonly #root: Entry;
  readonly #targets: NodeScan['targets'];
  readonly #indexes = new Map<unknown, ReadonlyMap<string, Pair>>();

  constructor(document: Document, targets: NodeScan['targets']) {
    this.#root = { key: undefined, value: document.contents };
    this.#targets = targets;
  }

  offsetOf(path: Path, target: 'key' | 'value'): number {
    let entry = this.#root;
    for (const segment of path) {
      const next = this.#stepInto(entry.value, segment);
      if (next === undefined) {
        return startOf(isNode(entry.key) ? entry.key : entry.value);
      }
      entry = next;
    }
    const atKey = isNode(entry.key) && (target === 'key' || isEmpty(entry.value));
    return startOf(atKey ? entry.key : entry.value);
  }

  #stepInto(value: unknown, segment: string | number): Entry | undefined {
    const parent = isAlias(value) ? this.#targets.get(value) : value;
    if (isMap(parent)) return this.#indexOf(parent).get(String(segment));
    if (isSeq(parent) && typeof segment === 'number' && segment < parent.items.length) {
      return { key: undefined, value: parent.items[segment] };
    }
    return undefined;
  }

  #indexOf(map: YAMLMap): ReadonlyMap<string, Pair> {
    // The last of duplicate keys counts.
    const entries = ({ items }: YAMLMap): [string, Pair][] =>
      items.flatMap((pair) => (isScalar(pair.key) ? [[String(pair.key.value), pair]] : []));
    return getOrInsert(this.#indexes, map, () => new Map(entries(map)));
  }
}

function startOf(node: unknown): number {
  return isNode(node) ? (node.range?.[0] ?? 0) : 0;
}

function isEmpty(node: unknown): boolean {
  return !isNode(node) || (isScalar(node) && node.source === '' && node.value === null);
}
