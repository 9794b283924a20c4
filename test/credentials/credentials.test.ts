import { mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { type Credential, CredentialVersions } from '../../src/credentials/credentials.ts';
import { CredentialError, type Credentials, readCredentials } from '../../src/credentials/reading.ts';
import { SourceReader } from '../../src/credentials/sources.ts';

const literal = (value: string) => ({ value: new Secret(value) });

type Sources = Parameters<typeof readCredentials>[0];

function read(sources: Sources, environment = {}, versions = new CredentialVersions()): Promise<Credentials> {
  return readCredentials(sources, new SourceReader({ environment }, undefined), versions);
}

async function failure(sources: Sources, environment = {}): Promise<CredentialError> {
  const error: unknown = await read(sources, environment).catch((reason: unknown) => reason);
  if (error instanceof CredentialError) {
    return error;
  }
  throw new Error('no CredentialError', { cause: error });
}

/** Reveals user name and secret. */
function contents(credential: Credential | undefined): unknown {
  if (credential === undefined) return undefined;
  const { version, username } = credential;
  if ('password' in credential) return { version, username, password: credential.password.reveal() };
  const { realm, hashes } = credential.ha1;
  return { version, username, realm, hashes: mapValues(hashes) };
}

function mapValues(hashes: Readonly<Partial<Record<string, Secret>>>) {
  return Object.fromEntries(Object.entries(hashes).map(([name, hash]) => [name, hash?.reveal()]));
}

const MD5 = '0123456789abcdef0123456789abcdef';
const SHA256 = MD5.repeat(2);

test('credentials are read by name', async () => {
  const sources = {
    one: { username: { env: 'U' }, password: { env: 'P' } },
    two: { username: literal('me'), password: { env: 'P' } },
  };
  const byName = await read(sources, { U: 'you', P: 'hunter2' });
  expect([...byName.keys()]).toEqual(['one', 'two']);
  expect(byName.get('one')).toMatchObject({ name: 'one', current: { name: 'one' }, next: undefined });
  expect(contents(byName.get('one')?.current)).toEqual({
    version: '1',
    username: 'you',
    password: 'hunter2',
  });
  expect(contents(byName.get('two')?.current)).toEqual({ version: '1', username: 'me', password: 'hunter2' });
});

describe('next', () => {
  const current = { username: { env: 'U' }, password: { env: 'P' } };
  const environment = { U: 'me', P: 'hunter2', NEXT: 'hunter3', HASH: MD5 };
  const nextOf = async (next: Sources[string]['next'] & object) =>
    contents((await read({ a: { ...current, next } }, environment)).get('a')?.next);

  test('is what it says, and the rest as it is', async () => {
    expect(await nextOf({ password: { env: 'NEXT' } })).toEqual({
      version: '2',
      username: 'me',
      password: 'hunter3',
    });
    expect(await nextOf({ username: { env: 'NEXT' } })).toEqual({
      version: '2',
      username: 'hunter3',
      password: 'hunter2',
    });
  });

  test('may be a hash in place of a password', async () => {
    expect(await nextOf({ ha1: { realm: 'r', md5: { env: 'HASH' } } })).toEqual({
      version: '2',
      username: 'me',
      realm: 'r',
      hashes: { MD5 },
    });
  });

  test('that is no other than the current one is none', async () => {
    expect(await nextOf({ password: { env: 'P' } })).toBeUndefined();
  });

  test('that cannot be read is told with its path', async () => {
    const error = await failure({ a: { ...current, next: { password: { env: 'NONE' } } } }, environment);
    expect(error.issues).toEqual([
      { path: ['credentials', 'a', 'next', 'password'], message: expect.stringContaining('NONE is not set') },
    ]);
  });
});

describe('a stored hash', () => {
  test('is read in any case, for each algorithm', async () => {
    const hashes = {
      md5: literal(MD5.toUpperCase()),
      sha256: literal(SHA256),
      'sha512-256': literal(SHA256),
    };
    const byName = await read({
      a: { username: literal('me'), ha1: { realm: 'r', ...hashes } },
    });
    expect(contents(byName.get('a')?.current)).toEqual({
      version: '1',
      username: 'me',
      realm: 'r',
      hashes: { MD5, 'SHA-256': SHA256, 'SHA-512-256': SHA256 },
    });
  });

  test.each(['hunter2', SHA256, `${MD5.slice(1)}g`])(
    'that is none is told and not quoted: %s',
    async (text) => {
      const error = await failure({
        a: { username: literal('me'), ha1: { realm: 'r', md5: literal(text) } },
      });
      expect(error.message).toBe(
        'credentials.a.ha1.md5: is not a hash: give H(username:realm:password) in 32 hex digits',
      );
    },
  );
});

describe('the version', () => {
  const environment = { U: 'me', P: 'hunter2', NEXT: 'hunter3' };
  const plain = { username: { env: 'U' }, password: { env: 'P' } };
  const rotating = { ...plain, next: { password: { env: 'NEXT' } } };

  const pairs = (byName: Credentials) => {
    const set = byName.get('a');
    return [set?.current.version, set?.next?.version];
  };

  test('stays while the content does, and is raised with it', async () => {
    const versions = new CredentialVersions();
    const seen = [];
    for (const P of ['hunter2', 'hunter2', 'hunter3', 'hunter3']) {
      seen.push(pairs(await read({ a: plain }, { ...environment, P }, versions))[0]);
    }
    seen.push(pairs(await read({ a: plain }, { ...environment, P: 'hunter3', U: 'you' }, versions))[0]);
    expect(seen).toEqual(['1', '1', '2', '2', '3']);
  });

  test('is kept by what was next when it takes its place, and by what comes back', async () => {
    const versions = new CredentialVersions();
    expect(pairs(await read({ a: rotating }, environment, versions))).toEqual(['1', '2']);
    const promoted = { ...environment, P: 'hunter3' };
    expect(pairs(await read({ a: rotating }, promoted, versions))).toEqual(['2', undefined]);
    expect(pairs(await read({ a: rotating }, { ...promoted, NEXT: 'hunter4' }, versions))).toEqual([
      '2',
      '3',
    ]);
    expect(pairs(await read({ a: plain }, environment, versions))).toEqual(['1', undefined]);
  });

  test('of one credential says nothing of another that has the same password', async () => {
    const byName = await read({ a: rotating, b: plain }, { ...environment, P: 'hunter2' });
    expect(byName.get('b')?.current.version).toBe('1');
  });
});

test('files that are exchanged together are read together', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'credentials-'));
  /** As Kubernetes does it: a link that is exchanged leads to all files of a secret. */
  const exchange = async (round: number): Promise<void> => {
    const version = await mkdtemp(join(folder, 'version-'));
    await writeFile(join(version, 'password'), `${round}`, { mode: 0o600 });
    await writeFile(join(version, 'next'), `${round + 1}`, { mode: 0o600 });
    await symlink(version, join(folder, 'new'));
    await rename(join(folder, 'new'), join(folder, 'now'));
  };
  const file = (name: string) => ({ file: join(folder, 'now', name) });
  const sources = {
    a: { username: literal('u'), password: file('password'), next: { password: file('next') } },
  };
  const steps: unknown[] = [];
  await exchange(0);
  for (let round = 1; round <= 100; round += 1) {
    const exchanged = exchange(round);
    for (let reads = 0; reads < 5; reads += 1) {
      const set = (await read(sources)).get('a');
      const [current, next] = [contents(set?.current), contents(set?.next)] as { password: string }[];
      steps.push(Number(next?.password) - Number(current?.password));
    }
    await exchanged;
  }
  expect(new Set(steps)).toEqual(new Set([1]));
  await rm(folder, { recursive: true });
});

