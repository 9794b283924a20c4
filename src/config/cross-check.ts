import { z } from 'zod';
import { getOrInsert } from '../base/maps.ts';
import { nearestName } from '../base/nearest-name.ts';
import type { Network } from '../base/network.ts';
import type { Secret } from '../base/secret.ts';
import type { Issue, Path } from './issues.ts';

type Atom = string | number | boolean | undefined | Network | Secret | ReadonlySet<string>;

/**
 * The output of a schema as far as its input was accepted: `undefined` stands for a value that was refused,
 * and a key that was not given is absent. So a check can use `key in mapping` to see whether a value was given.
 */
export type Accepted<T> = T extends Atom
  ? T
  : T extends readonly (infer Item)[]
    ? readonly (Accepted<Item> | undefined)[]
    : { readonly [Key in keyof T]: Accepted<T[Key]> | undefined };

/** An issue of values that do not fit each other. */
export interface CrossIssue extends Omit<Issue, 'key'> {
  /** Starts the message with `is missing` or `is empty`, whichever the value at `path` is. */
  readonly lacking?: boolean;
  /** Locates the issue at this item of the list at `path`, which may have become a set. */
  readonly item?: string;
}

/**
 * Adds a check of values against each other to a schema. It sees what was accepted even if other values
 * were refused, so that all issues are reported together.
 */
export function crossChecked<S extends z.ZodObject>(
  schema: S,
  check: (accepted: Accepted<z.output<S>>) => Iterable<CrossIssue>,
): S {
  return schema.superRefine(
    (value, context) => {
      const refused = context.issues.filter(isRefusal).map(({ path = [] }) => path as Path);
      const accepted = acceptedParts(schema, value, refused) as Accepted<z.output<S>>;
      for (const { path, message, ...params } of check(accepted)) {
        context.addIssue({ code: 'custom', path: [...path], message, params });
      }
    },
    { when: ({ issues }) => !issues.some((issue) => isRefusal(issue) && (issue.path ?? []).length === 0) },
  );
}

/** An unknown key leaves the values of its mapping as they are. */
function isRefusal({ code }: z.core.$ZodRawIssue): boolean {
  return code !== 'unrecognized_keys';
}

function acceptedParts(schema: unknown, value: unknown, refused: readonly Path[]): unknown {
  // Each container is copied once: a list of thousands may have many refused items.
  const copies = new Set<object>();
  const refuse = (parent: object, [segment = '', ...below]: Path): void => {
    const part: unknown = Reflect.get(parent, segment);
    if (below.length === 0) Reflect.set(parent, segment, undefined);
    else if (typeof part === 'object' && part !== null) {
      const copy = copies.has(part) ? part : Array.isArray(part) ? [...part] : { ...part };
      copies.add(copy);
      Reflect.set(parent, segment, copy);
      refuse(copy, below);
    }
  };
  const root = { value };
  for (const path of refused) refuse(root, ['value', ...path.slice(0, typedDepth(schema, path))]);
  return root.value;
}

/**
 * Yields an issue for each item of a list that has the same value for a key as one before it. `path`: that of the list.
 */
export function* repeatedIssues<Key extends string>(
  items: readonly (Readonly<Partial<Record<Key, unknown>>> | undefined)[] | undefined,
  key: Key,
  path: Path,
  message: string,
): Generator<CrossIssue> {
  const seen = new Set<unknown>();
  for (const [index, item] of (items ?? []).entries()) {
    const value = item?.[key];
    if (value === undefined) continue;
    if (seen.has(value)) yield { path: [...path, index, key], message };
    seen.add(value);
  }
}

/** Yields an issue for each of these keys that is given without the one that it needs. */
export function* neededIssues(
  mapping: object,
  needs: readonly (readonly [key: string, needed: string, why: string])[],
): Generator<CrossIssue> {
  for (const [key, needed, why] of needs) {
    if (key in mapping && !(needed in mapping)) yield { path: [needed], message: `is missing: ${why}` };
  }
}

/** True if the key is given, or the mapping was refused: it may have the key then. */
export function isGiven<T extends object>(mapping: T | undefined, key: keyof T): boolean {
  return mapping === undefined || key in mapping;
}

/** Maximum number of names in a message. */
const LISTED = 20;

