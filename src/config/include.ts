import { hash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join, matchesGlob, resolve } from 'node:path';
import { z } from 'zod';
import { errorCode, messageOf } from '../base/error-code.ts';
import { decodeUtf8, readGuardedFile } from '../base/guarded-file.ts';
import { isMapping } from '../base/json.ts';
import { count } from '../base/units.ts';
import type { Issue, LocatedIssue, Path } from './issues.ts';
import { schemaIssues } from './schema-issues.ts';
import { record, SECTION } from './value-schemas.ts';
import { readYaml, type YamlSource } from './yaml-source.ts';

/** The sections that an included file may have. */
const PART_SECTIONS = ['clients', 'credentials', 'deployments'] as const;

const MAX_FILES = 1_000;
/** Of the configuration, and of all included files together; parsed, YAML takes up to a hundred times as much memory. */
export const MAX_BYTES = 16 * 2 ** 20;
const WILDCARD = '*';

/** The users whose files may be included, beside root. */
export interface FileTrust {
  /** The user of this process; undefined: owners of files are not checked. */
  readonly uid?: number | undefined;
}

/** An included file, parsed. */
export interface Part {
  readonly file: string;
  readonly source: YamlSource;
  /** SHA-256 of its text, in hex. */
  readonly sha256: string;
  /** Time of its last change in Unix milliseconds. */
  readonly changedAt: number;
  readonly sections: PartSections;
}

/** The sections that can have thousands of entries, as they are written. */
export interface PartSections {
  readonly clients?: readonly unknown[];
  readonly credentials?: Readonly<Record<string, unknown>>;
  readonly deployments?: Readonly<Record<string, unknown>>;
}

interface FoundParts {
  /** In the order in which they are merged. */
  readonly files: readonly string[];
  /** About the `include` of the configuration. */
  readonly issues: readonly Issue[];
  readonly warnings: readonly Issue[];
}

/** Finds the files that `include` names in the configuration `main`, without reading them. */
export async function findParts(main: string, patterns: readonly string[]): Promise<FoundParts> {
  const files = new Set<string>();
  const issues: Issue[] = [];
  const warnings: Issue[] = [];
  for (const [index, pattern] of patterns.entries()) {
    const path = patterns.length === 1 ? ['include'] : ['include', index];
    const whole = isAbsolute(pattern) ? pattern : join(dirname(main), pattern);
    try {
      const matching = (await filesLike(whole)).filter((file) => resolve(file) !== resolve(main));
      for (const file of matching) files.add(file);
      if (matching.length === 0) warnings.push({ path, message: `matches no file: there is no ${whole}` });
    } catch (error) {
      issues.push({ path, message: `${dirname(whole)} cannot be listed: ${messageOf(error)}` });
    }
    if (files.size > MAX_FILES) {
      const message = `matches more than ${count(MAX_FILES, 'file')}: write several entries into one file`;
      return { files: [], issues: [{ path, message }], warnings };
    }
  }
  return { files: [...files], issues, warnings };
}

/** Resolves to the file of that name, whether it exists or not, or to those of the pattern in order of their names. */
async function filesLike(pattern: string): Promise<string[]> {
  const name = basename(pattern);
  if (!name.includes(WILDCARD)) return [pattern];
  try {
    const names = await readdir(dirname(pattern));
    return (
      names
        // No wildcard stands for a dot at the start, with which editors name their copies.
        .filter((each) => matchesGlob(each, name))
        .sort()
        .map((each) => join(dirname(pattern), each))
    );
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return [];
    throw error;
  }
}

interface ReadParts {
  readonly parts: readonly Part[];
  /** About the `include` of the configuration. */
  readonly issues: readonly Issue[];
  /** About the content of the files. */
  readonly located: readonly LocatedIssue[];
}

/**
 * Reads the included files. `trust`: only files that no one else can exchange are accepted; undefined: nothing is used
 * of them but what is printed. Never throws.
 */
export async function readParts(
  main: string,
  files: readonly string[],
  trust: FileTrust | undefined,
): Promise<ReadParts> {
  const parts: Part[] = [];
  const issues: Issue[] = [];
  const located: LocatedIssue[] = [];
  const guard = { ...trust, readableByOthers: true, writableByOthers: trust === undefined };
  let left = MAX_BYTES;
  for (const file of files) {
    let text: string;
    let changedAt: number;
    try {
      const { bytes, changedAt: at } = await readGuardedFile(file, { ...guard, largest: MAX_BYTES });
      left -= bytes.length;
      if (left < 0) throw new Error(`${file} and the files before it have more than ${MAX_BYTES} bytes`);
      text = decodeUtf8(bytes, file);
      changedAt = at.getTime();
    } catch (error) {
      issues.push({ path: ['include'], message: messageOf(error) });
      if (left < 0) break;
      continue;
    }
    const source = readYaml(text, file);
    const found = partIssues(source, main);
    located.push(...source.syntaxIssues, ...found);
    const sections = (source.value ?? {}) as PartSections;
    if (found.length === 0) parts.push({ file, source, sha256: hash('sha256', text), changedAt, sections });
  }
  return { parts, issues, located };
}

const sectionsShape = z.object(
  {
    clients: z.array(z.unknown(), { error: 'a list of clients' }).exactOptional(),
    credentials: record(z.unknown()).exactOptional(),
    deployments: record(z.unknown()).exactOptional(),
  },
  { error: SECTION },
);