test('all that is wrong is told at once, each with its path', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'credentials-'));
  try {
    const file = join(folder, 'open');
    await writeFile(file, 'hunter2', { mode: 0o644 });
    const sources = {
      a: { username: { env: 'U' }, password: { file } },
      b: { username: literal('me\nhunter2'), password: literal('') },
      c: { username: literal('me'), password: { env: 'P' } },
    };
    const error = await failure(sources, { P: 'hunter2' });
    expect(error.issues).toEqual([
      { path: ['credentials', 'a', 'username'], message: expect.stringContaining('U is not set') },
      { path: ['credentials', 'a', 'password'], message: expect.stringContaining('chmod 600') },
      {
        path: ['credentials', 'b', 'username'],
        message: 'holds a control character, such as a line break: remove it',
      },
      { path: ['credentials', 'b', 'password'], message: 'the value is empty: put the secret there' },
    ]);
    expect(error.message.split('\n')[3]).toBe(
      'credentials.b.password: the value is empty: put the secret there',
    );
    expect(`${inspect(error, { depth: null })}${JSON.stringify(error)}`).not.toContain('hunter2');
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('a password in the configuration itself is read, and not quoted', async () => {
  const credentials = await read({ a: { username: literal('me'), password: literal('hunter2') } });
  expect(contents(credentials.get('a')?.current)).toMatchObject({ password: 'hunter2' });
  expect(`${inspect(credentials, { depth: null })}${JSON.stringify(credentials)}`).not.toContain('hunter2');
});

test.each(['a\tb', 'a\u0000', 'a\u007f', 'a\u0085'])(
  'the user name %j cannot stand in a header',
  async (name) => {
    const error = await failure({ a: { username: literal(name), password: literal('x') } });
    expect(error.message).toBe(
      'credentials.a.username: holds a control character, such as a line break: remove it',
    );
  },
);

test.each(['a b', 'Jürgen', 'a:b', 'a"b\\c', '猫'])('the user name %j is right', async (name) => {
  const byName = await read({ a: { username: literal(name), password: literal('x') } });
  expect(byName.get('a')?.current.username).toBe(name);
});