/** Joins names for a message, with a count in place of those beyond `LISTED`. */
export function listNames(names: readonly string[]): string {
  const shown = names.slice(0, LISTED).join(', ');
  return names.length > LISTED ? `${shown} and ${names.length - LISTED} more` : shown;
}

/** Joins names for a message to somebody who wrote another one: the nearest comes first. */
export function listNearest(wrong: string, names: readonly string[]): string {
  const nearest = nearestName(wrong, names);
  return listNames(nearest === undefined ? names : [...new Set([nearest, ...names])]);
}

/** Maximum number of comparisons of wrong names with the keys of one mapping: thousands of names may be wrong. */
const MAX_COMPARISONS = 10_000;

/** The keys by mapping, and the lists for wrong names that were compared with them: many messages may have the same. */
const KEYS = new WeakMap<object, { readonly keys: readonly string[]; readonly lists: Map<string, string> }>();

/** Joins the keys of a mapping for a message about a wrong one: the nearest comes first where not all are listed. */
export function keyList(mapping: object, wrong: string): string {
  const { keys, lists } = getOrInsert(KEYS, mapping, () => ({
    keys: Object.keys(mapping).filter((key) => !looksLikeAddress(key)),
    lists: new Map(),
  }));
  const isCompared = keys.length > LISTED && keys.length * (lists.size + 1) <= MAX_COMPARISONS;
  return (
    lists.get(wrong) ??
    (isCompared ? getOrInsert(lists, wrong, () => listNearest(wrong, keys)) : listNames(keys))
  );
}

/** True for what is no key, but may be a URL or a pair with a password: `proxy: { http://user:password@proxy }`. */
export function looksLikeAddress(name: unknown): boolean {
  return typeof name === 'string' && /[@:]/.test(name);
}

/** Returns the keys that the schema allows at a path; none if any key is allowed, or it is not a mapping. */
export function knownKeys(schema: unknown, path: Path): string[] {
  const inner = innermost(path.reduce(childOf, schema));
  // Beside a short form, as a name alone, a mapping is one of several forms.
  const forms = inner instanceof z.ZodUnion ? inner.options.map(innermost) : [inner];
  return forms.flatMap((form) => (form instanceof z.ZodObject ? Object.keys(form.shape) : []));
}

/** Returns the schemas of the value at a path: the outermost, then each that it wraps; none if nothing can be there. */
export function schemasAt(schema: unknown, path: Path): unknown[] {
  return layersOf(path.reduce(childOf, schema));
}

function layersOf(schema: unknown): unknown[] {
  if (schema === undefined) return [];
  const inner = wrappedBy(schema);
  return inner === schema ? [schema] : [schema, ...layersOf(inner)];
}

/** Returns what a schema wraps, as it is written; itself if it is no wrapper. */
export function wrappedBy(schema: unknown): unknown {
  if (schema instanceof z.ZodPipe) return schema.in instanceof z.ZodTransform ? schema.out : schema.in;
  return withoutDefault(schema);
}

/**
 * Returns how many segments of a path lead to values that keep the type of the schema's output if something
 * below them is refused. The value of a transform does not: it is the input of the transform then.
 */
function typedDepth(schema: unknown, path: Path): number {
  let part = schema;
  for (const [depth, segment] of path.entries()) {
    if (!keepsType(part)) return depth;
    part = childOf(part, segment);
  }
  return path.length;
}

function keepsType(schema: unknown): boolean {
  const outer = withoutDefault(schema);
  if (outer instanceof z.ZodPipe) return outer.in instanceof z.ZodTransform && keepsType(outer.out);
  return outer instanceof z.ZodObject || outer instanceof z.ZodArray || outer instanceof z.ZodRecord;
}

function childOf(schema: unknown, segment: string | number): unknown {
  const parent = innermost(schema);
  if (parent instanceof z.ZodObject) return parent.shape[segment];
  if (parent instanceof z.ZodArray) return parent.element;
  return parent instanceof z.ZodRecord ? parent.valueType : undefined;
}

/** Returns the schema of a value as it is written, without its default. */
export function innermost(schema: unknown): unknown {
  return layersOf(schema).at(-1);
}

function withoutDefault(schema: unknown): unknown {
  const wrapped =
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodExactOptional ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault;
  return wrapped ? withoutDefault(schema.unwrap()) : schema;
}
