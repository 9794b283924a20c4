import { rmSync } from 'node:fs';
import { appendFile, cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { PlacedFinding } from '../../src/audit/findings.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import type { Verified } from '../../src/audit/reader/verify.ts';
import type { Head } from '../../src/audit/seal.ts';
import { Secret } from '../../src/base/secret.ts';
import {
  AUDIT_KEY,
  openTestAudit,
  REPLICA,
  recordAccess,
  segmentText,
  useFoldersOfAll,
} from '../support/audit-log.ts';
import { newSigningKey } from '../support/signing-key.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';

/** A log of several segments, each: header and its seal, then a record and its seal in turns. */
let original: string;
let directory: string;
let head: Head | undefined;

const newFolder = useFoldersOfAll();

beforeAll(async () => {
  // A record that a busy disk delays shares its batch with the next one, and so its segment.
  await until(async () => {
    original = await newFolder();
    return wroteNine(original);
  });
  const { alterations, segments, records, heads } = await check(original);
  expect([alterations, segments > 3, records]).toEqual([[], true, 9]);
  [head] = heads;
});

/** Writes records into a log, one after the other; false: one of them was late. */
async function wroteNine(folder: string): Promise<boolean> {
  const { audit } = await openTestAudit(folder, { segment: { size: 1200, age: 1e9, keep: 1e9 } });
  let inTime = true;
  for (let index = 0; index < 9; index += 1) {
    inTime = (await recordAccess(audit, { requestId: `q${index}` })) && inTime;
  }
  await audit.close();
  return inTime;
}

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'verify-'));
  await cp(original, directory, { recursive: true });
});
afterEach(() => rm(directory, { recursive: true }));

function check(place: string, heads: readonly Head[] = [], key = AUDIT_KEY): Promise<Verified> {
  return verified(place, { keys: [auditKeys(new Secret(key))], heads });
}

