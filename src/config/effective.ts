import { stringify } from 'yaml';
import { z } from 'zod';
import { formatUnit } from '../base/units.ts';
import { SHOWN_DIGITS } from './api-keys.ts';
import { wrappedBy } from './cross-check.ts';
import { withSharedKeys } from './listen.ts';
import { sectionsSchema } from './schema.ts';
import { isSource } from './secret-source.ts';
import { inFolder } from './value-schemas.ts';

/** Stands for a secret. */
const CUT = '<secret>';

/** Hashes by key. A short token could be found from its hash; a key that the gateway has made cannot. */
const HASHES: Readonly<Record<string, (written: unknown) => unknown>> = {
  tokenSha256: () => CUT,
  readTokenSha256: () => CUT,
  apiKeySha256: shortened,
  apiKeys: shortened,
};

/** Formats a checked tree as YAML: with all defaults, as one would write them, and without secrets. */
export function effectiveYaml(tree: unknown): string {
  // Anchors would stand for equal defaults.
  return stringify(effectiveTree(tree), { aliasDuplicateObjects: false, lineWidth: 0 });
}

/** Does the same as a tree. Included files are in it, so `include` is not. */
export function effectiveTree(tree: unknown): unknown {
  const { include: _, ...sections } = sectionsSchema().shape;
  const { include: __, listen, ...written } = tree as Record<string, unknown>;
  // Which folder means nothing: no file name of the output is resolved.
  return inFolder('/', () => effective(z.object(sections), { ...written, listen: withSharedKeys(listen) }));
}

/** Returns a value with the defaults of its schema; undefined: there is none. */
function effective(schema: unknown, value: unknown): unknown {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodExactOptional) {
    return value === undefined ? undefined : effective(schema.unwrap(), value);
  }
  if (schema instanceof z.ZodPrefault) return effective(schema.unwrap(), value ?? schema.def.defaultValue);
  if (schema instanceof z.ZodDefault) {
    return value === undefined ? writtenDefault(schema) : effective(schema.unwrap(), value);
  }
  if (schema instanceof z.ZodPipe) {
    if (isSource(schema) && 'value' in (value as object)) return { value: CUT };
    return effective(wrappedBy(schema), value);
  }
  return effectiveParts(schema, value);
}

function effectiveParts(schema: unknown, value: unknown): unknown {
  if (schema instanceof z.ZodUnion) {
    const form = schema.options.find((option) => z.safeParse(option, value).success);
    return effective(form, value);
  }
  if (schema instanceof z.ZodArray) {
    // One listener stands for a list of one.
    if (!Array.isArray(value)) return effective(schema.element, value);
    return value.map((item) => effective(schema.element, item));
  }
  if (schema instanceof z.ZodRecord) {
    return mapped(value as object, (_key, entry) => effective(schema.valueType, entry));
  }
  if (schema instanceof z.ZodObject) {
    const given = value as Readonly<Record<string, unknown>>;
    return mapped(schema.shape, (key, inner) => {
      const written = effective(inner, given[key]);
      return written === undefined ? undefined : (HASHES[key]?.(written) ?? written);
    });
  }
  return typeof value === 'string' ? withoutPassword(value) : value;
}

/** Undefined: nothing that one could write means the same, such as for a list that may not be empty. */
function writtenDefault(schema: z.ZodDefault): unknown {
  const inner = schema.unwrap();
  const written = asWritten(schema.def.defaultValue, inner);
  return z.safeParse(inner, written).success ? written : undefined;
}

function mapped(entries: object, change: (key: string, value: unknown) => unknown): object {
  return Object.fromEntries(
    Object.entries(entries)
      .map(([key, value]) => [key, change(key, value)] as const)
      .filter(([, value]) => value !== undefined),
  );
}

/** Writes a default, which is in ms or bytes, as its schema reads it. */
export function asWritten(value: unknown, schema: unknown): unknown {
  const unit = schema instanceof z.ZodType ? z.globalRegistry.get(schema)?.['unit'] : undefined;
  return typeof value === 'number' && (unit === 'duration' || unit === 'size')
    ? formatUnit(value, unit)
    : value;
}

/** Shortens each hash in a value. */
function shortened(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(shortened);
  if (typeof value === 'object' && value !== null) return mapped(value, (_key, entry) => shortened(entry));
  return /^[0-9a-fA-F]{64}$/.test(String(value)) ? `${String(value).slice(0, SHOWN_DIGITS)}…` : value;
}

/** No URL of the configuration may have a password; this holds for one that is added without that rule, too. */
function withoutPassword(text: string): string {
  return text.replace(/^([a-z]+:\/\/[^/@:]*:)[^/@]+@/i, `$1${CUT}@`);
}