/** Checks only what keeps the sections from being merged: the schema checks the merged ones. */
function partIssues({ value, locate }: YamlSource, main: string): LocatedIssue[] {
  // Empty, or too broken.
  if (value === null || value === undefined) return [];
  const result = sectionsShape.safeParse(value);
  const issues = schemaIssues(sectionsShape, value, result.error?.issues ?? []);
  const known: readonly string[] = PART_SECTIONS;
  const others = result.success ? Object.keys(value).filter((key) => !known.includes(key)) : [];
  for (const key of others) {
    const message = `is not for an included file, which has ${PART_SECTIONS.join(', ')} only: move it to ${main}, or correct it`;
    issues.push({ path: [key], key: [key], message });
  }
  return issues.map(locate);
}

interface Merged {
  readonly tree: unknown;
  /** Adds the file and its place in it to an issue of the merged tree. */
  readonly locate: (issue: Issue) => LocatedIssue;
  /** Entries that are in two files. */
  readonly duplicates: readonly LocatedIssue[];
}

/** Adds the sections of included files to those of the configuration, which come first. */
export function mergeParts(main: YamlSource, parts: readonly Part[]): Merged {
  if (parts.length === 0 || !isMapping(main.value)) {
    return { tree: main.value, locate: main.locate, duplicates: [] };
  }
  const merge = new Merge(main);
  for (const part of parts) merge.add(part);
  return merge;
}

/** An entry of the merged tree, and where it comes from. */
interface Entry {
  readonly value: unknown;
  readonly source: YamlSource;
  /** In its own file. */
  readonly path: Path;
}

class Merge implements Merged {
  readonly duplicates: LocatedIssue[] = [];
  readonly #main: YamlSource;
  readonly #sections: Readonly<Record<string, unknown>>;
  /** Undefined, as in `#named`: the configuration has something else there, which its schema reports. */
  readonly #clients: Entry[] | undefined;
  /** By id; several in one file are found by the checks of clients. */
  readonly #byId = new Map<unknown, Entry>();
  /** By section and name. */
  readonly #named: Readonly<Record<string, Map<string, Entry> | undefined>>;

  constructor(main: YamlSource) {
    this.#main = main;
    this.#sections = main.value as Record<string, unknown>;
    const { clients = [], credentials = {}, deployments = {} } = this.#sections;
    this.#clients = Array.isArray(clients) ? [] : undefined;
    this.#named = {
      credentials: isMapping(credentials) ? new Map() : undefined,
      deployments: isMapping(deployments) ? new Map() : undefined,
    };
    const sections = {
      ...(Array.isArray(clients) && { clients }),
      ...(isMapping(credentials) && { credentials }),
      ...(isMapping(deployments) && { deployments }),
    };
    this.add({ source: main, sections });
  }

  add({ source, sections }: Pick<Part, 'source' | 'sections'>): void {
    for (const [index, value] of (sections.clients ?? []).entries()) {
      this.#addClient({ value, source, path: ['clients', index] });
    }
    for (const section of ['credentials', 'deployments'] as const) {
      for (const [name, value] of Object.entries(sections[section] ?? {})) {
        this.#addNamed(this.#named[section], name, { value, source, path: [section, name] });
      }
    }
  }

  #addClient(entry: Entry): void {
    const { id }: { readonly id?: unknown } = Object(entry.value);
    const earlier = id === undefined ? undefined : this.#byId.get(id);
    if (earlier !== undefined && earlier.source !== entry.source) {
      this.#duplicate(entry, earlier);
      return;
    }
    this.#clients?.push(entry);
    this.#byId.set(id, entry);
  }

  #addNamed(entries: Map<string, Entry> | undefined, name: string, entry: Entry): void {
    const earlier = entries?.get(name);
    if (earlier === undefined) entries?.set(name, entry);
    else this.#duplicate(entry, earlier);
  }

  #duplicate(entry: Entry, earlier: Entry): void {
    const { file, line, column } = nameOf(earlier, '');
    const message = `is in ${file}:${line}:${column}, too: keep one of the two, or give each its own name`;
    this.duplicates.push(nameOf(entry, message));
  }

  get tree(): unknown {
    const named = Object.entries(this.#named).flatMap(([section, entries]) =>
      // Unlike an assignment, this keeps an entry called __proto__, which the schema refuses.
      entries === undefined || entries.size === 0
        ? []
        : [[section, Object.fromEntries([...entries].map(([name, { value }]) => [name, value]))]],
    );
    const clients = this.#clients && { clients: this.#clients.map(({ value }) => value) };
    return { ...this.#sections, ...clients, ...Object.fromEntries(named) };
  }

  readonly locate = ({ path, key, message }: Issue): LocatedIssue => {
    const entry = this.#entryAt(path);
    if (entry === undefined) return this.#main.locate({ path, message, ...(key && { key }) });
    const own = (of: Path): Path => [...entry.path, ...of.slice(2)];
    return entry.source.locate({ path: own(path), message, ...(key && { key: own(key) }) });
  };

  #entryAt([section = '', entry]: Path): Entry | undefined {
    if (section === 'clients' && typeof entry === 'number') return this.#clients?.[entry];
    return typeof entry === 'string' ? this.#named[section]?.get(entry) : undefined;
  }
}

/** Locates the name of an entry. */
function nameOf({ source, path }: Entry, message: string): LocatedIssue {
  const isClient = path[0] === 'clients';
  return source.locate(isClient ? { path: [...path, 'id'], message } : { path, key: path, message });
}
