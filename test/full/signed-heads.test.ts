import { hash } from 'node:crypto';
import { appendFile, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import type { AuditOptions } from '../../src/audit/audit.ts';
import { checkpointIn, checkpointLine, parseCheckpoint, signCheckpoint } from '../../src/audit/checkpoint.ts';
import type { PlacedFinding } from '../../src/audit/findings.ts';
import { leavesOf, MerkleTree } from '../../src/audit/merkle.ts';
import { formatHead, LARGEST_BATCH, parseSeal, type Seal, sealLine } from '../../src/audit/seal.ts';
import { headerTree } from '../../src/audit/segments/tree-walk.ts';
import { Secret } from '../../src/base/secret.ts';
import { openTestAudit, REPLICA, recordAccess, segmentText, useFolders } from '../support/audit-log.ts';
import { divertWrites } from '../support/faulty-disk.ts';
import { namesOf, redigested, resealed, rewrite } from '../support/rewritten-log.ts';
import { newSigningKey } from '../support/signing-key.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';

const key = newSigningKey();
const OTHER_KEY = 'f'.repeat(64);
const SEGMENT = { size: 2000, age: 1e9, keep: 1e9 };
const folder = useFolders();

/** Writes so many records and stops. */
async function write(directory: string, records: number, change: Partial<AuditOptions> = {}): Promise<void> {
  const options = { segment: SEGMENT, signingKey: key.secret, ...change };
  const { audit } = await openTestAudit(directory, options);
  for (let index = 0; index < records; index += 1) await recordAccess(audit, { requestId: `q${index}` });
  await audit.close('stop');
}

/** Writes a log of several segments, which has stopped. */
async function stoppedLog(): Promise<string> {
  const directory = await folder();
  await write(directory, 9);
  return directory;
}

async function check(directory: string, publicKeys = [key.publicKey]) {
  const { alterations, notes, ...counts } = await verified(directory, { keys: 'unknown', publicKeys });
  return { kinds: alterations.map(placed), notes: notes.map(placed), alterations, ...counts };
}

function placed({ segment, line, kind }: PlacedFinding): string {
  return `${segment}:${line} ${kind}`;
}

/** Changes the records of a segment and removes its heads, as whoever has the folder and no key could. */
function forged(lines: readonly string[]): string[] {
  const kept = lines.filter((line) => !line.startsWith('{"checkpoint":'));
  return redigested(kept.map((line) => line.replace(':200,', ':404,')));
}

/** Adds an admin record behind the last head or the last seal, with the key of the seals. */
async function sealAtEnd(directory: string, record: object, place = 'after'): Promise<void> {
  await rewrite(directory, -1, (lines) => {
    const last = parseSeal(lines.at(-1) ?? '');
    const seq = (last?.last ?? 0) + 1;
    const time = new Date().toISOString();
    const line = JSON.stringify({ seq, time, kind: 'admin', replica: REPLICA, ...record });
    // A reader of JSON takes the last member of a name.
    const misread = line.replace(/\}$/, `,"seq":${Number.MAX_SAFE_INTEGER}}`);
    const [kept, from] = place === 'after' ? [lines, seq] : [lines.slice(0, -1), last?.first ?? 0];
    const any = 'A'.repeat(43);
    const seal = sealLine({ first: from, last: seq, form: 'leaves', digest: any, hmac: any });
    return resealed([...kept, misread, seal.trimEnd()]);
  });
}

/** The record of the retirement of the first segment, from the header of the second one. */
async function retirementOf(directory: string, first: string, second: string): Promise<object> {
  const { segment } = JSON.parse((await segmentText(directory, second)).split('\n', 1)[0] ?? '');
  const { first: next, previous: hmac } = segment;
  const olderThan = new Date().toISOString();
  return {
    event: 'segment-retired',
    segment: first,
    first: 1,
    previous: '',
    last: next - 1,
    hmac,
    olderThan,
  };
}

function lineOf(lines: readonly string[], start: string): number {
  return lines.findIndex((line) => line.startsWith(start)) + 1;
}

