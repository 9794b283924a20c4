import { z } from 'zod';
import { innermost } from '../../src/config/cross-check.ts';
import { asWritten } from '../../src/config/effective.ts';
import { SOURCE_TITLE, source } from '../../src/config/secret-source.ts';
import { configSchema } from '../../src/config/section-issues.ts';
import { witnessSettings } from '../../src/witness/settings.ts';
import { generatedFrom, page, wrap } from './markdown.ts';

const INTRODUCTION = [
  generatedFrom('the configuration schema'),
  '# Configuration',
  wrap(
    'The configuration is one YAML file. A key that does not exist is an error that names the nearest key, or those that exist. `digest-gateway check --config FILE` reports every issue with file, line and column. [config/example.yaml](../../config/example.yaml) shows every key in its place; [config/minimal.yaml](../../config/minimal.yaml) is the least that works.',
  ),
  wrap(
    'Durations are written as `500ms`, `30s`, `5m`, `1h` or `1d`, sizes as `512B`, `64KiB`, `1MiB` or `2GiB`. File names are relative to the folder of the configuration file. `NAME` in a key stands for a name of your choice, `[]` for an item of a list. Keys without a default that are not required have no effect until they are set.',
  ),
  wrap(
    'Editors with the YAML language server complete and check keys by [config/schema.json](../../config/schema.json), a JSON Schema, if the first line of the file is `# yaml-language-server: $schema=PATH`. The schema accepts every valid configuration; `check` finds more, because it compares values with each other. `digest-gateway config schema --part` prints the schema of an included file.',
  ),
];

/** The text of docs/configure/configuration.md. */
export function configurationPage(): string {
  const sections = sectionsOf().flatMap(([key, schema]) => {
    const lines = entries(key, schema);
    const [own = '', ...keys] = lines;
    return [
      `## \`${key}\``,
      ...(keys.length === 0 ? [own] : [wrap(descriptionOf(key, schema)), keys.join('\n')]),
    ];
  });
  const sources = Object.entries(shapeOf(source()) ?? {}).flatMap(([key, schema]) => entries(key, schema));
  return page([
    ...INTRODUCTION,
    ...sections,
    `## ${SOURCE_TITLE}`,
    wrap(
      'A secret is a mapping with exactly one source. Changed files of `credentials`, and the sealed file, are used within seconds; `tls.keyPassphrase` is read with a reload, secrets of `redis`, `audit` and `control` with a restart, also from the sealed file.',
    ),
    sources.join('\n'),
  ]);
}

/** The text of docs/audit/witness-settings.md. */
export function witnessSettingsPage(): string {
  const shape = shapeOf(witnessSettings()) ?? {};
  return page([
    generatedFrom('the schema of a witness'),
    '# Settings of a witness',
    wrap(
      'The file of `digest-gateway witness --config FILE` is YAML. [How to run a witness](witness.md) has an example. File names are relative to the folder of the file. A change needs a restart; only files of `listen.tls` are read again.',
    ),
    Object.entries(shape)
      .flatMap(([key, schema]) => entries(key, schema))
      .join('\n'),
  ]);
}

/** A key, as the schema describes it. */
export interface DescribedKey {
  /** `NAME` stands for a name of the user's choice, `[]` for an item of a list. */
  readonly path: string;
  readonly description: string;
  /** Left out for a section. */
  readonly type: string | undefined;
  readonly required: boolean;
  /** The default, as one would write it. */
  readonly written: string | undefined;
}

/** Every key of the configuration, each before the keys below it. */
export function describedKeys(): DescribedKey[] {
  return sectionsOf().flatMap(([key, schema]) => keysFrom(key, schema));
}

function sectionsOf(): [string, unknown][] {
  return Object.entries(shapeOf(configSchema()) ?? {});
}

