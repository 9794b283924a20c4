import {
  access,
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Encrypter, Stanza } from 'age-encryption';
import { parse } from 'yaml';
import { Secret } from '../../../src/base/secret.ts';
import type { SealedSection } from '../../../src/credentials/sealed-file.ts';
import {
  changeEntries,
  type EntryChange,
  makeIdentity,
  promote,
  replaceFile,
  SealingError,
  setNext,
  setTo,
  withdraw,
} from '../../../src/credentials/sealing.ts';
import { SourceReader } from '../../../src/credentials/sources.ts';
import { keyFile, openedByAge, recipientOf, sealedWith } from '../../credentials/sealed-section.ts';

const EARLY = new Date('2026-01-01T00:00:00.000Z');
const LATE = new Date('2026-02-01T00:00:00.000Z');

let folder: string;
let section: SealedSection;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealing-'));
  const identity = { file: await keyFile(folder, 'identity.txt') };
  section = { file: join(folder, 'credentials.age'), identity };
});
afterEach(() => rm(folder, { recursive: true }));

const change = (name: string, step: EntryChange, where = section) =>
  changeEntries(where, new SourceReader({ environment: {} }, where), [name], step);
const inFile = async () => parse(await openedByAge(section));
const at = (value: string, version: number, when: Date) => ({ value, version, sealedAt: when.toISOString() });

describe('what is sealed is read by age', () => {
  test('in a new file, for this user alone', async () => {
    await change('a', setTo(new Secret('hunter2'), EARLY));
    expect(await inFile()).toEqual({ a: at('hunter2', 1, EARLY) });
    expect((await stat(section.file)).mode & 0o777).toBe(0o600);
    expect(await readFile(section.file, 'latin1')).not.toContain('hunter2');
  });

  const long = ` ${'word '.repeat(20)}\n: end`;
  test.each([' 1 ', '2026-01-01', '!tag', 'null', 'a: b', 'line\nline\n', ' \n', long, '"', '猫', '# x'])(
    'as it is: %j',
    async (value) => {
      await change('a', setTo(new Secret(value), EARLY));
      expect(await inFile()).toEqual({ a: at(value, 1, EARLY) });
      const { secret } = await new SourceReader({ environment: {} }, section).read({ sealed: 'a' });
      expect(secret.reveal()).toBe(value);
    },
  );

  test('beside what age sealed before', async () => {
    await sealedWith(folder, 'b: { value: hunter3, version: 7 }');
    await change('a', setTo(new Secret('hunter2'), EARLY));
    expect(await inFile()).toEqual({ b: { value: 'hunter3', version: 7 }, a: at('hunter2', 1, EARLY) });
  });
});

describe('rotation', () => {
  beforeEach(() => change('a', setTo(new Secret('one'), EARLY)));

  test('keeps the old beside the new until it is promoted', async () => {
    await change('a', setNext(new Secret('two'), LATE));
    expect(await inFile()).toEqual({ a: { ...at('one', 1, EARLY), next: at('two', 2, LATE) } });
    await change('a', promote);
    expect(await inFile()).toEqual({ a: at('two', 2, LATE) });
  });

  test('never gives a version twice', async () => {
    await change('a', setNext(new Secret('two'), LATE));
    await change('a', setNext(new Secret('three'), LATE));
    expect(await inFile()).toEqual({ a: { ...at('one', 1, EARLY), next: at('three', 3, LATE) } });
    await change('a', withdraw);
    await change('a', setTo(new Secret('four'), LATE));
    expect(await inFile()).toEqual({ a: at('four', 4, LATE) });
  });

  test('keeps the new one until it is promoted or withdrawn', async () => {
    await change('a', setNext(new Secret('two'), LATE));
    await expect(change('a', setTo(new Secret('three'), LATE))).rejects.toThrow(
      new SealingError(
        'version 2 of a waits, and would be lost: run credential rotate a with --promote or --withdraw first',
      ),
    );
    expect(await inFile()).toEqual({ a: { ...at('one', 1, EARLY), next: at('two', 2, LATE) } });
  });

  test('takes the next value back, and never gives its version again', async () => {
    await change('a', setNext(new Secret('two'), LATE));
    await change('a', withdraw);
    expect(await inFile()).toEqual({ a: { ...at('one', 1, EARLY), withdrawn: 2 } });
    await change('a', setNext(new Secret('three'), LATE));
    expect((await inFile()).a.next).toEqual(at('three', 3, LATE));
    await change('a', promote);
    expect(await inFile()).toEqual({ a: at('three', 3, LATE) });
  });

  test('changes several entries or none', async () => {
    await change('b', setTo(new Secret('one'), EARLY));
    await change('a', setNext(new Secret('two'), LATE));
    const before = await inFile();
    const reader = new SourceReader({ environment: {} }, section);
    await expect(changeEntries(section, reader, ['a', 'b'], withdraw)).rejects.toThrow(SealingError);
    expect(await inFile()).toEqual(before);
    await change('b', setNext(new Secret('two'), LATE));
    await changeEntries(section, reader, ['a', 'b'], withdraw);
    const withdrawn = { ...at('one', 1, EARLY), withdrawn: 2 };
    expect(await inFile()).toEqual({ a: withdrawn, b: withdrawn });
  });

  test('needs something to rotate, to promote, and to withdraw', async () => {
    await expect(change('b', setNext(new Secret('x'), LATE))).rejects.toThrow('credential seal b');
    await expect(change('a', promote)).rejects.toThrow('credential rotate a');
    await expect(change('a', withdraw)).rejects.toThrow('a has no next version');
    expect(await inFile()).toEqual({ a: at('one', 1, EARLY) });
  });
});

