import { z } from 'zod';
import type { Path } from './issues.ts';

/** Returns the keys that the schema allows at a path; none if any key is allowed, or it is not a mapping. */
export function knownKeys(schema: unknown, path: Path): string[] {
  const inner = unwrap(path.reduce(childOf, schema));
  return inner instanceof z.ZodObject ? Object.keys(inner.shape) : [];
}

/**
 * Returns how many segments of a path lead to values that keep the type of the schema's output if something
 * below them is refused. The value of a transform does not: it is the input of the transform then.
 */
export function typedDepth(schema: unknown, path: Path): number {
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
  const parent = unwrap(schema);
  if (parent instanceof z.ZodObject) return parent.shape[segment];
  if (parent instanceof z.ZodArray) return parent.element;
  return parent instanceof z.ZodRecord ? parent.valueType : undefined;
}

function unwrap(schema: unknown): unknown {
  const inner = withoutTransforms(withoutDefault(schema));
  return inner === schema ? inner : unwrap(inner);
}

/** Returns the schema of a value as it is written. */
export function withoutTransforms(schema: unknown): unknown {
  if (!(schema instanceof z.ZodPipe)) return schema;
  return withoutTransforms(schema.in instanceof z.ZodTransform ? schema.out : schema.in);
}

function withoutDefault(schema: unknown): unknown {
  const wrapped =
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodExactOptional ||
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault;
  return wrapped ? withoutDefault(schema.unwrap()) : schema;
}
