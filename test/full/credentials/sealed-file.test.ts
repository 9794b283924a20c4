import { execFile } from 'node:child_process';
import { appendFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Encrypter } from 'age-encryption';
import type { SealedSection } from '../../../src/credentials/sealed-file.ts';
import { issueOf, SourceReader } from '../../../src/credentials/sources.ts';
import { keyFile, recipientOf, sealedWith } from '../../credentials/sealed-section.ts';

const execFileAsync = promisify(execFile);

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealed-'));
});
afterEach(() => rm(folder, { recursive: true }));

const PLAIN = [
  'a: { value: "hunter2", version: 3, sealedAt: 2026-01-02T03:04:05.678Z }',
  'b: { value: "hunter3" }',
].join('\n');

/** Reads an entry; returns its secret, or path and message of the issue. */
async function outcome(section: SealedSection | undefined, name = 'a', environment = {}): Promise<string> {
  const reader = new SourceReader({ environment }, section);
  try {
    return (await reader.read({ sealed: name })).secret.reveal();
  } catch (error) {
    const { path, message } = issueOf(['here'], error);
    return `${path.join('.')}: ${message}`;
  }
}

describe('what age sealed is read', () => {
  test.each([
    ['binary', []],
    ['in armour', ['-a']],
  ])('%s', async (_title, flags) => {
    const section = await sealedWith(folder, PLAIN, flags);
    const reader = new SourceReader({ environment: {} }, section);
    const found = await reader.read({ sealed: 'a' });
    expect([found.secret.reveal(), found.version, found.changedAt?.toISOString()]).toEqual([
      'hunter2',
      3,
      '2026-01-02T03:04:05.678Z',
    ]);
    expect(await reader.read({ sealed: 'b' })).toMatchObject({ version: 1, changedAt: undefined });
  });

  test('as JSON', async () => {
    const section = await sealedWith(folder, JSON.stringify({ a: { value: 'hunter2', version: 1 } }));
    expect(await outcome(section)).toBe('hunter2');
  });

  test('with an identity from the environment, with or without its comments', async () => {
    const { file, identity } = await sealedWith(folder, PLAIN);
    if (!('file' in identity)) throw new TypeError('no file');
    const text = await readFile(identity.file, 'utf8');
    const [bare = ''] = /AGE-SECRET-KEY-1\w+/.exec(text) ?? [];
    const section = { file, identity: { env: 'ID' } };
    expect(await outcome(section, 'a', { ID: text })).toBe('hunter2');
    expect(await outcome(section, 'a', { ID: bare })).toBe('hunter2');
  });

  test('for several, with any one of them', async () => {
    const other = await keyFile(folder, 'other.txt');
    const section = await sealedWith(folder, PLAIN, ['-r', await recipientOf(other)]);
    expect(await outcome(section)).toBe('hunter2');
    expect(await outcome({ ...section, identity: { file: other } })).toBe('hunter2');
  });

  test('once, whatever is asked of it', async () => {
    const section = await sealedWith(folder, PLAIN);
    const reader = new SourceReader({ environment: {} }, section);
    await reader.read({ sealed: 'a' });
    await rm(section.file);
    expect((await reader.read({ sealed: 'b' })).secret.reveal()).toBe('hunter3');
  });
});