function keysFrom(path: string, schema: unknown): DescribedKey[] {
  const { inner, required, written } = unwrap(schema);
  const below = childrenOf(path, inner);
  const type = below === undefined || innermost(inner) instanceof z.ZodUnion ? typeOf(inner) : undefined;
  const own = { path, description: descriptionOf(path, schema), type, required, written };
  return [own, ...(below ?? []).flatMap(([key, child]) => keysFrom(key, child))];
}

/** The list items of a key and of all keys below it. */
function entries(path: string, schema: unknown): string[] {
  return keysFrom(path, schema).map(({ path, description, type, required, written }) => {
    const about = required ? ' Required.' : written === undefined ? '' : ` Default: \`${written}\`.`;
    return wrap(
      `- **\`${path}\`**: ${description}${type === undefined ? '' : ` Type: ${type}.`}${about}`,
      '  ',
    );
  });
}

function childrenOf(path: string, schema: unknown): [string, unknown][] | undefined {
  if (titleOf(schema) !== undefined) return undefined;
  const body = innermost(schema);
  const isOrOne = schema instanceof z.ZodType && z.globalRegistry.get(schema)?.['orOne'] === true;
  const [prefix, holder] =
    body instanceof z.ZodRecord
      ? [`${path}.NAME`, body.valueType]
      : body instanceof z.ZodArray && isOrOne
        ? [path, body.element]
        : body instanceof z.ZodArray
          ? [`${path}[]`, body.element]
          : [path, body];
  const shape = shapeOf(holder);
  return shape && Object.entries(shape).map(([key, child]) => [`${prefix}.${key}`, child]);
}

function shapeOf(schema: unknown): Record<string, unknown> | undefined {
  const body = innermost(schema);
  if (body instanceof z.ZodUnion) return body.options.map(shapeOf).find(isDescribed);
  return body instanceof z.ZodObject ? body.shape : undefined;
}

/** True for the keys of a section. Those of a longer form, such as `{ file: NAME }`, are in the type. */
function isDescribed(shape: Record<string, unknown> | undefined): boolean {
  const keys = Object.values(shape ?? {});
  return keys.length > 0 && keys.every((key) => key instanceof z.ZodType && key.description !== undefined);
}

/** The sentence that an error message would continue after "must be". */
function typeOf(schema: unknown): string {
  const title = titleOf(schema);
  if (title !== undefined) return `a [secret source](#${title.toLowerCase().replaceAll(' ', '-')})`;
  const body = innermost(schema);
  if (body instanceof z.ZodRecord) {
    return `a mapping of names to ${typeOf(unwrap(body.valueType).inner)}`;
  }
  if (!(body instanceof z.ZodType)) throw new TypeError('not a schema');
  return body.safeParse(Symbol('of no type')).error?.issues[0]?.message ?? 'any value';
}

function descriptionOf(path: string, schema: unknown): string {
  const text = schema instanceof z.ZodType ? schema.description : undefined;
  if (text === undefined) throw new Error(`${path} has no description in the schema`);
  return text;
}

interface Unwrapped {
  readonly inner: unknown;
  readonly required: boolean;
  /** The default, as one would write it. */
  readonly written: string | undefined;
}

function unwrap(schema: unknown): Unwrapped {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodExactOptional) {
    return { inner: schema.unwrap(), required: false, written: undefined };
  }
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault) {
    const inner = schema.unwrap();
    return { inner, required: false, written: defaultText(schema.def.defaultValue, inner) };
  }
  return { inner: schema, required: true, written: undefined };
}

function defaultText(value: unknown, schema: unknown): string | undefined {
  if (Array.isArray(value)) {
    return `[${value.map((item) => (item === '*' ? '"*"' : item)).join(', ')}]`;
  }
  // A section whose keys have defaults of their own.
  return typeof value === 'object' ? undefined : String(asWritten(value, schema));
}

function titleOf(schema: unknown): string | undefined {
  const metadata = schema instanceof z.ZodType ? z.globalRegistry.get(schema) : undefined;
  if (metadata?.title !== undefined) return metadata.title;
  return schema instanceof z.ZodPipe ? titleOf(schema.in) : undefined;
}
