import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { CredentialError, readCredentials } from '../../src/credentials/credentials.ts';

const literal = (value: string) => ({ value: new Secret(value) });

async function failure(
  sources: Parameters<typeof readCredentials>[0],
  environment = {},
): Promise<CredentialError> {
  const error: unknown = await readCredentials(sources, { environment }).catch((reason: unknown) => reason);
  if (error instanceof CredentialError) {
    return error;
  }
  throw new Error('no CredentialError', { cause: error });
}

test('credentials are read by name', async () => {
  const sources = {
    one: { username: { env: 'U' }, password: { env: 'P' } },
    two: { username: literal('me'), password: { env: 'P' } },
  };
  const { byName, warnings } = await readCredentials(sources, { environment: { U: 'you', P: 'hunter2' } });
  expect([...byName.keys()]).toEqual(['one', 'two']);
  expect([byName.get('one')?.username, byName.get('two')?.username]).toEqual(['you', 'me']);
  expect(byName.get('one')).toMatchObject({ name: 'one', version: '1' });
  expect(byName.get('one')?.password.reveal()).toBe('hunter2');
  expect(warnings).toEqual([]);
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
    expect(error.findings).toEqual([
      { path: ['credentials', 'a', 'username'], message: expect.stringContaining('U is not set') },
      { path: ['credentials', 'a', 'password'], message: expect.stringContaining('chmod 600') },
      { path: ['credentials', 'b', 'password'], message: 'the value is empty: put the secret there' },
      {
        path: ['credentials', 'b', 'username'],
        message: 'holds a control character, such as a line break: remove it',
      },
    ]);
    expect(error.message.split('\n')[2]).toBe(
      'credentials.b.password: the value is empty: put the secret there',
    );
    expect(`${inspect(error, { depth: null })}${JSON.stringify(error)}`).not.toContain('hunter2');
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('a password in the configuration itself is read with a warning that does not quote it', async () => {
  const credentials = await readCredentials(
    { a: { username: literal('me'), password: literal('hunter2') } },
    { environment: {} },
  );
  expect(credentials.warnings).toEqual([
    {
      path: ['credentials', 'a', 'password'],
      message: 'stands in the configuration itself: use env or file',
    },
  ]);
  expect(credentials.byName.get('a')?.password.reveal()).toBe('hunter2');
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
  const { byName } = await readCredentials(
    { a: { username: literal(name), password: literal('x') } },
    { environment: {} },
  );
  expect(byName.get('a')?.username).toBe(name);
});