test('every record is under a signed head, and each segment ends with one', async () => {
  const directory = await stoppedLog();
  const { kinds, notes, records, provenRecords, segments } = await check(directory);
  expect([kinds, notes, records, provenRecords]).toEqual([[], [], 10, 10]);
  expect(segments).toBeGreaterThan(2);
  for (const name of await namesOf(directory)) {
    const lines = (await segmentText(directory, name)).trimEnd().split('\n');
    expect(lines.at(-2)).toMatch(/^\{"checkpoint":"digest-gateway\/r1\/1\\n\d+\\n/);
  }
});

test('the key of the seals verifies a log with signed heads, too', async () => {
  const found = await verified(await stoppedLog());
  expect(found).toMatchObject({ alterations: [], notes: [], records: 10 });
});

test('a head that is there any number of times is checked once, and few others of the same tree are', async () => {
  const directory = await stoppedLog();
  const before = await check(directory);
  const repeat = (heads: (line: string, at: number) => string) => (lines: string[]) => {
    const [head = '', seal = ''] = lines.slice(-2);
    // The last one may be that of a record, too.
    const { last, ...rest } = parseSeal(seal) as Seal;
    const ofHead = sealLine({ ...rest, first: last + 1, last }).trimEnd();
    return [...lines, ...Array.from({ length: 50 }, (_, at) => [heads(head, at), ofHead]).flat()];
  };
  await rewrite(directory, -1, (lines) => resealed(repeat((line) => line)(lines)));
  expect(await check(directory)).toMatchObject({ kinds: [], notes: [], checkpoints: before.checkpoints });
  // Lines of signatures can be added to a head by anybody who has the folder.
  const signedTwice = (line: string, at: number): string =>
    line.replace('"}', `${JSON.stringify(`— other${at} ${'A'.repeat(8)}\n`).slice(1, -1)}"}`);
  const name = await rewrite(directory, -1, (lines) => resealed(repeat(signedTwice)(lines)));
  const { kinds, checkpoints } = await check(directory);
  expect(kinds.map((each) => each.replace(/:\d+/, ''))).toEqual([`${name} errors-omitted`]);
  expect(checkpoints).toBe(before.checkpoints + 20);
});

test('a record that nobody follows is under a signed head a second later', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory, { signingKey: key.secret });
  // The first batch is signed at once, and the second one has to wait.
  await recordAccess(audit);
  await recordAccess(audit);
  expect(audit.signed?.unsignedSince).toBeGreaterThan(0);
  const signedSize = () => parseCheckpoint(audit.signed?.checkpoint ?? '')?.size;
  expect(signedSize()).toBe(1);
  while (signedSize() !== 2) await new Promise((resolve) => setTimeout(resolve, 20));
  expect(audit.signed?.unsignedSince).toBeUndefined();
  expect(await check(directory)).toMatchObject({ kinds: [], notes: [], provenRecords: 2 });
  await audit.close();
});

test('the log of the process has the last checkpoint with the head', async () => {
  const { audit, logged } = await openTestAudit(await folder(), { signingKey: key.secret });
  await recordAccess(audit);
  await recordAccess(audit);
  await audit.close();
  const checkpoints = logged.flatMap(({ checkpoint }) => (typeof checkpoint === 'string' ? checkpoint : []));
  expect(checkpoints.map((note) => parseCheckpoint(note)?.size)).toEqual([1, 2]);
});

