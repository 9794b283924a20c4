import { appendFile, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { segmentsIn } from '../../src/audit/segments/segment.ts';
import { type ClosedSegment, SegmentSource } from '../../src/audit/shipping/segment-source.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, REPLICA, recordAccess } from '../support/audit-log.ts';
import { useSinks } from '../support/sink-scene.ts';

const scene = useSinks();

/** A log with a closed segment for each of three records, the names of these segments, and a source of them. */
async function closedSegments() {
  const { directory, open } = await scene();
  const audit = await open(REPLICA, { segment: { size: 1, age: 1e9, keep: 1e9 } });
  for (let count = 0; count < 3; count += 1) await recordAccess(audit);
  await audit.close();
  const folder = join(directory, REPLICA);
  const heads = (await segmentsIn(folder)).map(({ first }) => String(first).padStart(12, '0'));
  const events = { onSkipped: () => undefined, onDiverged: () => Promise.resolve() };
  const source = new SegmentSource({
    folder,
    replica: REPLICA,
    keys: auditKeys(new Secret(AUDIT_KEY)),
    start: undefined,
    events,
  });
  return { folder, heads: heads.slice(-4, -1), source };
}

/** Returns the units of the source until there is nothing new. */
async function rest(source: SegmentSource, isLast = false): Promise<ClosedSegment[]> {
  const found: ClosedSegment[] = [];
  for (let unit = await source.next(isLast); unit?.content; unit = await source.next(isLast)) {
    found.push(unit.content);
  }
  return found;
}

test('a closed segment comes with the heads that were cosigned and stamped', async () => {
  const { folder, heads, source } = await closedSegments();
  await writeFile(join(folder, `${heads[0]}.cosigned`), 'head\n');
  await writeFile(join(folder, `${heads[0]}.stamped`), 'head\n');
  const evidence = (await rest(source)).map((each) => each.evidence);
  expect(evidence.filter((each) => each.length > 0)).toEqual([
    [`${heads[0]}.cosigned`, `${heads[0]}.stamped`],
  ]);
});

test('heads that come later are given once, those of the two newest closed segments, and not at every look', async () => {
  const { folder, heads, source } = await closedSegments();
  await rest(source);
  const files = heads.map((head) => `${head}.cosigned`);
  for (const file of files) await writeFile(join(folder, file), 'head\n');
  expect(await rest(source)).toEqual([]);
  expect(await rest(source, true)).toMatchObject([{ names: [], evidence: files.slice(-2), records: 0 }]);
  await appendFile(join(folder, files[2] ?? ''), 'head\n');
  expect(await rest(source)).toEqual([]);
  expect(await rest(source, true)).toMatchObject([{ names: [], evidence: files.slice(-1) }]);
  await rm(join(folder, files[2] ?? ''));
  expect(await rest(source, true)).toEqual([]);
});

test('a damaged segment is given as it is, and those behind it', async () => {
  const { folder, heads, source } = await closedSegments();
  const names = heads.map((head) => `${head}.jsonl.zst`);
  const damaged = join(folder, names[1] ?? '');
  await writeFile(damaged, (await readFile(damaged)).fill(0, 20));
  expect((await rest(source)).map((each) => each.names[0]).slice(-3)).toEqual(names);
});

test('a segment that is damaged before it is given does not have those before it given again', async () => {
  const { folder, heads, source } = await closedSegments();
  const names = heads.map((head) => `${head}.jsonl.zst`);
  while ((await source.next())?.content?.names[0] !== names[0]);
  const damaged = join(folder, names[1] ?? '');
  await writeFile(damaged, (await readFile(damaged)).fill(0, 20));
  expect((await rest(source)).map((each) => each.names[0])).toEqual(names.slice(1));
});

test('a file behind the newest segment does not close it', async () => {
  const { folder, source } = await closedSegments();
  await rest(source);
  await writeFile(join(folder, '000000000100.jsonl'), '');
  expect(await source.next()).toBeUndefined();
});