describe('the file', () => {
  test('keeps its mode', async () => {
    await change('a', setTo(new Secret('one'), EARLY));
    await chmod(section.file, 0o640);
    await change('a', setTo(new Secret('two'), EARLY));
    expect((await stat(section.file)).mode & 0o777).toBe(0o640);
  });

  test('may be behind a link, which stays', async () => {
    await mkdir(join(folder, 'real'));
    await change('a', setTo(new Secret('one'), EARLY));
    await rename(section.file, join(folder, 'real', 'x.age'));
    await symlink('real/x.age', section.file);
    await change('a', setTo(new Secret('two'), LATE));
    expect((await lstat(section.file)).isSymbolicLink()).toBe(true);
    expect(await inFile()).toEqual({ a: at('two', 2, LATE) });
  });

  test('that is sealed for others, too, is left to age', async () => {
    await sealedWith(folder, 'a: { value: x }', [
      '-r',
      await recipientOf(await keyFile(folder, 'other.txt')),
    ]);
    const before = await readFile(section.file);
    await expect(change('a', setTo(new Secret('y'), EARLY))).rejects.toThrow(SealingError);
    expect(await readFile(section.file)).toEqual(before);
  });

  /** Seals a file for the identity and for a recipient of this type, which an offline key or a plugin may have. */
  const sealedAlsoFor = async (type: string) => {
    if (!('file' in section.identity)) throw new TypeError('no file');
    const encrypter = new Encrypter();
    encrypter.addRecipient({ wrapFileKey: () => [new Stanza([type, 'AAAA', 'BBBB'], new Uint8Array(32))] });
    encrypter.addRecipient(await recipientOf(section.identity.file));
    await writeFile(section.file, await encrypter.encrypt('a: { value: x }'), { mode: 0o600 });
  };

  test.each(['ssh-ed25519', 'ssh-rsa', 'piv-p256', 'tpm-ecc', 'p256tag', 'mlkem768p256tag'])(
    'that is sealed for a recipient of type %s, too, is left to age',
    async (type) => {
      await sealedAlsoFor(type);
      const before = await readFile(section.file);
      await expect(change('a', setTo(new Secret('y'), EARLY))).rejects.toThrow(/sealed for others, too/);
      expect(await readFile(section.file)).toEqual(before);
    },
  );

  test('with a stanza of grease, which is for nobody, is changed', async () => {
    await sealedAlsoFor('x-grease');
    await change('a', setTo(new Secret('y'), EARLY));
    expect(await inFile()).toEqual({ a: at('y', 2, EARLY) });
  });

  test.each([
    ['one that does not open it', 'next.txt'],
    ['the same once more', 'identity.txt'],
  ])(
    'that is sealed for others, too, is left to age if the identity file also has %s',
    async (_name, name) => {
      const others = ['-r', await recipientOf(await keyFile(folder, 'backup.txt'))];
      await sealedWith(folder, 'a: { value: x }', others);
      const texts = [];
      for (const each of ['identity.txt', name])
        texts.push(await readFile(await keyFile(folder, each), 'utf8'));
      const two = join(folder, 'two.txt');
      await writeFile(two, texts.join(''), { mode: 0o600 });
      const before = await readFile(section.file);
      const where = { ...section, identity: { file: two } };
      await expect(change('a', setTo(new Secret('y'), EARLY), where)).rejects.toThrow(
        /sealed for others, too/,
      );
      expect(await readFile(section.file)).toEqual(before);
    },
  );

  test('is sealed for every identity in the identity file', async () => {
    const other = await keyFile(folder, 'other.txt');
    const both = join(folder, 'both.txt');
    if (!('file' in section.identity)) throw new TypeError('no file');
    const texts = await Promise.all([section.identity.file, other].map((name) => readFile(name, 'utf8')));
    await writeFile(both, texts.join(''), { mode: 0o600 });
    await change('a', setTo(new Secret('one'), EARLY), { ...section, identity: { file: both } });
    expect(parse(await openedByAge({ ...section, identity: { file: other } }))).toEqual(await inFile());
    await change('a', setTo(new Secret('two'), EARLY), { ...section, identity: { file: both } });
  });

  test('stays as it is, with nothing beside it, when its change fails', async () => {
    const { file } = await sealedWith(folder, 'a: { value: x }');
    const before = [await readdir(folder), await readFile(file)];
    const identity = { file: await keyFile(folder, 'identity-2.txt') };
    await expect(change('a', setTo(new Secret('y'), EARLY), { file, identity })).rejects.toThrow(
      /another one/,
    );
    await rm(identity.file);
    expect([await readdir(folder), await readFile(file)]).toEqual(before);
  });

  test('stays as it is when it would become larger than what is read', async () => {
    await change('a', setTo(new Secret('one'), EARLY));
    const before = [await readdir(folder), await readFile(section.file)];
    await expect(change('b', setTo(new Secret('x'.repeat(2 ** 20)), EARLY))).rejects.toThrow(
      `${section.file} would be larger than 1048576 bytes: remove entries first`,
    );
    expect([await readdir(folder), await readFile(section.file)]).toEqual(before);
    await change('a', setTo(new Secret('two'), LATE));
  });

  test('is changed by one at a time, and the other is told', async () => {
    const outcomes = await Promise.allSettled([
      change('a', setTo(new Secret('one'), EARLY)),
      change('b', setTo(new Secret('two'), EARLY)),
    ]);
    expect(outcomes.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    const refusal = outcomes.find((outcome) => outcome.status === 'rejected');
    expect(refusal?.reason).toBeInstanceOf(SealingError);
    expect(String(refusal?.reason)).toContain('.new ');
  });

  test('in a folder that does not exist is told', async () => {
    await expect(replaceFile(join(folder, 'none', 'x'), async () => 'x')).rejects.toThrow(
      join(folder, 'none'),
    );
  });
});

describe('a new identity', () => {
  test('is one that age takes, for this user alone', async () => {
    const identity = { file: join(folder, 'new.txt') };
    expect(await makeIdentity({ ...section, identity }, EARLY)).toBe(identity.file);
    expect((await stat(identity.file)).mode & 0o777).toBe(0o600);
    expect(await readFile(identity.file, 'utf8')).toContain(
      `# public key: ${await recipientOf(identity.file)}`,
    );
    section = { ...section, identity };
    await change('a', setTo(new Secret('one'), EARLY));
    expect(await inFile()).toEqual({ a: at('one', 1, EARLY) });
  });

  test('takes the place of none, and none is made for a file that it would not open', async () => {
    await expect(makeIdentity(section, EARLY)).rejects.toThrow(SealingError);
    const identity = { file: join(folder, 'new.txt') };
    await sealedWith(folder, 'a: { value: x }');
    await expect(makeIdentity({ ...section, identity }, EARLY)).rejects.toThrow(
      /a new identity would not open it/,
    );
    await expect(access(identity.file)).rejects.toThrow();
  });

  test('in a folder that does not exist is told, and nobody is sent to make the file', async () => {
    const identity = { file: join(folder, 'none', 'new.txt') };
    await expect(makeIdentity({ ...section, identity }, EARLY)).rejects.toThrow(
      `${join(folder, 'none')} does not exist: create this folder`,
    );
  });

  test('is not put into the environment', async () => {
    await expect(makeIdentity({ ...section, identity: { env: 'ID' } }, EARLY)).rejects.toThrow(
      /sealed\.identity .*\bID\b/,
    );
  });
});
