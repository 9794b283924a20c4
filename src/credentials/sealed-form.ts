import { parseDocument, stringify } from 'yaml';
import { z } from 'zod';
import { Secret } from '../base/secret.ts';

/** What an entry may be called: a word that needs no quotes on a command line. */
export const ENTRY_NAME = /^[A-Za-z0-9][\w.-]{0,63}$/;

export interface SealedValue {
  readonly value: Secret;
  /** Counts up in one entry from 1; says nothing about the value. */
  readonly version: number;
  /** undefined: written by hand, without a date. */
  readonly sealedAt: Date | undefined;
}

export interface SealedEntry extends SealedValue {
  /** What is to take its place. */
  readonly next: SealedValue | undefined;
}

export type SealedEntries = ReadonlyMap<string, SealedEntry>;

const sealedValue = z.strictObject({
  value: z
    .string()
    .min(1)
    .transform((value) => new Secret(value)),
  version: z.int().min(1).default(1),
  sealedAt: z.iso
    .datetime({ offset: true })
    .transform((text) => new Date(text))
    .optional(),
});

const sealedEntries = z.record(
  z.string().regex(ENTRY_NAME),
  sealedValue.extend({ next: sealedValue.optional() }),
);

/** The entries in the plain text of a sealed file, YAML or JSON; undefined when it holds something else. */
export function parseEntries(text: string): SealedEntries | undefined {
  const result = sealedEntries.safeParse(treeOf(text));
  if (!result.success) return undefined;
  return new Map(
    Object.entries(result.data).map(([name, { next, ...current }]) => [
      name,
      { ...withoutNext(current), next: next && withoutNext(next) },
    ]),
  );
}

/** The plain text of a sealed file: YAML, for whoever opens it with `age`. */
export function formatEntries(entries: SealedEntries): Secret {
  const tree = [...entries].map(([name, { next, ...current }]) => [
    name,
    { ...plain(current), ...(next && { next: plain(next) }) },
  ]);
  return new Secret(stringify(Object.fromEntries(tree)));
}

function treeOf(text: string): unknown {
  const document = parseDocument(text);
  // A warning, too: a tag that is not known is left out, and may be the beginning of a secret without quotes.
  if (document.errors.length + document.warnings.length > 0) return undefined;
  try {
    return document.toJS() ?? {};
  } catch {
    // The parser bounds how far aliases expand.
    return undefined;
  }
}

function withoutNext({ value, version, sealedAt }: z.output<typeof sealedValue>): SealedValue {
  return { value, version, sealedAt };
}

function plain({ value, version, sealedAt }: SealedValue) {
  return { value: value.reveal(), version, ...(sealedAt && { sealedAt: sealedAt.toISOString() }) };
}
