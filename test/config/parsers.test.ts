import { execFileSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { repository } from '../support/repository.ts';
import { needPackages } from '../support/system-packages.ts';

// PyYAML is strict about plain texts, and on YAML 1.1; tools of operators use it or parsers like it.
const PRINT_JSON = 'import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))';

function readByPython(text: string): unknown {
  needPackages('python3-yaml');
  return JSON.parse(execFileSync('python3', ['-c', PRINT_JSON], { input: text, encoding: 'utf8' }));
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

test.each([
  ...examples.map((name): [string, string] => [name, readFileSync(join(repository, name), 'utf8')]),
  ...blocks,
])('another parser reads the same from %s', (_name, text) => {
  expect(readByPython(text)).toEqual(parse(text, { version: '1.1' }));
});