describe('the tree goes on', () => {
  test('after a restart', async () => {
    const directory = await stoppedLog();
    await write(directory, 4);
    expect(await check(directory)).toMatchObject({ kinds: [], notes: [], provenRecords: 15 });
  });

  test('after a kill, without the lines under no seal', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { signingKey: key.secret });
    for (let index = 0; index < 5; index += 1) await recordAccess(audit);
    const killed = await folder();
    await cp(directory, killed, { recursive: true });
    await audit.close();
    const [name = ''] = await namesOf(killed);
    const text = await readFile(join(killed, REPLICA, name), 'utf8');
    const torn = text.slice(0, text.lastIndexOf('{"seal":'));
    await writeFile(join(killed, REPLICA, name), torn);
    expect(await check(killed)).toMatchObject({
      kinds: [],
      notes: [`${name}:0 end-unsealed`, `${name}:0 end-unsigned`],
      provenRecords: 1,
    });
    await write(killed, 2, { segment: { ...SEGMENT, size: 1e9 } });
    // Four of before, the records of what was signed late and of what was set aside, two, and the stop.
    const notes = expect.arrayContaining([expect.stringMatching(/ signed-at-start$/)]);
    expect(await check(killed)).toMatchObject({ kinds: [], notes, records: 9, provenRecords: 9 });
  });

  test('after old segments were retired, even those with the first leaves', async () => {
    const directory = await stoppedLog();
    await write(directory, 3, { segment: { ...SEGMENT, keep: 0 } });
    await write(directory, 3, { segment: { ...SEGMENT, keep: 0 } });
    expect((await namesOf(directory))[0]).not.toBe('000000000001.jsonl.zst');
    expect(await check(directory)).toMatchObject({ kinds: [], notes: [] });
  });

  test('with a head in the write of each retirement', async () => {
    const directory = await stoppedLog();
    await write(directory, 1, { segment: { ...SEGMENT, size: 1e9, keep: 0 } });
    const lines = (await segmentText(directory, (await namesOf(directory)).at(-1) ?? '')).split('\n');
    const retired = lines.flatMap((line, at) => (line.includes('"segment-retired"') ? [at] : []));
    expect(retired.length).toBeGreaterThan(1);
    for (const at of retired) {
      const batch = lines.slice(
        at,
        lines.findIndex((line, seal) => seal > at && line.startsWith('{"seal":')),
      );
      expect(batch.at(-1)).toMatch(/^\{"checkpoint":/);
    }
  });

  test('under another key of the seals, since a signed head covers what that key cannot check', async () => {
    const directory = await stoppedLog();
    await write(directory, 2, { key: new Secret(OTHER_KEY) });
    expect(await check(directory)).toMatchObject({ kinds: [], notes: [] });
  });

  test('not under another key of the seals if the signing key is another one, too: tree-restarted', async () => {
    const directory = await stoppedLog();
    const next = newSigningKey();
    await write(directory, 2, { key: new Secret(OTHER_KEY), signingKey: next.secret });
    const { kinds } = await check(directory, [key.publicKey, next.publicKey]);
    expect(kinds).toEqual([expect.stringMatching(/:1 tree-restarted$/)]);
  });

  test('behind any number of heads of a former signing key in the segment', async () => {
    const directory = await folder();
    const segment = { size: 1e9, age: 1e9, keep: 1e9 };
    const next = newSigningKey();
    for (let heads = 0; heads <= 20; heads += 1) await write(directory, 1, { segment });
    for (let starts = 0; starts < 3; starts += 1)
      await write(directory, 1, { segment, signingKey: next.secret });
    expect(await check(directory, [key.publicKey, next.publicKey])).toMatchObject({
      kinds: [],
      notes: [expect.stringContaining(' signing-key-changed')],
    });
  });

  test('under another signing key, if the verifier has both', async () => {
    const directory = await stoppedLog();
    const next = newSigningKey();
    await write(directory, 2, { signingKey: next.secret });
    await write(directory, 2, { signingKey: next.secret });
    // The second start finds heads of its own key.
    expect(await check(directory, [key.publicKey, next.publicKey])).toMatchObject({
      kinds: [],
      notes: [expect.stringContaining(' signing-key-changed')],
    });
    const { kinds } = await check(directory);
    expect(kinds.every((each) => each.endsWith(' checkpoint-invalid'))).toBe(true);
    expect(kinds).not.toEqual([]);
  });

  test('from a segment that has no head yet', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, {
      signingKey: key.secret,
      segment: { size: 1e9, age: 1, keep: 1e9 },
    });
    await recordAccess(audit);
    while ((await namesOf(directory)).length < 2) await new Promise((resolve) => setTimeout(resolve, 20));
    const killed = await folder();
    await cp(directory, killed, { recursive: true });
    await audit.close();
    expect(await segmentText(killed, '000000000002.jsonl')).not.toContain('checkpoint');
    await write(killed, 1);
    expect(await check(killed)).toMatchObject({ kinds: [], notes: [], provenRecords: 3 });
  });

  test('after a kill behind several writes that failed within a second, none of which left a head', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { signingKey: key.secret });
    await recordAccess(audit);
    for (let failed = 1; failed <= 3; failed += 1) {
      const newest = (await namesOf(directory)).at(-1) ?? '';
      divertWrites(join(directory, REPLICA, newest), '/dev/full');
      expect(await recordAccess(audit)).toBe(false);
      await until(() => recordAccess(audit));
    }
    const killed = await folder();
    await cp(directory, killed, { recursive: true });
    await audit.close();
    await write(killed, 1);
    expect(await check(killed)).toMatchObject({
      kinds: [],
      notes: [expect.stringContaining('signed-at-start')],
    });
  });

  test('from a segment without a record that is old: a start makes no second one of the same name', async () => {
    const directory = await folder();
    const options = { signingKey: key.secret, segment: { size: 1e9, age: 1, keep: 1e9 } };
    const { audit } = await openTestAudit(directory, options);
    await recordAccess(audit);
    await until(async () => (await namesOf(directory)).includes('000000000002.jsonl'));
    await audit.close();
    const next = await openTestAudit(directory, options);
    await next.audit.close();
    expect(await namesOf(directory)).toEqual(['000000000001.jsonl.zst', '000000000002.jsonl']);
    expect(await check(directory)).toMatchObject({ kinds: [], notes: [], provenRecords: 1 });
  });

  test('over a batch with several seals, each behind a head: a kill can leave any of them as the last', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { signingKey: key.secret });
    const target = `/${'x'.repeat(2000)}?ids=${'y'.repeat(500)}`;
    const written = Array.from({ length: 1500 }, () => recordAccess(audit, { target }));
    await Promise.all(written);
    const [name = ''] = await namesOf(directory);
    const lines = (await readFile(join(directory, REPLICA, name), 'utf8')).split('\n');
    expect(lines.join().length).toBeGreaterThan(LARGEST_BATCH);
    expect(lines.filter((line) => line.startsWith('{"checkpoint":')).at(-1)).toContain('/r1/1\\n1500\\n');
    const isSeal = (line = ''): boolean => line.startsWith('{"seal":');
    const opening = lines.findIndex(isSeal);
    const before = lines.filter((_, at) => at > opening && isSeal(lines[at + 1]));
    expect(before.length).toBeGreaterThan(2);
    expect(new Set(before.map((line) => line.slice(0, 14)))).toEqual(new Set(['{"checkpoint":']));
    await audit.close('stop');
    expect(await check(directory)).toMatchObject({ kinds: [], notes: [], provenRecords: 1501 });
  });
});

