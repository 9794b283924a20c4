import { mkdir, mkdtemp, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { FileWatch } from '../../src/base/file-watch.ts';
import { CredentialVersions } from '../../src/credentials/credentials.ts';
import { type CredentialSources, readCredentials, watchCredentials } from '../../src/credentials/reading.ts';
import type { SealedSection } from '../../src/credentials/sealed-file.ts';
import { SourceReader } from '../../src/credentials/sources.ts';
import { until } from '../support/until.ts';
import { sealedWith } from './sealed-section.ts';

/** How often the user name was asked for: once in each reading of everything. */
let readings = 0;
const context = {
  environment: {
    get U() {
      readings += 1;
      return 'me';
    },
  },
};

let folder: string;
let watches: FileWatch[] = [];

beforeEach(async () => {
  readings = 0;
  folder = await mkdtemp(join(tmpdir(), 'watch-'));
});
afterEach(async () => {
  for (const watch of watches) await watch.close();
  watches = [];
  await rm(folder, { recursive: true });
});

interface Watched {
  /** Version and password of the credential `a`, and of what is next, at each callback. */
  readonly changes: string[][];
  readonly errors: string[];
  readonly watch: FileWatch;
  /** Resolves when there were so many callbacks of either kind. */
  seen(changes: number, errors?: number): Promise<unknown>;
}

/** Watches a credential `a` with this password. */
async function watched(
  password: CredentialSources['password'] & object,
  { sealed, before }: { sealed?: SealedSection; before?: () => Promise<void> } = {},
): Promise<Watched> {
  const credentials = { a: { username: { env: 'U' }, password } };
  const versions = new CredentialVersions();
  const byName = await readCredentials(credentials, new SourceReader(context, sealed), versions);
  await before?.();
  const changes: string[][] = [];
  const errors: string[] = [];
  let last = '';
  const watch = watchCredentials({
    credentials,
    sealed,
    context,
    versions,
    inUse: () => byName,
    onChange: async (found) => {
      const set = found.get('a');
      changes.push(
        [set?.current, set?.next].flatMap((one) =>
          one !== undefined && 'password' in one ? `${one.version}:${one.password.reveal()}` : [],
        ),
      );
      return true;
    },
    onRead: (issues) => {
      const reason = issues.join('\n');
      if (reason !== '' && reason !== last) errors.push(reason);
      last = reason;
    },
    intervalMs: 10,
  });
  watches.push(watch);
  const seen = (want: number, wanted = 0) => until(() => changes.length >= want && errors.length >= wanted);
  return { changes, errors, watch, seen };
}

async function file(content: string): Promise<string> {
  const name = join(folder, 'secret');
  await writeFile(name, content, { mode: 0o600 });
  return name;
}

describe('a file that changes is noticed', () => {
  test('when another takes its name', async () => {
    const name = await file('one');
    const { changes, seen } = await watched({ file: name });
    await writeFile(`${name}.new`, 'two', { mode: 0o600 });
    await rename(`${name}.new`, name);
    await seen(1);
    expect(changes).toEqual([['2:two']]);
  });

  test('when it is written in place, with as many bytes as before', async () => {
    const name = await file('one');
    const { changes, seen } = await watched({ file: name });
    await writeFile(name, 'two');
    await seen(1);
    await writeFile(name, 'six');
    await seen(2);
    expect(changes).toEqual([['2:two'], ['3:six']]);
  });

  test('when a link on the way to it is exchanged, as Kubernetes does', async () => {
    for (const [version, content] of [
      ['..one', 'one'],
      ['..two', 'two'],
    ] as const) {
      await mkdir(join(folder, version));
      await writeFile(join(folder, version, 'key'), content, { mode: 0o644 });
    }
    await symlink('..one', join(folder, '..data'));
    await symlink('..data/key', join(folder, 'key'));
    const { changes, seen } = await watched({ file: join(folder, 'key'), readableByOthers: true });
    await symlink('..two', join(folder, '..data_tmp'));
    await rename(join(folder, '..data_tmp'), join(folder, '..data'));
    await rm(join(folder, '..one'), { recursive: true });
    await seen(1);
    expect(changes).toEqual([['2:two']]);
  });

  test('when it goes away and comes back with another content', async () => {
    const name = await file('one');
    const { changes, errors, seen } = await watched({ file: name });
    await rm(name);
    await seen(0, 1);
    expect(errors).toEqual([
      `credentials.a.password: ${name} does not exist: create it, or name another file`,
    ]);
    await file('two');
    await seen(1);
    expect([changes, errors.length]).toEqual([[['2:two']], 1]);
  });

  test('when it was changed between the reading and the watch', async () => {
    const name = await file('one');
    const { changes, seen } = await watched({ file: name }, { before: () => writeFile(name, 'two') });
    await seen(1);
    expect(changes).toEqual([['2:two']]);
  });

  test('when it is the sealed file, or a value waits in it', async () => {
    const section = await sealedWith(folder, 'a: { value: one, version: 4 }');
    const { changes, seen } = await watched({ sealed: 'a' }, { sealed: section });
    await sealedWith(folder, 'a: { value: one, version: 4, next: { value: two, version: 5 } }');
    await seen(1);
    await sealedWith(folder, 'a: { value: two, version: 5 }');
    await seen(2);
    expect(changes).toEqual([['4:one', '5:two'], ['5:two']]);
  });
});

describe('a file that cannot be used', () => {
  test('is told once for each reason, while the old content stays', async () => {
    const name = await file('one');
    const { changes, errors, seen } = await watched({ file: name });
    await truncate(name);
    await seen(0, 1);
    await writeFile(name, Buffer.from([0xff]));
    await seen(0, 2);
    expect(errors).toEqual([
      `credentials.a.password: ${name} is empty: put the secret there`,
      `credentials.a.password: ${name} is not UTF-8 text: save it as UTF-8`,
    ]);
    await writeFile(name, 'two');
    await seen(1);
    expect(changes).toEqual([['2:two']]);
  });
});

test('the same content in another file is no change', async () => {
  const name = await file('one');
  const { changes, seen } = await watched({ file: name });
  await until(() => readings === 2);
  await writeFile(`${name}.new`, 'one\n', { mode: 0o600 });
  await rename(`${name}.new`, name);
  await until(() => readings === 3);
  await writeFile(name, 'two');
  await seen(1);
  expect(changes).toEqual([['2:two']]);
});

test('nothing is told after the end, and no timer is left', async () => {
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const before = timers();
  const name = await file('one');
  const { changes, errors, watch, seen } = await watched({ file: name });
  await writeFile(name, 'two');
  await seen(1);
  await until(() => timers() > before);
  await watch.close();
  expect(timers()).toBe(before);
  expect([changes.length, errors.length]).toEqual([1, 0]);
});