describe('a sealed file that cannot be used', () => {
  test('has another identity', async () => {
    const section = await sealedWith(folder, PLAIN);
    const identity = { file: await keyFile(folder, 'other.txt') };
    expect(await outcome({ ...section, identity })).toBe(
      `sealed.identity: does not open ${section.file}, which was sealed for another one: give that one`,
    );
  });

  test.each([
    ['cut off', (bytes: Buffer) => bytes.subarray(0, -1)],
    ['changed in its content', (bytes: Buffer) => bytes.with(bytes.length - 1, (bytes.at(-1) ?? 0) ^ 1)],
    ['changed in its header', (bytes: Buffer) => bytes.with(3, (bytes.at(3) ?? 0) ^ 1)],
    ['empty', () => Buffer.from('')],
    ['a text', () => Buffer.from('a: { value: hunter2 }\n')],
    ['broken armour', () => Buffer.from('-----BEGIN AGE ENCRYPTED FILE-----\nhunter2\n')],
  ])('is damaged: %s', async (_title, damage) => {
    const section = await sealedWith(folder, PLAIN);
    await writeFile(section.file, damage(await readFile(section.file)));
    expect(await outcome(section)).toBe(
      `sealed.file: ${section.file} is not a file of age, or is damaged: take it from a backup, or seal anew`,
    );
  });

  test('is sealed with a passphrase', async () => {
    const section = await sealedWith(folder, PLAIN);
    const encrypter = new Encrypter();
    encrypter.setPassphrase('hunter2');
    encrypter.setScryptWorkFactor(1);
    await writeFile(section.file, await encrypter.encrypt(PLAIN));
    expect(await outcome(section)).toBe(
      `sealed.file: ${section.file} is sealed with a passphrase: seal it for an identity, with age -r`,
    );
  });

  test('has a key that is no text, which no warning quotes', async () => {
    const { href } = new URL('../../../src/credentials/sealed-file.ts', import.meta.url);
    const script = `const { parseEntries } = await import('${href}');
      console.log(parseEntries('{ hunter2: x }: { value: y }'));`;
    const ended = await execFileAsync(process.execPath, ['--input-type=module', '--eval', script]);
    expect(ended).toEqual({ stdout: 'undefined\n', stderr: '' });
  });

  test.each([
    ['no YAML', 'a: { hunter2: ['],
    ['a text', 'hunter2'],
    ['a list', '[hunter2]'],
    ['a bare secret', 'a: hunter2'],
    ['a number', 'a: { value: 2 }'],
    ['an empty value', 'a: { value: "" }'],
    ['a tag', 'a: { value: !hunter2 3 }'],
    ['an unknown key', 'a: { value: x, hunter2: y }'],
    ['a name that is no word', '"a b": { value: hunter2 }'],
    ['a date that is none', 'a: { value: x, sealedAt: hunter2 }'],
  ])('holds something else: %s', async (_title, plain) => {
    const section = await sealedWith(folder, plain);
    expect(await outcome(section)).toBe(
      `sealed.file: ${section.file} holds something else than sealed credentials: for each name a mapping with value (in quotes) and version`,
    );
  });

  test('is not there', async () => {
    const section = await sealedWith(folder, PLAIN);
    await rm(section.file);
    expect(await outcome(section)).toBe(
      `sealed.file: ${section.file} does not exist: run credential seal NAME, or with --new-identity if there is no identity yet`,
    );
  });

  test('does not have the entry', async () => {
    const section = await sealedWith(folder, PLAIN);
    expect(await outcome(section, 'c')).toBe(`here: ${section.file} has no entry c: run credential seal c`);
  });

  test('is not configured', async () => {
    expect(await outcome(undefined)).toBe(
      'here: names an entry of the sealed file, but no sealed file is configured: give file and identity under sealed',
    );
  });
});

describe('an identity that cannot be used', () => {
  test('is not there', async () => {
    const { file } = await sealedWith(folder, PLAIN);
    const missing = join(folder, 'none');
    expect(await outcome({ file, identity: { file: missing } })).toBe(
      `sealed.identity: ${missing} does not exist: put the identity there, or have credential seal --new-identity make one`,
    );
    expect(await outcome({ file, identity: { env: 'ID' } })).toBe(
      'sealed.identity: the environment variable ID is not set: set it for this process',
    );
  });

  test('is open to others', async () => {
    const { file } = await sealedWith(folder, PLAIN);
    const open = join(folder, 'open');
    await writeFile(open, 'AGE-SECRET-KEY-1', { mode: 0o644 });
    expect(await outcome({ file, identity: { file: open } })).toMatch(
      /^sealed\.identity: .* can be read by others/,
    );
  });

  test.each([
    ['no identity', 'hunter2'],
    ['comments only', '# hunter2'],
    ['a damaged one', 'AGE-SECRET-KEY-1HUNTER2'],
    ['one with something after it', 'KEY\nhunter2'],
  ])('is %s', async (_title, text) => {
    const { file, identity } = await sealedWith(folder, PLAIN);
    if (!('file' in identity)) throw new TypeError('no file');
    const [key = ''] = /AGE-SECRET-KEY-1\w+/.exec(await readFile(identity.file, 'utf8')) ?? [];
    const ID = text.replace('KEY\n', `${key}\n`);
    expect(await outcome({ file, identity: { env: 'ID' } }, 'a', { ID })).toBe(
      'sealed.identity: the environment variable ID contains no age identity: write the line of age-keygen that begins with AGE-SECRET-KEY-1',
    );
    await appendFile(identity.file, 'hunter2\n');
    expect(await outcome({ file, identity })).not.toMatch(/hunter2|SECRET-KEY-1\w/i);
  });
});
