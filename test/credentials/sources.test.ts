import { execFileSync } from 'node:child_process';
import { chmod, chown, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { type ProcessContext, type Source, SourceReader } from '../../src/credentials/sources.ts';

const ROOT = 0;
const NOBODY = 65_534;
const uid = process.geteuid?.() ?? ROOT;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sources-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function secretFile(name: string, content: string | Buffer, mode = 0o600): Promise<string> {
  const file = join(folder, name);
  await writeFile(file, content);
  // Not as an option of writeFile, where the umask takes bits away.
  await chmod(file, mode);
  return file;
}

/** The secret, or what is wrong. */
function outcome(source: Source, context: Partial<ProcessContext> = {}): Promise<string> {
  return new SourceReader({ environment: {}, uid, ...context }, undefined).read(source).then(
    ({ secret }) => secret.reveal(),
    (error: Error) => error.message,
  );
}

describe('an environment variable', () => {
  test('is taken as it is', async () => {
    expect(await outcome({ env: 'KEY' }, { environment: { KEY: ' hunter2\n' } })).toBe(' hunter2\n');
  });

  test('that is not set is told by its name', async () => {
    expect(await outcome({ env: 'KEY' }, { environment: { OTHER: 'hunter2' } })).toBe(
      'the environment variable KEY is not set: set it for this process',
    );
  });

  test('that is empty is told by its name', async () => {
    expect(await outcome({ env: 'KEY' }, { environment: { KEY: '' } })).toBe(
      'the environment variable KEY is empty: put the secret there',
    );
  });
});

describe('a value', () => {
  test('is taken as it is', async () => {
    expect(await outcome({ value: new Secret('hunter2') })).toBe('hunter2');
  });

  test('that is empty is refused', async () => {
    expect(await outcome({ value: new Secret('') })).toBe('the value is empty: put the secret there');
  });
});

describe('the content of a file', () => {
  test.each([
    ['hunter2', 'hunter2'],
    ['hunter2\n', 'hunter2'],
    ['hunter2\r\n', 'hunter2'],
    ['hunter2\n\n', 'hunter2\n'],
    [' hunter2 ', ' hunter2 '],
    ['\uFEFFpässwörd\n', 'pässwörd'],
  ])('%j is the secret %j', async (content, secret) => {
    expect(await outcome({ file: await secretFile('content', content) })).toBe(secret);
  });

  test.each(['', '\n', '\r\n'])('%j is empty', async (content) => {
    const file = await secretFile('empty', content);
    expect(await outcome({ file })).toBe(`${file} is empty: put the secret there`);
  });

  test('that is not UTF-8 is refused', async () => {
    const file = await secretFile('latin1', Buffer.from('hünter2', 'latin1'));
    expect(await outcome({ file })).toBe(`${file} is not UTF-8 text: save it as UTF-8`);
  });

  test('up to 64 KiB is read, a byte more is refused', async () => {
    const file = await secretFile('large', 'x'.repeat(65_536));
    expect(await outcome({ file })).toHaveLength(65_536);
    await writeFile(file, 'x'.repeat(65_537));
    expect(await outcome({ file })).toBe(`${file} is larger than 65536 bytes: name the right file`);
  });
});

test('a file in a folder that does not exist says so', async () => {
  const file = join(folder, 'none', 'secret');
  expect(await outcome({ file })).toBe(
    `${file} is in a folder that does not exist: create the folder, or name another file`,
  );
});

test('a file that systemd loads says so while the unit does not run', async () => {
  const file = '/run/credentials/digest-gateway-test.service/secret';
  expect(await outcome({ file })).toBe(
    `${file} is in a folder that systemd makes for LoadCredential when it starts the unit: until then, use check --no-secrets`,
  );
});

describe('the mode of a file', () => {
  test.each([0o600, 0o400, 0o440, 0o640, 0o750])('%o is safe', async (mode) => {
    expect(await outcome({ file: await secretFile(`safe-${mode}`, 'hunter2', mode) })).toBe('hunter2');
  });

  test.each([0o644, 0o604, 0o444])('%o is refused', async (mode) => {
    const file = await secretFile(`open-${mode}`, 'hunter2', mode);
    expect(await outcome({ file })).toBe(
      `${file} can be read by others: run chmod 600 on it, or write { file: NAME, readableByOthers: true }`,
    );
  });

  test.each([0o644, 0o604, 0o444, 0o400])('%o is safe where others may read', async (mode) => {
    const file = await secretFile(`said-${mode}`, 'hunter2', mode);
    expect(await outcome({ file, readableByOthers: true })).toBe('hunter2');
  });

  test.each([0o602, 0o620, 0o660, 0o666, 0o777])(
    '%o is refused, even where others may read',
    async (mode) => {
      const file = await secretFile(`written-${mode}`, 'hunter2', mode);
      const message = `${file} can be written by others: run chmod`;
      expect(await outcome({ file })).toBe(`${message} 600 on it`);
      expect(await outcome({ file, readableByOthers: true })).toBe(`${message} go-w on it`);
    },
  );
});

describe('the owner of a file', () => {
  /** A file and a process of two users, neither of them root; needs no rights of root to arrange. */
  async function strangersFile(): Promise<[file: string, process: number]> {
    const file = await secretFile('owner', 'hunter2');
    if (uid === ROOT) {
      await chown(file, NOBODY, NOBODY);
      return [file, ROOT];
    }
    return [file, uid + 1];
  }

  test('may not be another user', async () => {
    const [file, process] = await strangersFile();
    // Root is told to run the command as the owner: chown to root would keep a gateway of the owner from reading it.
    expect(await outcome({ file }, { uid: process })).toBe(
      `${file} belongs to another user (uid ${uid === ROOT ? NOBODY : uid}), who could exchange it: run this as the user of the service, or make that user or root its owner`,
    );
  });

  test('may be the user of the process', async () => {
    const [file] = await strangersFile();
    expect(await outcome({ file }, { uid: uid === ROOT ? NOBODY : uid })).toBe('hunter2');
  });

  test('is not asked for where users have no numbers', async () => {
    const [file] = await strangersFile();
    const { secret } = await new SourceReader({ environment: {} }, undefined).read({ file });
    expect(secret.reveal()).toBe('hunter2');
  });
});

describe('a user who may not read it', () => {
  /** The message about a file in the folder for a user who is neither its owner nor of its group. */
  function messageOf(name: string): string {
    const script = `
      import { SourceReader } from '${new URL('../../src/credentials/sources.ts', import.meta.url)}';
      // Permissions do not stop root.
      if (process.getuid() === 0) process.setuid(${NOBODY});
      const reading = new SourceReader({ environment: {} }, undefined).read({ file: '${join(folder, name)}' });
      process.stdout.write(await reading.then(() => 'read', (error) => error.message));
    `;
    const args = ['--input-type=module', '-e', script];
    return execFileSync(process.execPath, args, { encoding: 'utf8' }).replace(`${join(folder, name)} `, '');
  }

  const closed = (name: string) =>
    `is behind the folder ${join(folder, name)}, which this user may not search: give this user the permission x on it`;

  beforeAll(async () => {
    await chmod(folder, 0o755);
    await mkdir(join(folder, 'closed/below'), { recursive: true });
    await secretFile('closed/below/secret', 'hunter2');
    await secretFile('closed-file', 'hunter2', 0o000);
    await symlink('closed/below/secret', join(folder, 'link'));
    await chmod(join(folder, 'closed'), 0o600);
  });
  // Without it, its owner could not remove what is in it.
  afterAll(() => chmod(join(folder, 'closed'), 0o700));

  test('gets the name of the first folder that is closed', () => {
    expect(messageOf('closed/below/secret')).toBe(closed('closed'));
  });

  test('gets that of a folder behind a link', () => {
    expect(messageOf('link')).toBe(closed('closed'));
  });

  test('is to own the file, or to be in its group, if every folder is open', () => {
    expect(messageOf('closed-file')).toBe(
      'may not be read by this user: run this as the user of the service, make that user its owner, or give its group read permission',
    );
  });
});

describe('a path', () => {
  test('that leads through links, as in Kubernetes, is followed', async () => {
    await mkdir(join(folder, '..2026'));
    await secretFile('..2026/key', 'hunter2', 0o440);
    await symlink('..2026', join(folder, '..data'));
    await symlink('..data/key', join(folder, 'key'));
    expect(await outcome({ file: join(folder, 'key') })).toBe('hunter2');
  });

  test('to nothing is told', async () => {
    const file = join(folder, 'none');
    expect(await outcome({ file })).toBe(`${file} does not exist: create it, or name another file`);
  });

  test('to a folder is told', async () => {
    expect(await outcome({ file: folder })).toBe(`${folder} is not a regular file: name one`);
  });

  test('to a named pipe is told at once, without waiting for a writer', async () => {
    const file = join(folder, 'pipe');
    execFileSync('mkfifo', ['-m', '600', file]);
    expect(await outcome({ file })).toBe(`${file} is not a regular file: name one`);
  });
});
