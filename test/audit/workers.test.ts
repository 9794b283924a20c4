import { cp, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from '@jest/globals';
import type { Audit, AuditOptions } from '../../src/audit/audit.ts';
import type { PlacedFinding } from '../../src/audit/findings.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import type { Query } from '../../src/audit/reader/query.ts';
import { allRecords, search } from '../../src/audit/reader/search.ts';
import type { Verified } from '../../src/audit/reader/verify.ts';
import { RecordText, recordLine } from '../../src/audit/record.ts';
import { BrokenLinkError, processOf } from '../../src/audit/replica-name.ts';
import { formatHead, GENESIS, type Head, parseHead, sealFor, sealLine } from '../../src/audit/seal.ts';
import { foldersIn, headerLine } from '../../src/audit/segments/segment.ts';
import { Secret } from '../../src/base/secret.ts';
import {
  AUDIT_KEY,
  facts,
  openTestAudit,
  recordAccess,
  recordsIn,
  useFolders,
} from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';

const folder = useFolders();
const keys = [auditKeys(new Secret(AUDIT_KEY))] as const;
const FIRST = '000000000001.jsonl';
const DAY = 86_400_000;
const FLEET = ['r1', 'r1@1', 'r1@2'];

async function open(directory: string, replica: string, change: Partial<AuditOptions> = {}): Promise<Audit> {
  const { audit } = await openTestAudit(directory, { replica, ...change });
  closing.push(() => audit.close());
  return audit;
}

/** Two requests of each process, `r1@2-a` and `r1@2-b`, with times that differ; the processes take turns. */
async function writeLogs(directory: string, names: readonly string[] = FLEET): Promise<void> {
  const audits: Audit[] = [];
  // The primary process opens its log first.
  for (const name of names) audits.push(await open(directory, name));
  for (const part of ['a', 'b']) {
    for (const [index, audit] of audits.entries()) await answer(audit, `${names[index]}-${part}`);
  }
  await Promise.all(audits.map((audit) => audit.close()));
}

async function answer(audit: Audit, requestId: string): Promise<void> {
  const now = new Date().toISOString();
  while (new Date().toISOString() <= now);
  const access = await new Promise<number>((resolve, reject) => {
    const seq = audit.access(facts({ requestId }), { recorded: () => resolve(seq), unrecorded: reject });
  });
  const bytes = { in: 0, out: 5 };
  audit.outcome({ access, requestId, status: 206, code: '', outcome: '', bytes, durationMs: 1 });
}

function check(directory: string, heads: readonly Head[] = [], replica?: string): Promise<Verified> {
  return verified(directory, { replica, heads });
}

async function found(directory: string, query: Query): Promise<string[]> {
  const results: string[] = [];
  const refuse = ({ message }: PlacedFinding): never => {
    throw new Error(message);
  };
  const events = { onBytes: () => undefined, onUnreadable: refuse, onNote: refuse };
  for await (const each of search({ directory, keys, query, ...events })) {
    if ('access' in each) results.push(`${each.access.requestId} ${each.outcome?.status}`);
  }
  return results;
}

describe('audit verify', () => {
  test('checks the chain of each process on its own', async () => {
    const directory = await folder();
    await writeLogs(directory);
    const whole = await check(directory);
    expect(whole).toMatchObject({ alterations: [], notes: [], replicas: 1, workers: 2, records: 12 });
    expect(whole.heads.map(({ replica, seq }) => [replica, seq])).toEqual(FLEET.map((name) => [name, 4]));

    const file = join(directory, 'r1@2', FIRST);
    await writeFile(file, (await readFile(file, 'utf8')).replace('192.0.2.7', '192.0.2.8'));
    expect(await check(directory)).toMatchObject({
      alterations: [{ replica: 'r1@2', segment: FIRST, line: 3, kind: 'batch-altered' }],
      replicas: 1,
      workers: 2,
    });
    expect((await check(directory, [], 'r1')).alterations).toHaveLength(1);
    expect(await check(directory, [], 'r1@1')).toMatchObject({ alterations: [], workers: 1, records: 4 });
  });

  test('finds by its head that the log of a worker was cut off, or is gone', async () => {
    const directory = await folder();
    await writeLogs(directory);
    const { heads } = await check(directory);
    expect(heads.map(formatHead).map(parseHead)).toEqual(heads);
    const file = join(directory, 'r1@1', FIRST);
    const lines = (await readFile(file, 'utf8')).split('\n');
    const end = lines.findLastIndex((line) => line.startsWith('{"seq":'));
    await writeFile(
      file,
      lines
        .slice(0, end)
        .map((line) => `${line}\n`)
        .join(''),
    );
    expect((await check(directory)).alterations).toEqual([]);
    const cut = {
      replica: 'r1@1',
      segment: '',
      kind: 'log-truncated',
      facts: { seq: 4, source: '--head', end: 3 },
    };
    expect((await check(directory, heads)).alterations).toMatchObject([cut]);
    await rm(join(directory, 'r1@2'), { recursive: true });
    const gone = { replica: 'r1@2', segment: '', kind: 'log-missing', facts: { process: 'worker' } };
    expect((await check(directory, heads)).alterations).toMatchObject([cut, gone]);
    expect((await check(directory, heads, 'r1@2')).alterations).toMatchObject([gone]);
    expect((await check(directory, heads, 'r1@1')).alterations).toMatchObject([cut]);
  });

  test('finds that the log of the primary process is gone, and that it was begun anew', async () => {
    const directory = await folder();
    await writeLogs(directory);
    await rm(join(directory, 'r1'), { recursive: true });
    const gone = { replica: 'r1', segment: '', line: 0, kind: 'primary-missing' };
    for (const replica of [undefined, 'r1', 'r1@2']) {
      expect((await check(directory, [], replica)).alterations).toMatchObject([gone]);
    }
    const { audit, logged } = await openTestAudit(directory);
    expect(audit.integrityError).toMatchObject({ replica: 'r1', kind: 'primary-missing' });
    await audit.close();
    expect(await check(directory)).toMatchObject({
      alterations: [{ replica: 'r1', kind: 'log-begun-anew' }],
    });
    expect(logged).toContainEqual(expect.objectContaining({ level: 50 }));
  });

  describe('finds by the log of the primary process that the log of a worker', () => {
    let directory: string;
    let primary: Audit;
    let head: Head;

    /** The primary records that a worker has written three records, and has ended. */
    beforeEach(async () => {
      directory = await folder();
      primary = await open(directory, 'r1');
      primary.admin('start', {});
      const worker = await open(directory, 'r1@1');
      const heads: string[] = [];
      for (let index = 0; index < 3; index += 1) {
        await recordAccess(worker);
        if (worker.head === undefined) throw new Error('nothing is sealed');
        head = worker.head;
        heads.push(formatHead(head));
        if (index > 0)
          primary.admin('worker-heads', { heads: heads.slice(-1), ...(index === 2 && { ended: true }) });
      }
      await worker.close();
    });

    /** Cuts the records from this one on off. */
    async function cut(from: number): Promise<void> {
      const file = join(directory, 'r1@1', FIRST);
      const text = await readFile(file, 'utf8');
      await writeFile(file, text.slice(0, text.indexOf(`{"seq":${from},`)));
    }

    async function found(): Promise<readonly PlacedFinding[]> {
      await primary.close();
      return (await check(directory)).alterations;
    }

    test('is whole', async () => {
      expect(await found()).toEqual([]);
    });

    test('is gone', async () => {
      await rm(join(directory, 'r1@1'), { recursive: true });
      expect(await found()).toMatchObject([
        { replica: 'r1@1', kind: 'log-missing', facts: { process: 'worker' } },
      ]);
    });

    test('was cut off, which a loss that is known explains', async () => {
      await cut(3);
      const facts = { seq: 3, source: 'the log of r1', end: 2, loss: formatHead(head) };
      const cutOff = { replica: 'r1@1', kind: 'log-truncated', facts: { ...facts, known: false } };
      expect(await found()).toMatchObject([cutOff]);
      const known = await verified(directory, { knownLosses: [head] });
      expect(known).toMatchObject({
        alterations: [],
        notes: [{ ...cutOff, facts: { ...facts, known: true } }],
      });
    });

    test('was cut off before another process went on with it', async () => {
      await cut(2);
      const worker = await open(directory, 'r1@1');
      for (let index = 0; index < 4; index += 1) await recordAccess(worker);
      const heads = worker.head === undefined ? [] : [formatHead(worker.head)];
      primary.admin('worker-heads', { heads });
      await worker.close();
      expect(await found()).toMatchObject([
        { replica: 'r1@1', kind: 'log-rewritten', facts: { seq: 3, source: 'the log of r1' } },
      ]);
    });

    test('was retired up to that record', async () => {
      const next = await open(directory, 'r1@1', { segment: { size: 1, age: 1e9, keep: 1e9 } });
      await recordAccess(next);
      await next.close();
      const last = await open(directory, 'r1@1', { segment: { size: 1e9, age: 1e9, keep: 1 } });
      await recordAccess(last);
      await last.close();
      expect(await readdir(join(directory, 'r1@1'))).not.toContain(`${FIRST}.zst`);
      expect(await found()).toEqual([]);
    });
  });

  test('takes the log of one process for that of another as an alteration', async () => {
    const directory = await folder();
    await writeLogs(directory);
    await rm(join(directory, 'r1@2'), { recursive: true });
    await cp(join(directory, 'r1@1'), join(directory, 'r1@2'), { recursive: true });
    expect((await check(directory)).alterations[0]).toMatchObject({
      replica: 'r1@2',
      kind: 'replica-mismatch',
      facts: { replica: 'r1@1' },
    });
  });

  test('accepts that a fleet shrinks, and grows again', async () => {
    const directory = await folder();
    await writeLogs(directory, [...FLEET, 'r1@3', 'r1@4']);
    const { heads } = await check(directory);
    await writeLogs(directory, FLEET);
    const shrunk = await check(directory, heads);
    expect(shrunk).toMatchObject({ alterations: [], notes: [], replicas: 1, workers: 4 });
    await writeLogs(directory, [...FLEET, 'r1@3', 'r1@4', 'r1@5']);
    expect(await check(directory, [...heads, ...shrunk.heads])).toMatchObject({
      alterations: [],
      notes: [],
      workers: 5,
    });
  });

  test('accepts the worker of a replica with the longest name', async () => {
    const directory = await folder();
    const name = `${'r'.repeat(64)}@9999`;
    const names = [processOf(name).replica, name];
    await writeLogs(directory, names);
    await writeLogs(directory, names);
    const result = await check(directory);
    expect(result).toMatchObject({ alterations: [], notes: [], segments: 2, records: 16 });
    expect(result.heads.map(formatHead).map(parseHead)).toEqual(result.heads);
  });
});

describe('the requests of a replica', () => {
  test('are found in order of time over all its processes, each with its outcome', async () => {
    const directory = await folder();
    await writeLogs(directory);
    const expected = ['a', 'b'].flatMap((part) => FLEET.map((name) => `${name}-${part} 206`));
    expect(await found(directory, {})).toEqual(expected);
    expect(await found(directory, { replica: 'r1' })).toEqual(expected);
    expect(await found(directory, { replica: 'r1@2' })).toEqual(['r1@2-a 206', 'r1@2-b 206']);
    expect(await found(directory, { replica: 'r1', requestId: 'r1@1-b' })).toEqual(['r1@1-b 206']);
  });

  test('are not those of a replica with a similar name', async () => {
    const directory = await folder();
    await writeLogs(directory, ['r1', 'r1@1', 'r10', 'r1-b', 'r1-b@1']);
    expect(await found(directory, { replica: 'r1' })).toEqual(
      ['r1-a', 'r1@1-a', 'r1-b', 'r1@1-b'].map((id) => `${id} 206`),
    );
    expect(await found(directory, { replica: 'r1@10' })).toEqual([]);
  });

  test('are exported as one log in order of time', async () => {
    const directory = await folder();
    await writeLogs(directory, [...FLEET, 'r2']);
    const ignore = (): void => undefined;
    const events = { onBytes: ignore, onUnreadable: ignore, onNote: ignore };
    const records: { time: string; replica: string; requestId: string }[] = [];
    for await (const { line } of allRecords({ directory, keys, query: { replica: 'r1' }, ...events })) {
      records.push(JSON.parse(line));
    }
    expect(records).toHaveLength(12);
    expect(records.map(({ time }) => time)).toEqual(records.map(({ time }) => time).sort());
    expect(records.every(({ replica, requestId }) => requestId.startsWith(`${replica}-`))).toBe(true);
  });
});

test('lists the folders by replica and number of the worker', async () => {
  const directory = await folder();
  const names = ['lost+found', 'r1', 'r1@2', 'r1@10', 'r10', 'r2', 'r2@1'];
  for (const name of names.toReversed()) await mkdir(join(directory, name));
  expect(await foldersIn(directory)).toEqual(names);
  expect(await foldersIn(directory, 'r1')).toEqual(['r1', 'r1@2', 'r1@10']);
  expect(await foldersIn(directory, 'r1@2')).toEqual(['r1@2']);
  expect(await foldersIn(join(directory, 'absent'))).toEqual([]);
});

describe('a folder that is a link', () => {
  test('is read as the folder that it leads to', async () => {
    const [directory, disk] = [await folder(), await folder()];
    await writeLogs(directory);
    for (const name of ['r1', 'r1@1']) {
      await rename(join(directory, name), join(disk, name));
      await symlink(join(disk, name), join(directory, name));
    }
    expect(await foldersIn(directory)).toEqual(FLEET);
    expect(await check(directory)).toMatchObject({ alterations: [], replicas: 1, workers: 2 });
    expect(await found(directory, { requestId: 'r1@1-a' })).toHaveLength(1);
  });

  test.each([
    ['nowhere', 'absent'],
    ['to a file', 'file'],
    ['to itself', 'r1@1'],
  ])('is not left out if it leads %s', async (_title, target) => {
    const directory = await folder();
    await writeLogs(directory, ['r1']);
    await writeFile(join(directory, 'file'), '');
    const link = join(directory, 'r1@1');
    await symlink(target, link);
    await expect(check(directory)).rejects.toThrow(`${link} is a link that leads to no folder`);
    await expect(foldersIn(directory, 'r1')).rejects.toThrow(BrokenLinkError);
    expect(await foldersIn(directory, 'r2')).toEqual([]);
  });
});

describe('a link that is no log', () => {
  test.each([
    ['with a name that no process can have', '.#draft', 'absent'],
    ['to a folder of the directory, which has another name', 'latest', 'r1'],
    ['to a folder that is in the directory as a link', 'latest', 'r1@1'],
  ])('is left out: one %s', async (_title, name, target) => {
    const [directory, disk] = [await folder(), await folder()];
    await writeLogs(directory);
    await rename(join(directory, 'r1@1'), join(disk, 'r1@1'));
    await symlink(join(disk, 'r1@1'), join(directory, 'r1@1'));
    await symlink(target, join(directory, name));
    expect(await foldersIn(directory)).toEqual(FLEET);
    expect(await check(directory)).toMatchObject({ alterations: [], replicas: 1 });
  });
});

test('a new primary process starts beside a link of a worker that leads nowhere, and says that its log is new', async () => {
  const directory = await folder();
  await symlink('absent', join(directory, 'r1@5'));
  const { audit } = await openTestAudit(directory);
  expect(audit.integrityError).toMatchObject({ replica: 'r1', kind: 'primary-missing' });
  await audit.close();
});

test('takes only a number from 1 on for that of a worker', () => {
  expect(processOf('r1@12')).toEqual({ replica: 'r1', worker: 12 });
  for (const replica of ['r1', 'r1@0', 'r1@01', 'r1@', 'r1@1@2', 'r1@10000']) {
    expect(processOf(replica)).toEqual({ replica, worker: 0 });
  }
});

test('removes the old records of a process that gets no more', async () => {
  const directory = await folder();
  await writeLogs(directory);
  const segment = { size: 2 ** 28, age: 1, keep: 1 };
  for (const name of (await foldersIn(directory, 'r1')).filter((each) => processOf(each).worker > 1)) {
    await open(directory, name, { segment });
  }
  await until(async () => !(await readdir(join(directory, 'r1@2'))).includes(FIRST));
  await closing.at(-1)?.();
  expect(await readdir(join(directory, 'r1@1'))).toContain(FIRST);
  expect((await recordsIn(directory, 'r1@2')).every(({ kind }) => kind === 'admin')).toBe(true);
  expect(await check(directory)).toMatchObject({ alterations: [], workers: 2 });
});

test('counts the age of a segment from its begin, whichever process began it', async () => {
  const directory = await folder();
  const opened = new Date(Date.now() - 2 * DAY).toISOString();
  const header = headerLine({ replica: 'r1', first: 1, previous: GENESIS, key: keys[0].id, opened });
  const record = recordLine(1, opened, new RecordText('r1').admin('start', {}));
  const opening = sealFor(
    keys[0],
    { replica: 'r1', previous: GENESIS },
    { first: 1, last: 0 },
    Buffer.from(header),
  );
  const seal = sealFor(
    keys[0],
    { replica: 'r1', previous: opening.hmac },
    { first: 1, last: 1 },
    Buffer.from(record),
  );
  await mkdir(join(directory, 'r1'));
  await writeFile(join(directory, 'r1', FIRST), header + sealLine(opening) + record + sealLine(seal));
  await open(directory, 'r1', { segment: { size: 2 ** 28, age: DAY, keep: 7 * DAY } });
  await until(async () => (await readdir(join(directory, 'r1'))).includes('000000000002.jsonl'));
  await closing.at(-1)?.();
  expect(await check(directory)).toMatchObject({ alterations: [], notes: [], segments: 2, records: 1 });
});
