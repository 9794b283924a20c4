import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  type Pair,
  parseDocument,
  visit,
} from 'yaml';
import type { Complaint, Fault, Path } from './faults.ts';
import { formatPath } from './faults.ts';

/** A YAML text that knows where each of its keys and values stands. */
export interface YamlSource {
  /** What the text says, or undefined when its syntax is too broken to tell. */
  readonly value: unknown;
  readonly syntaxFaults: readonly Fault[];
  /**
   * The place of a complaint: its key; else the value at its path, or that value's key when the
   * value is empty. Where the path does not exist, the last key on the way to it.
   */
  faultAt(complaint: Complaint): Fault;
}

/**
 * What each error of the parser means. Its own messages quote the text around the error, and that
 * may be a password.
 */
const SYNTAX: Readonly<Record<string, string>> = {
  ALIAS_PROPS: 'an alias can have neither anchor nor tag: leave them out',
  BAD_ALIAS:
    'an anchor or alias has no name, or one that YAML does not allow: put text with & or * in quotes',
  BAD_COLLECTION_TYPE: 'a tag does not fit what it stands at: leave the tag out',
  BAD_DIRECTIVE: 'a line that starts with % is a directive that is not known: leave it out',
  BAD_DQ_ESCAPE: 'a backslash in double quotes starts no known escape: write \\\\, or use single quotes',
  BAD_INDENT:
    'the indentation does not fit: keys of one mapping start in the same column, brackets are closed',
  BAD_SCALAR_START: 'a plain text cannot start with @ or `: put it in quotes',
  BLOCK_AS_IMPLICIT_KEY: 'a second ": " on one line: put the text in quotes, or start a new line',
  DUPLICATE_KEY: 'the key stands twice in this mapping: keep one of them',
  MISSING_CHAR: 'a quote, bracket, comma or colon is missing: close what is open, write ": " after a key',
  MULTILINE_IMPLICIT_KEY: 'a key goes over several lines: write "key: value" on one line',
  MULTIPLE_DOCS: 'a second document starts here: keep one document in the file',
  NON_STRING_KEY: 'a key is not a text: write a plain word',
  RESOURCE_EXHAUSTION: 'the nesting is too deep',
  TAB_AS_INDENT: 'a tab stands in the indentation: use spaces',
  TAG_RESOLVE_FAILED: 'the tag is not known: leave it out, or put text that starts with ! in quotes',
};

const OTHER_SYNTAX = 'this is not YAML: write "key: value", one on a line';

/** Reads YAML. Whatever the text is, it does not throw: errors are among `syntaxFaults`. */
export function readYaml(text: string, file: string): YamlSource {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, stringKeys: true });

  const fault = (offset: number, path: Path, message: string): Fault => {
    const { line, col } = lines.linePos(offset);
    return { file, line: Math.max(line, 1), column: Math.max(col, 1), path: formatPath(path), message };
  };

  const problems = [...document.errors, ...document.warnings];
  const syntaxFaults = problems.map((problem) =>
    fault(problem.pos[0], [], SYNTAX[problem.code] ?? OTHER_SYNTAX),
  );
  for (const offset of danglingAliases(document)) {
    syntaxFaults.push(
      fault(offset, [], 'the alias has no anchor before it: put text that starts with * in quotes'),
    );
  }

  let value: unknown;
  // A key that stands twice leaves the rest readable; every other error makes the rest a guess.
  if (syntaxFaults.length === document.errors.filter((error) => error.code === 'DUPLICATE_KEY').length) {
    try {
      value = document.toJS();
    } catch {
      // The parser bounds how far aliases of aliases may expand.
      syntaxFaults.push(fault(0, [], 'aliases or nesting go too deep: write the values out'));
    }
  }

  return {
    value,
    syntaxFaults,
    faultAt: ({ path, key, message }) => {
      const offset = key === undefined ? offsetOf(document, path, 'value') : offsetOf(document, key, 'key');
      return fault(offset, path, message);
    },
  };
}

function danglingAliases(document: Document): number[] {
  const offsets: number[] = [];
  visit(document, {
    Alias(_key, alias) {
      if (alias.resolve(document) === undefined) {
        offsets.push(startOf(alias));
      }
    },
  });
  return offsets;
}

function offsetOf(document: Document, path: Path, target: 'key' | 'value'): number {
  let place: Place = { key: undefined, value: document.contents };
  for (const segment of path) {
    const parent = isAlias(place.value) ? place.value.resolve(document) : place.value;
    const next = stepInto(parent, segment);
    if (next === undefined) {
      return startOf(isNode(place.key) ? place.key : place.value);
    }
    place = next;
  }
  const atKey = isNode(place.key) && (target === 'key' || isEmpty(place.value));
  return startOf(atKey ? place.key : place.value);
}

/** A value of the document, and its key unless it is an item of a list or the whole. */
interface Place {
  key: unknown;
  value: unknown;
}

function stepInto(parent: unknown, segment: string | number): Place | undefined {
  if (isMap(parent)) {
    return pairOf(parent.items, segment);
  }
  if (isSeq(parent) && typeof segment === 'number' && segment < parent.items.length) {
    return { key: undefined, value: parent.items[segment] };
  }
  return undefined;
}

/** The last pair of a key, as it is the one whose value counts. */
function pairOf(pairs: readonly Pair[], segment: string | number): Pair | undefined {
  return pairs.findLast(({ key }) => isScalar(key) && String(key.value) === String(segment));
}

function startOf(node: unknown): number {
  return isNode(node) ? (node.range?.[0] ?? 0) : 0;
}

function isEmpty(node: unknown): boolean {
  return !isNode(node) || (isScalar(node) && node.source === '' && node.value === null);
}
