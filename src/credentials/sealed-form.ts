import { parseDocument, stringify } from 'yaml';
import { z } from 'zod';
import { Secret } from '../base/secret.ts';

/** Valid entry names: they need no quotes on a command line. */
export const ENTRY_NAME = /^[A-Za-z0-9][\w.-]{0,63}$/;

export interface SealedValue {
  readonly value: Secret;
  /** Counts up from 1 within one entry; reveals nothing about the value. */
  readonly version: number;
  /** Undefined for an entry that was written by hand, without a date. */
  readonly sealedAt: Date | undefined;
}

export interface SealedEntry extends SealedValue {
  /** The next version. */
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

/** Parses the plain text of a sealed file, YAML or JSON; undefined if it is invalid. */
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

/** Formats the plain text of a sealed file as YAML, which operators may edit with `age`. */
export function formatEntries(entries: SealedEntries): Secret {
  const tree = [...entries].map(([name, { next, ...current }]) => [
    name,
    { ...plain(current), ...(next && { next: plain(next) }) },
  ]);
  return new Secret(stringify(Object.fromEntries(tree)));
}

function treeOf(text: string): unknown {
  // Without `stringKeys`, a key that is no text is quoted in a warning on stderr.
  const document = parseDocument(text, { stringKeys: true });
  // Warnings count, too: the parser drops an unknown tag, which may be the start of an unquoted secret.
  if (document.errors.length + document.warnings.length > 0) return undefined;
  try {
    return document.toJS() ?? {};
  } catch {
    // The parser limits the expansion of aliases.
    return undefined;
  }
}

function withoutNext({ value, version, sealedAt }: z.output<typeof sealedValue>): SealedValue {
  return { value, version, sealedAt };
}

function plain({ value, version, sealedAt }: SealedValue) {
  return { value: value.reveal(), version, ...(sealedAt && { sealedAt: sealedAt.toISOString() }) };
}