async function names(): Promise<string[]> {
  return (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
}

/** Writes the segment's lines anew, as whoever has the directory could. */
async function rewrite(index: number, change: (lines: string[]) => string[]): Promise<string> {
  const name = (await names())[index] ?? '';
  const text = await segmentText(directory, name);
  await rm(join(directory, REPLICA, name));
  const plain = name.replace('.zst', '');
  await writeFile(join(directory, REPLICA, plain), `${change(text.trimEnd().split('\n')).join('\n')}\n`);
  return plain;
}

async function found(heads: readonly Head[] = []): Promise<readonly PlacedFinding[]> {
  return (await check(directory, heads)).alterations;
}

test('judges a short line by itself, not by the line behind it', async () => {
  const name = await rewrite(1, (lines) => lines.toSpliced(2, 0, 'x', 'yza'));
  expect(await found()).toContainEqual(
    expect.objectContaining({ segment: name, line: 3, kind: 'line-invalid' }),
  );
});

test('reads a log again if a segment is removed while it is read, as at its end of life', async () => {
  const [first = '', second = ''] = await names();
  const onBytes = (): void => {
    for (const name of [first, second]) rmSync(join(directory, REPLICA, name), { force: true });
  };
  const { alterations } = await verified(directory, { onBytes });
  // The log is judged as it is now, not as it was when the reading began.
  expect(alterations).toEqual(await found());
  expect(alterations.map(({ kind }) => kind)).toEqual(['segment-missing']);
});

test('compresses closed segments without changing their content', async () => {
  const all = await names();
  expect(all.slice(0, -1).every((name) => name.endsWith('.jsonl.zst'))).toBe(true);
  await rewrite(0, (lines) => lines);
  expect(await found()).toEqual([]);
});

describe('finds by segment and line', () => {
  const at = (lines: string[], index: number): string => lines[index] ?? '';

  test('a changed byte in a record', async () => {
    const segment = await rewrite(1, (lines) =>
      lines.with(4, at(lines, 4).replace('192.0.2.7', '192.0.2.8')),
    );
    expect(await found()).toMatchObject([
      { segment, line: 5, kind: 'batch-altered', facts: { from: 5, to: 5 } },
    ]);
  });

  test.each([
    ['hash', /"sha256":"./],
    ['HMAC', /"hmac":"./],
  ])('a changed %s in a seal', async (_title, part) => {
    const segment = await rewrite(0, (lines) =>
      lines.with(
        3,
        at(lines, 3).replace(part, (text) => `${text.slice(0, -1)}~`),
      ),
    );
    expect((await found())[0]).toMatchObject({ segment, line: 4, kind: 'seal-malformed' });
  });

  test('a record and its seal made to fit without the key', async () => {
    const { sealFor, sealLine } = await import('../../src/audit/seal.ts');
    const stranger = auditKeys(new Secret('f'.repeat(64)));
    const segment = await rewrite(1, (lines) => {
      const record = at(lines, 2).replace('192.0.2.7', '192.0.2.8');
      const seq = Number(/\d+/.exec(record)?.[0]);
      const batch = Buffer.from(`${record}\n`);
      const seal = sealFor(stranger, { replica: REPLICA, previous: '' }, { first: seq, last: seq }, batch);
      return lines.with(2, record).with(3, sealLine(seal).trimEnd());
    });
    expect((await found())[0]).toMatchObject({ segment, line: 4, kind: 'seal-invalid' });
  });

  test('a removed line', async () => {
    const segment = await rewrite(1, (lines) => lines.toSpliced(4, 1));
    expect(await found()).toContainEqual(expect.objectContaining({ segment, line: 5 }));
  });

  test('a removed record with its seal', async () => {
    let expected = 0;
    const segment = await rewrite(1, (lines) => {
      expected = JSON.parse(at(lines, 2)).seq;
      return lines.toSpliced(2, 2);
    });
    expect((await found())[0]).toMatchObject({
      segment,
      line: 3,
      kind: 'records-missing',
      facts: { seq: expected + 1, expected },
    });
  });

  test('an inserted line', async () => {
    const segment = await rewrite(1, (lines) => lines.toSpliced(2, 0, at(lines, 2)));
    expect((await found())[0]).toMatchObject({ segment, line: 4, kind: 'record-misplaced' });
  });

  test('an inserted line that is no record', async () => {
    const segment = await rewrite(1, (lines) => lines.toSpliced(3, 0, 'hello'));
    expect((await found())[0]).toMatchObject({ segment, line: 4, kind: 'line-invalid' });
  });

  test.each([
    ['a head', '{"checkpoint":"of nobody"}'],
    ['any text', 'rm -e: who reads this?'],
  ])('lines at the end of a closed segment that are no record: %s', async (_title, line) => {
    const segment = await rewrite(1, (lines) => [...lines, line, line]);
    expect(await found()).toMatchObject([
      { segment, line: 7, kind: 'line-invalid' },
      { segment, line: 8, kind: 'line-invalid' },
      { segment, line: 7, kind: 'lines-unsealed' },
    ]);
  });

  test.each([
    ['', {}],
    [' in a log with signed heads', { signingKey: newSigningKey().secret }],
    [' that filled its segment', { segment: { size: 1, age: 1e9, keep: 1e9 } }],
  ])('a record that was added after a stop%s', async (_title, change) => {
    const place = join(directory, 'stopped');
    const { audit } = await openTestAudit(place, change);
    await recordAccess(audit);
    await audit.close('stop');
    expect(await check(place)).toMatchObject({ alterations: [], records: 2 });
    const name = (await readdir(join(place, REPLICA)))
      .filter((each) => each.endsWith('.jsonl'))
      .sort()
      .at(-1);
    const record = '{"seq":3,"time":"2026-01-01T00:00:00.000Z","kind":"access","requestId":"q3"}\n';
    await appendFile(join(place, REPLICA, name ?? ''), record);
    expect((await check(place)).alterations).toMatchObject([
      { segment: name, kind: 'appended-after-stop', facts: { records: 1 } },
    ]);
    await (await openTestAudit(place, change)).audit.close('stop');
    expect((await check(place)).alterations).toMatchObject([{ kind: 'recovered-after-stop' }]);
  });

  test.each(['{ "seal":[1,0],"sha256":"x","hmac":"y"}', '{"checkpoint":"x"}'])(
    'a line that is no record after the process had stopped, in a log without signed heads: %s',
    async (line) => {
      const place = join(directory, `behind-stop-${line.length}`);
      const { audit } = await openTestAudit(place);
      await audit.close('stop');
      const [name = ''] = (await readdir(join(place, REPLICA))).filter((each) => each.endsWith('.jsonl'));
      await appendFile(join(place, REPLICA, name), `${line}\n`);
      expect((await check(place)).alterations).toMatchObject([{ segment: name, kind: 'line-invalid' }]);
    },
  );

  test('swapped lines', async () => {
    const segment = await rewrite(1, (lines) => lines.with(2, at(lines, 4)).with(4, at(lines, 2)));
    expect((await found())[0]).toMatchObject({ segment, line: 3, kind: 'records-missing' });
  });

  test('a removed segment in the middle, and at the beginning', async () => {
    const [first = '', second = '', third = ''] = await names();
    await rm(join(directory, REPLICA, second));
    expect((await found())[0]).toMatchObject({ segment: third, line: 1, kind: 'chain-broken' });
    await rm(join(directory, REPLICA, first));
    expect((await found())[0]).toMatchObject({ segment: third, line: 1, kind: 'segment-missing' });
  });

  test('a tail that was cut off, by a head that was kept elsewhere', async () => {
    const heads = head === undefined ? [] : [head];
    expect(await found(heads)).toEqual([]);
    const last = (await names()).at(-1) ?? '';
    await rm(join(directory, REPLICA, last));
    expect(await found()).toEqual([]);
    const end = (await check(directory)).heads[0]?.seq;
    expect(await found(heads)).toMatchObject([
      { segment: '', line: 0, kind: 'log-truncated', facts: { seq: 9, source: '--head', end } },
    ]);
    await rm(join(directory, REPLICA), { recursive: true });
    expect(await found(heads)).toMatchObject([
      { segment: '', line: 0, kind: 'log-missing', facts: { process: 'replica' } },
    ]);
  });

  test('another key', async () => {
    const { alterations } = await check(directory, [], 'f'.repeat(64));
    const { id } = auditKeys(new Secret(AUDIT_KEY));
    expect(alterations).toMatchObject(
      (await names()).map((segment) => ({ segment, line: 1, kind: 'key-unknown', facts: { key: id } })),
    );
  });

  test('an earlier key, and none of its records as missing', async () => {
    const key = 'f'.repeat(64);
    const { audit } = await openTestAudit(directory, { key: new Secret(key) });
    await recordAccess(audit);
    await audit.close();
    const { alterations } = await check(directory, [], key);
    const [newest, ...earlier] = (await names()).reverse();
    expect(alterations.map(({ segment, kind }) => [segment, kind])).toEqual(
      earlier.reverse().map((segment) => [segment, 'key-unknown']),
    );
    await rm(join(directory, REPLICA, newest ?? ''));
    await Promise.all(earlier.slice(0, -1).map((name) => rm(join(directory, REPLICA, name))));
    expect((await found()).map(({ kind }) => kind)).toEqual(['segment-missing']);
  });

  test('the oldest segments as missing although the key of the next one is made unknown', async () => {
    const [first = '', second = ''] = await names();
    await Promise.all([first, second].map((name) => rm(join(directory, REPLICA, name))));
    const third = await rewrite(0, (lines) =>
      lines.with(0, at(lines, 0).replace(/"key":"[0-9a-f]{16}"/, `"key":"${'0'.repeat(16)}"`)),
    );
    const last = Number.parseInt(third, 10) - 1;
    expect(await found()).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ segment: third, kind: 'key-unknown' }),
        expect.objectContaining({ segment: third, kind: 'segment-missing', facts: { last } }),
      ]),
    );
  });

  test('a compressed segment that cannot be read', async () => {
    const [first = ''] = await names();
    const file = join(directory, REPLICA, first);
    const bytes = await readFile(file);
    await writeFile(file, bytes.subarray(0, bytes.length - 20));
    expect((await found())[0]).toMatchObject({ segment: first, kind: 'segment-unreadable' });
  });

  test('the segments of another replica', async () => {
    await cp(join(directory, REPLICA), join(directory, 'r2'), { recursive: true });
    expect((await found())[0]).toMatchObject({
      replica: 'r2',
      line: 1,
      kind: 'replica-mismatch',
      facts: { replica: REPLICA },
    });
  });
});
