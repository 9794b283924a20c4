import { readFile } from 'node:fs/promises';
import { type DescribedKey, describedKeys } from './configuration.ts';
import { WIDTH, wrap } from './markdown.ts';

const INTRODUCTION = `# yaml-language-server: $schema=schema.json
# Generated from docs/generate/example.yaml and the configuration schema by "npm run docs". Do not edit.
#
# Every key that this version knows, with the first sentence of its description; docs/configure/configuration.md has the
# rest. A key that is commented out is off, or another way to say it.
#
# Durations: 500ms 30s 5m 1h 1d. Sizes: 512B 64KiB 1MiB 2GiB. File names are relative to the folder of this file. A
# secret comes from one of { env: NAME }, { file: NAME }, { sealed: NAME } and { value: TEXT }.
`;

/** A line with a key: what stands before the text of a comment about it, and the column of the key. */
interface KeyLine {
  readonly key: string;
  readonly column: number;
  readonly margin: string;
}

/** The text of config/example.yaml: each key of the skeleton below what the schema says about it. */
export async function exampleFile(): Promise<string> {
  const skeleton = await readFile(new URL('example.yaml', import.meta.url), 'utf8');
  const known = new Map(describedKeys().map((each) => [each.path, each]));
  const shown = new Set<string>();
  const parents: { readonly column: number; readonly path: string }[] = [];
  const lines = skeleton.split('\n').flatMap((line) => {
    const found = keyLineOf(line);
    if (found === undefined) return [line];
    const { key, column, margin } = found;
    while ((parents.at(-1)?.column ?? -1) >= column) parents.pop();
    const path = pathOf(parents.at(-1)?.path, key, known);
    parents.push({ column, path });
    const about = known.get(path);
    // Further entries of a list or mapping need no comments.
    if (about === undefined || shown.has(path)) return [line];
    shown.add(path);
    return [...commentOf(about, margin), line];
  });
  return `${INTRODUCTION}\n${lines.join('\n')}`;
}

function keyLineOf(line: string): KeyLine | undefined {
  const parts = /^( *)(# )?( *)(# )?(- )?([\w-]+):(?: |$)/.exec(line);
  if (parts === null) return undefined;
  const [, outer = '', off = '', inner = '', , dash = '', key = ''] = parts;
  const margin = inner === '' ? `${outer}# ` : `${outer}${off}${inner}# `;
  return { key, column: outer.length + inner.length + dash.length, margin };
}

/** The path of a key as the schema has it: that of an entry with a name of the user's choice ends with NAME. */
function pathOf(parent: string | undefined, key: string, known: ReadonlyMap<string, unknown>): string {
  if (parent === undefined) return key;
  return [`${parent}.${key}`, `${parent}[].${key}`].find((path) => known.has(path)) ?? `${parent}.NAME`;
}

function commentOf({ description, written }: DescribedKey, margin: string): string[] {
  const [sentence = ''] = description.split(/(?<=\.) (?=[A-Z`])/);
  const text = sentence.replaceAll(/\[([^\]]+)\]\([^)]*\)/g, '$1').replaceAll('`', '');
  const about = written === undefined ? text : `${text} Default: ${written}.`;
  return `${margin}${wrap(about, margin, WIDTH - margin.length)}`.split('\n');
}
