import { execFileSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { repository } from '../support/repository.ts';
import { needPackages } from '../support/system-packages.ts';

// PyYAML is strict about plain texts, and on YAML 1.1; tools of operators use it or parsers like it.
// One process reads all texts, because a start takes longer than the reading.
const PRINT_JSON = `import json, sys, yaml
def read(text):
    try: return {'value': yaml.safe_load(text)}
    except yaml.YAMLError as error: return {'error': str(error)}
print(json.dumps([read(text) for text in json.load(sys.stdin)]))`;

type Read = { readonly value: unknown } | { readonly error: string };

function readByPython(texts: readonly string[]): Read[] {
  needPackages('python3-yaml');
  const input = JSON.stringify(texts);
  return JSON.parse(execFileSync('python3', ['-c', PRINT_JSON], { input, encoding: 'utf8' }));
}

const examples = globSync(['config/*.yaml', 'deploy/compose/*.yaml'], { cwd: repository });
const pages = globSync(['README.md', 'docs/**/*.md'], { cwd: repository });
const blocks = pages.flatMap((page): [string, string][] => {
  const text = readFileSync(join(repository, page), 'utf8');
  return Array.from(
    text.matchAll(/^( *)```yaml\n([\s\S]*?)^ *```/gm),
    ([, indent = '', yaml = ''], index) => [
      `block ${index + 1} of ${page}`,
      yaml.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
    ],
  );
});

const named = [
  ...examples.map((name): [string, string] => [name, readFileSync(join(repository, name), 'utf8')]),
  ...blocks,
];
const read = readByPython(named.map(([, text]) => text));

test.each(named.map(([name, text], index) => [name, text, read[index]] as const))(
  'another parser reads the same from %s',
  (_name, text, value) => {
    expect(value).toEqual({ value: parse(text, { version: '1.1' }) });
  },
);