describe('whoever has the folder and no key', () => {
  test.each([
    ['', 'segment-unsealed'],
    ['{"segment":{', 'line-torn'],
  ])('cannot write a segment anew with a file of no line behind it: "%s"', async (content, kind) => {
    const directory = await stoppedLog();
    const name = await rewrite(directory, 1, forged);
    const [, , next = ''] = await namesOf(directory);
    expect((await check(directory)).kinds).toEqual([`${next}:1 tree-broken`]);
    const between = `${String(Number.parseInt(name, 10) + 1).padStart(12, '0')}.jsonl`;
    await writeFile(join(directory, REPLICA, between), content);
    const { kinds } = await check(directory);
    expect(kinds).toEqual([expect.stringMatching(`^${between}:\\d ${kind}$`), `${next}:1 tree-broken`]);
  });

  test.each(['', '{"segment":{'])(
    'cannot write the end anew with a newest file of no line behind it: "%s"',
    async (content) => {
      const directory = await folder();
      await write(directory, 6, { segment: { ...SEGMENT, size: 1e9 } });
      await rewrite(directory, 0, (lines) => {
        const head = lineOf(lines, '{"checkpoint":') + 1;
        const later = lines
          .slice(head)
          .map((line) => line.replace(/(?<=^\{"seq":3,"time":")[^"]+/, '2026-01-01T00:00:00.000Z'));
        return [...lines.slice(0, head), ...forged(later)];
      });
      await writeFile(join(directory, REPLICA, '000000009999.jsonl'), content);
      expect((await check(directory)).kinds).toEqual(['000000009999.jsonl:0 heads-missing']);
    },
  );
});

test.each(['', '{"segment":{'])(
  'a newest file of no line, as a crash leaves one, is no error: "%s"',
  async (content) => {
    const directory = await stoppedLog();
    await writeFile(join(directory, REPLICA, '000000000011.jsonl'), content);
    expect(await check(directory)).toMatchObject({ kinds: [], records: 10, provenRecords: 10 });
    await write(directory, 3);
    expect(await check(directory)).toMatchObject({ kinds: [], provenRecords: content === '' ? 14 : 15 });
  },
);

describe('whoever has the folder and the key of the seals', () => {
  test('cannot change a record: tree-mismatch names its lines', async () => {
    const directory = await stoppedLog();
    let line = 0;
    const name = await rewrite(directory, 1, (lines) => {
      line = lineOf(lines, '{"checkpoint":');
      const changed = lines.map((each) =>
        each.startsWith('{"seq":') ? each.replace(':200,', ':404,') : each,
      );
      return resealed(changed);
    });
    const { kinds, alterations } = await check(directory);
    expect(kinds[0]).toBe(`${name}:${line} tree-mismatch`);
    expect(alterations[0]?.message).toMatch(
      /^one of the lines 1 to \d+ was changed, inserted, moved or removed/,
    );
    // The next segment does not continue the seals of this one; its tree is proven all the same.
    expect(kinds.slice(1)).toEqual([expect.stringMatching(/:1 chain-broken$/)]);
  });

  test('cannot change a byte without making the seals anew: batch-altered names its line', async () => {
    const directory = await stoppedLog();
    const name = await rewrite(directory, 1, (lines) =>
      lines.with(2, (lines[2] ?? '').replace(':200,', ':404,')),
    );
    expect((await check(directory)).kinds).toEqual([`${name}:3 batch-altered`]);
  });

  test('cannot change a header: tree-broken', async () => {
    const directory = await stoppedLog();
    const name = await rewrite(directory, 1, (lines) =>
      resealed(
        lines.with(
          0,
          (lines[0] ?? '').replace(/(?<="roots":\[")./, (it) => (it === 'A' ? 'B' : 'A')),
        ),
      ),
    );
    expect((await check(directory)).kinds).toContain(`${name}:1 tree-broken`);
    await rewrite(directory, 1, (lines) =>
      resealed(lines.with(0, (lines[0] ?? '').replace(/"roots":\[[^\]]*/, '"roots":['))),
    );
    expect((await check(directory)).kinds).toContain(`${name}:1 tree-broken`);
  });

  test('cannot change a checkpoint: checkpoint-malformed, checkpoint-invalid', async () => {
    const directory = await stoppedLog();
    let line = 0;
    const name = await rewrite(directory, 0, (lines) => {
      line = lineOf(lines, '{"checkpoint":');
      return resealed(lines.with(line - 1, '{"checkpoint":"x"}'));
    });
    expect((await check(directory)).kinds).toContain(`${name}:${line} checkpoint-malformed`);
    const forged = newSigningKey();
    await rewrite(directory, 0, (lines) => {
      const root = '\0'.repeat(32);
      const note = signCheckpoint(forged, { replica: REPLICA, first: 1, size: 1, root });
      return resealed(lines.with(line - 1, checkpointLine(note).trimEnd()));
    });
    expect((await check(directory)).kinds).toContain(`${name}:${line} checkpoint-invalid`);
  });

  test('cannot put a checkpoint at another place', async () => {
    const directory = await stoppedLog();
    let line = 0;
    const name = await rewrite(directory, 0, (lines) => {
      line = lineOf(lines, '{"checkpoint":');
      const last = lines.findLast((each) => each.startsWith('{"checkpoint":')) ?? '';
      return resealed(lines.with(line - 1, last));
    });
    expect((await check(directory)).kinds).toContain(`${name}:${line} tree-mismatch`);
  });

  test('cannot leave signing out: signing-ended', async () => {
    const directory = await stoppedLog();
    const name = await rewrite(directory, 1, (lines) =>
      resealed(
        lines
          .with(0, (lines[0] ?? '').replace(/,"tree":.*$/, '}}'))
          .filter((each) => !each.startsWith('{"checkpoint":')),
      ),
    );
    expect((await check(directory)).kinds).toContain(`${name}:1 signing-ended`);
  });

  test.each([
    [1_000, [], ['end-unsigned']],
    [60_001, ['heads-missing'], []],
  ])(
    'cannot remove the heads of the last records of more than a minute: heads-missing (%d ms)',
    async (span, errors, others) => {
      const directory = await folder();
      await write(directory, 6, { segment: { ...SEGMENT, size: 1e9 } });
      const name = await rewrite(directory, 0, (lines) => {
        const head = lineOf(lines, '{"checkpoint":');
        const later = lines.slice(head).filter((each) => !each.startsWith('{"checkpoint":'));
        const [first, second] = later.filter((each) => each.startsWith('{"seq":'));
        const begun = Date.parse(/"time":"([^"]+)"/.exec(first ?? '')?.[1] ?? '');
        // The latest time is not that of the last record.
        const timeOf = (line: string) => new Date(line === second ? begun + span : begun).toISOString();
        const moved = later.map((each) =>
          each.replace(/(?<=^\{"seq":\d+,"time":")[^"]+/, () => timeOf(each)),
        );
        return resealed([...lines.slice(0, head), ...moved]);
      });
      const { kinds, notes } = await check(directory);
      expect([kinds, notes]).toEqual([errors, others].map((all) => all.map((kind) => `${name}:0 ${kind}`)));
    },
  );

  test('does not get the signature of the next start for records of more than a minute without heads', async () => {
    const directory = await folder();
    await write(directory, 6, { segment: { ...SEGMENT, size: 1e9 } });
    const name = await rewrite(directory, 0, (lines) => {
      const head = lineOf(lines, '{"checkpoint":');
      const rest = lines.slice(head).filter((each) => !each.startsWith('{"checkpoint":'));
      const at = lineOf(rest, '{"seq":') - 1;
      const earlier = rest[at]?.replace(/(?<="time":")[^"]+/, '2026-01-01T00:00:00.000Z') ?? '';
      return resealed([...lines.slice(0, head), ...rest.with(at, earlier.replace(':200,', ':404,'))]);
    });
    const { audit } = await openTestAudit(directory, { signingKey: key.secret });
    expect(audit.integrityError).toMatchObject({ kind: 'heads-missing', segment: name });
    await audit.close('stop');
    const [second = ''] = (await namesOf(directory)).slice(1);
    expect((await check(directory)).kinds).toEqual([`${second.replace('.zst', '')}:1 tree-restarted`]);
  });

  test('does not get the signature of the next start for segments without heads', async () => {
    const directory = await stoppedLog();
    const leaves: string[] = [];
    let previous = '';
    const names = await namesOf(directory);
    for (const at of names.keys()) {
      await rewrite(directory, at, (lines) => {
        const [header = ''] = lines;
        const { segment } = JSON.parse(header);
        const tree = MerkleTree.empty();
        for (const leaf of leaves) tree.add(leaf);
        const made = { ...segment, previous, tree: headerTree({ first: 1, tree }) };
        const kept = lines.slice(1).filter((each) => !each.startsWith('{"checkpoint":'));
        const changed = resealed([
          JSON.stringify({ segment: made }),
          ...kept.map((each) => (each.startsWith('{"seq":') ? each.replace(':200,', ':404,') : each)),
        ]);
        const records = changed.filter((each) => each.startsWith('{"seq":'));
        leaves.push(...leavesOf(Buffer.from(records.map((each) => `${each}\n`).join(''))));
        previous = parseSeal(changed.at(-1) ?? '')?.hmac ?? '';
        return changed;
      });
    }
    const { audit } = await openTestAudit(directory, { signingKey: key.secret });
    expect(audit.integrityError).toMatchObject({ kind: 'checkpoint-missing' });
    await audit.close('stop');
    expect((await check(directory)).kinds).toEqual([expect.stringMatching(/:1 tree-restarted$/)]);
  });

  test('cannot begin another tree: tree-restarted', async () => {
    const directory = await stoppedLog();
    const name = await rewrite(directory, -1, (lines) => {
      const first = /"first":(\d+)/.exec(lines[0] ?? '')?.[1];
      return resealed(
        lines.with(0, (lines[0] ?? '').replace(/"tree":.*$/, `"tree":{"first":${first},"roots":[]}}}`)),
      );
    });
    expect((await check(directory)).kinds).toContain(`${name}:1 tree-restarted`);
  });

  test('cannot remove the first segments', async () => {
    const directory = await stoppedLog();
    const [first = '', second = ''] = await namesOf(directory);
    await rm(join(directory, REPLICA, first));
    const { kinds } = await check(directory);
    expect(kinds).toEqual([`${second}:1 segment-missing`]);
    // The header is under no signed head.
    await rewrite(directory, 0, (lines) => {
      const { segment } = JSON.parse(lines[0] ?? '');
      const retired = { last: segment.first - 1, hmac: segment.previous };
      return resealed(lines.with(0, JSON.stringify({ segment: { ...segment, retired } })));
    });
    expect((await check(directory)).kinds).toContain(`${second.replace('.zst', '')}:1 segment-missing`);
  });

  test.each([
    ['behind the last seal', 'after'],
    ['under the seal of the last signed head, behind it', 'within'],
  ])('is not believed in an admin record that no signed head covers, %s', async (_, place) => {
    const directory = await stoppedLog();
    const [first = '', second = ''] = await namesOf(directory);
    await rm(join(directory, REPLICA, first));
    await sealAtEnd(directory, await retirementOf(directory, first, second), place);
    const { kinds, notes } = await check(directory);
    expect(kinds).toEqual([`${second}:1 segment-missing`]);
    expect(notes).toEqual([expect.stringMatching(/ end-unsigned$/)]);
    // The next start signs it.
    await write(directory, 1);
    const later = await check(directory);
    expect(later.kinds).toEqual([`${second}:1 segment-missing`]);
    expect(later.notes).toEqual([expect.stringMatching(/ signed-at-start$/)]);
  });

  test('a retirement that was under no head when the gateway was killed is recorded again', async () => {
    const directory = await folder();
    await write(directory, 3);
    const [first = '', second = '', ...others] = await namesOf(directory);
    expect(others).toEqual([]);
    await sealAtEnd(directory, await retirementOf(directory, first, second));
    await write(directory, 1, { segment: { ...SEGMENT, size: 1e9, keep: 0 } });
    expect(await namesOf(directory)).not.toContain(first);
    const { kinds, notes } = await check(directory);
    expect([kinds, notes]).toEqual([[], [expect.stringMatching(/ signed-at-start$/)]]);
  });

  test('cannot excuse a file that was set aside and is gone, by a record that the next start signs', async () => {
    const directory = await stoppedLog();
    const name = (await namesOf(directory)).at(-1) ?? '';
    await appendFile(join(directory, REPLICA, name), '{"seq":');
    await write(directory, 1);
    const file = (await readdir(join(directory, REPLICA))).find((each) => each.endsWith('.unsealed')) ?? '';
    await rm(join(directory, REPLICA, file));
    const missing = `${file}:0 set-aside-missing`;
    expect((await check(directory)).kinds).toEqual([missing]);
    const aside = { segment: name, line: 1, lines: 0, bytes: 7, file, sha256: '', afterStop: false };
    await sealAtEnd(directory, { event: 'recovered', ...aside });
    await write(directory, 1);
    expect((await check(directory)).kinds).toEqual([missing]);
  });

  test('the head of a worker that a killed primary process had recorded under no head is demanded', async () => {
    const directory = await stoppedLog();
    const worker = `${REPLICA}@1`;
    await write(directory, 1, { replica: worker });
    const heads = [formatHead({ replica: worker, seq: 99, hmac: 'A'.repeat(43) })];
    await sealAtEnd(directory, { event: 'worker-heads', heads, ended: false });
    await write(directory, 1);
    expect((await check(directory)).kinds).toEqual([':0 log-truncated']);
  });

  test('cannot write the end anew at a stop, so that the next start signs it, without a trace: signed-at-start', async () => {
    const directory = await folder();
    await write(directory, 6, { segment: { ...SEGMENT, size: 1e9 } });
    const name = await rewrite(directory, -1, (lines) => {
      const head = lineOf(lines, '{"checkpoint":');
      const later = lines.slice(head + 1).filter((line) => !line.startsWith('{"checkpoint":'));
      return resealed([...lines.slice(0, head + 1), ...later.map((line) => line.replace(':200,', ':404,'))]);
    });
    expect((await check(directory)).notes).toEqual([`${name}:0 end-unsigned`]);
    await write(directory, 1);
    const { alterations, notes, provenRecords } = await check(directory);
    expect([alterations, notes, provenRecords]).toEqual([
      [],
      [expect.stringMatching(/^0+1\.jsonl(\.zst)?:\d+ signed-at-start$/)],
      10,
    ]);
  });

  test.each([
    ['--head', 'head-unproven', undefined],
    ['the log of its primary process', undefined, 'worker-head-unproven'],
  ])('cannot forge what came before a head that is known: %s', async (source, error, note) => {
    const directory = await folder();
    const replica = source === '--head' ? REPLICA : `${REPLICA}@1`;
    const options = { keys: 'unknown', publicKeys: [key.publicKey] } as const;
    // The primary process opens its log first.
    if (source !== '--head') await write(directory, 1);
    await write(directory, 6, { replica, segment: { ...SEGMENT, size: 1e9 } });
    const { heads } = await verified(directory, { ...options, replica });
    const [head] = heads;
    if (source !== '--head') {
      const { audit } = await openTestAudit(directory, { signingKey: key.secret });
      await audit.adminWritten('worker-heads', { heads: heads.map(formatHead), ended: true });
      await audit.close('stop');
    }
    const file = join(directory, replica, '000000000001.jsonl');
    const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
    const kept = lines.slice(0, lineOf(lines, '{"checkpoint":') + 1);
    const forged = lines
      .slice(kept.length)
      .filter((line) => line.startsWith('{"seq":'))
      .map((line) => line.replace(':200,', ':404,'));
    const covered = Buffer.from(forged.map((line) => `${line}\n`).join(''));
    const digest = hash('sha256', covered, 'base64url');
    // Without its key, nobody can check a seal, so that of the head fits any lines.
    const seal = sealLine({ first: 2, last: head?.seq ?? 0, form: 'sha256', digest, hmac: head?.hmac ?? '' });
    await writeFile(file, `${[...kept, ...forged].join('\n')}\n${seal}`);
    const { alterations, notes } = await verified(directory, {
      ...options,
      heads: source === '--head' ? heads : [],
    });
    const kindsOf = (found: readonly PlacedFinding[]) => found.map(({ kind }) => kind);
    expect(kindsOf(alterations)).toEqual(error === undefined ? [] : [error]);
    expect(kindsOf(notes)).toEqual(['end-unsigned', ...(note === undefined ? [] : [note])]);
  });
});

test('head-unproven: a head of before the signed heads is under none', async () => {
  const directory = await folder();
  await write(directory, 3, { signingKey: undefined });
  const options = { keys: 'unknown', publicKeys: [key.publicKey] } as const;
  const { heads } = await verified(directory, options);
  await write(directory, 3);
  const { alterations } = await verified(directory, { ...options, heads });
  expect(alterations).toMatchObject([{ kind: 'head-unproven', facts: { seq: 4 } }]);
});

describe('a log that somebody filled without a key takes no more memory than any other', () => {
  /** Writes one segment; the lines of each batch get a seal. */
  async function fill(batches: Iterable<readonly string[]>): Promise<string> {
    const directory = await folder();
    const any = 'A'.repeat(43);
    const opened = '2026-01-01T00:00:00.000Z';
    const tree = { first: 1, roots: [] };
    const header = { replica: REPLICA, first: 1, previous: '', key: '0'.repeat(16), opened, tree };
    let next = 1;
    let text = '';
    for (const lines of [[JSON.stringify({ segment: header })], ...batches]) {
      const covered = lines.map((line) => `${line}\n`).join('');
      const last = next + lines.filter((line) => line.startsWith('{"seq":')).length - 1;
      const digest = hash('sha256', covered, 'base64url');
      text += covered + sealLine({ first: next, last, form: 'sha256', digest, hmac: any });
      next = last + 1;
    }
    await mkdir(join(directory, REPLICA));
    await writeFile(join(directory, REPLICA, '000000000001.jsonl'), text);
    return directory;
  }

  const adminLine = (seq: number, more: object = {}): string =>
    JSON.stringify({
      seq,
      time: '2026-01-01T00:00:00.000Z',
      kind: 'admin',
      replica: REPLICA,
      event: 'start',
      ...more,
    });

  test.each([
    ['many', 10_001, {}],
    ['large', 19, { pad: 'x'.repeat(900_000) }],
  ])('with %s admin records under no head: admin-unsigned', async (_, count, more) => {
    const directory = await fill(Array.from({ length: count }, (__, at) => [adminLine(at + 1, more)]));
    expect((await check(directory)).kinds).toEqual([':0 admin-unsigned', ':0 checkpoint-missing']);
  });

  test('with wrong heads: 20 are named', async () => {
    const directory = await fill([[adminLine(1), ...Array<string>(1000).fill('{"checkpoint":"x"}')]]);
    const { kinds } = await check(directory);
    const named = Array.from({ length: 20 }, (_, at) => `000000000001.jsonl:${at + 4} checkpoint-malformed`);
    expect(kinds).toEqual([...named, '000000000001.jsonl:24 errors-omitted', ':0 checkpoint-missing']);
  });
});

test('a log without a record, as of a worker that has no request yet, needs no signed head', async () => {
  const [directory, copy] = [await folder(), await folder()];
  const { audit } = await openTestAudit(directory, { segment: SEGMENT, signingKey: key.secret });
  await cp(directory, copy, { recursive: true });
  await audit.close('stop');
  expect(await check(copy)).toMatchObject({ kinds: [], notes: [], records: 0 });
});

test('checkpoint-missing: records before signed heads are not believed for a segment without a record', async () => {
  const [directory, copy] = [await folder(), await folder()];
  await write(directory, 3, { signingKey: undefined });
  const { audit } = await openTestAudit(directory, { segment: SEGMENT, signingKey: key.secret });
  await cp(directory, copy, { recursive: true });
  await audit.close('stop');
  expect((await check(copy)).kinds).toEqual([':0 checkpoint-missing']);
});

test('checkpoint-missing: with the public key of another log nothing is proven', async () => {
  const { kinds } = await check(await stoppedLog(), [newSigningKey().publicKey]);
  expect(kinds.at(-1)).toBe(':0 checkpoint-missing');
});

test('segment-unsigned: a log that was begun without signed heads has a note for each of its segments', async () => {
  const directory = await folder();
  await write(directory, 3, { signingKey: undefined });
  await write(directory, 3);
  expect(await check(directory)).toMatchObject({
    kinds: [],
    notes: ['000000000001.jsonl.zst:1 segment-unsigned'],
    provenRecords: 4,
  });
});

test('a log without a record takes up signing at once', async () => {
  const directory = await folder();
  await openTestAudit(directory).then(({ audit }) => audit.close());
  await write(directory, 1);
  expect(await check(directory)).toMatchObject({ kinds: [], notes: [], provenRecords: 2 });
});

test('a gateway that finds its log altered begins another tree and does not sign the alteration', async () => {
  const directory = await stoppedLog();
  const name = await rewrite(directory, -1, (lines) => {
    const at = lineOf(lines, '{"seq":') - 1;
    return lines.with(at, (lines[at] ?? '').replace(':200,', ':404,').replace('"stop"', '"stay"'));
  });
  await write(directory, 2);
  const { kinds } = await check(directory);
  expect(kinds).toEqual([
    expect.stringMatching(new RegExp(`^${name}:\\d+ batch-altered$`)),
    expect.stringMatching(/:1 tree-restarted$/),
  ]);
});

test('a checkpoint has one form', () => {
  const head = { replica: 'gateway-1@2', first: 7, size: 12, root: '\x05'.repeat(32) };
  const note = signCheckpoint(key, head);
  expect(parseCheckpoint(note)).toMatchObject(head);
  expect(checkpointIn(checkpointLine(note).trimEnd())?.note).toBe(note);
  const others = [
    note.replace('\n12\n', '\n012\n'),
    note.replace('digest-gateway/', 'other/'),
    note.replace('/7\n', '/0\n'),
    note.replace('\n\n', '\nextension\n\n'),
    note.trimEnd(),
    `${note}\n`,
    note.replace('— ', '- '),
    note.replace(/=\n$/, '\n'),
  ];
  expect(others.map(parseCheckpoint)).toEqual(others.map(() => undefined));
  const lines = [' {"checkpoint":"x"}', '{"checkpoint":7}', '{"checkpoint":"x","more":1}', '{"checkpoint":'];
  expect(lines.map(checkpointIn)).toEqual(lines.map(() => undefined));
});
