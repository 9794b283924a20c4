import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { repository } from '../../test/support/repository.ts';
import { phaseOf, RULES } from './phase-rules.ts';

test('every rule is of files that exist', () => {
  const source = readdirSync(join(repository, 'src'), { recursive: true, encoding: 'utf8' });
  const files = [...source, 'node_modules/prom-client/', 'node_modules/pino/'];
  const own = RULES.filter(({ file }) => file !== '' && !/^(node|wasm):/.test(file));
  const missing = own.filter(({ file }) => !files.some((each) => each.startsWith(file)));
  expect(missing.map(({ file }) => file)).toEqual([]);
});

test('native functions and helpers belong to their caller, and an unknown file to nobody', () => {
  expect(phaseOf({ file: 'policy/decide.js', name: 'decide' }, 'pipeline')).toBe('policy');
  expect(phaseOf({ file: '', name: 'writev' }, 'body')).toBe('body');
  expect(phaseOf({ file: 'node:net', name: 'write' }, 'upstream write')).toBe('upstream write');
  expect(phaseOf({ file: 'base/secret.js', name: 'reveal' }, 'sign')).toBe('sign');
  expect(phaseOf({ file: '', name: '(garbage collector)' }, 'sign')).toBe('GC');
  expect(phaseOf({ file: 'gateway/relay.js', name: '#pass' }, 'pipeline')).toBe('body');
  expect(phaseOf({ file: 'gateway/relay.js', name: 'linesOf' }, 'pipeline')).toBe('head');
  expect(phaseOf({ file: 'unheard-of/file.js', name: 'work' }, 'pipeline')).toBe('other');
});
