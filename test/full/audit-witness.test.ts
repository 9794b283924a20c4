import { execFileSync } from 'node:child_process';
import { appendFile, cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { zstdCompressSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { AuditOptions } from '../../src/audit/audit.ts';
import { witnessKey } from '../../src/audit/checkpoint.ts';
import { checkProof } from '../../src/audit/proof.ts';
import { prove } from '../../src/audit/reader/prove.ts';
import { checkpointsIn } from '../../src/audit/segments/head-files.ts';
import type { WitnessOptions } from '../../src/audit/shipping/head-deliveries.ts';
import { openTestAudit, REPLICA, recordAccess } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { listenOnLoopback } from '../support/loopback-server.ts';
import { namesOf, redigested, rewrite } from '../support/rewritten-log.ts';
import { newSigningKey } from '../support/signing-key.ts';
import { useSinks } from '../support/sink-scene.ts';
import { needPackages } from '../support/system-packages.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';
import { setWallClock } from '../support/wall-clock.ts';
import { startTestWitness, type TestWitness, WITNESS_NAME } from '../support/witness.ts';

const PYTHON = fileURLToPath(new URL('../../deploy/examples/audit/check_proof.py', import.meta.url));
const key = newSigningKey();
const scene = useSinks();
const SEGMENT = { size: 2000, age: 1e9, keep: 1e9 };
let witness: TestWitness;

beforeEach(async () => {
  witness = await startTestWitness({ [REPLICA]: key.publicPem });
});
afterEach(async () => {
  await witness[Symbol.asyncDispose]();
});

function sink(change: Partial<WitnessOptions> = {}): WitnessOptions {
  const { url, publicKey } = witness;
  return {
    kind: 'witness',
    name: 'witness',
    timeout: 60_000,
    url,
    publicKey,
    every: 1,
    tls: undefined,
    ...change,
  };
}

/** Writes so many records and stops. */
async function write(directory: string, records: number, change: Partial<AuditOptions> = {}): Promise<void> {
  const { audit } = await openTestAudit(directory, { signingKey: key.secret, segment: SEGMENT, ...change });
  for (let index = 0; index < records; index += 1) await recordAccess(audit, { requestId: `q${index}` });
  await audit.close('stop');
}

async function check(
  directory: string,
  options: { witnessHeads?: boolean | string; witnesses?: string[]; isCopy?: boolean } = {},
) {
  const { witnesses = [witness.publicKey], isCopy = false } = options;
  const { witnessHeads: given = '' } = options;
  const heads = given === true ? await witness.checkpoints() : given || '';
  const { alterations, notes, cosigned, cosignedRecords, cosignedAt } = await verified(directory, {
    keys: 'unknown',
    publicKeys: [key.publicKey],
    witnesses: witnesses.map(witnessKey),
    witnessHeads: checkpointsIn(heads),
    isCopy,
  });
  const kinds = alterations.map(({ kind }) => kind);
  return { kinds, notes: notes.map(({ kind }) => kind), cosigned, cosignedRecords, cosignedAt };
}

test('the heads of a log are cosigned, and the cosignatures are in its folder', async () => {
  const { directory, follow } = await scene();
  await write(directory, 9);
  const followed = follow(sink());
  await followed.untilSent();
  const all = { kinds: [], notes: [], cosigned: 1, cosignedRecords: 10 };
  const found = await check(directory, { witnessHeads: true });
  expect(found).toMatchObject(all);
  expect(Date.now() - found.cosignedAt).toBeLessThan(60_000);
  expect(await check(directory)).toMatchObject(all);
  expect(await followed.status()).toMatchObject({
    behind: 0,
    failing: undefined,
    since: undefined,
    failures: 0,
  });
});

test('a log goes on being cosigned over segments and restarts', async () => {
  const { directory, follow, open } = await scene();
  for (let run = 0; run < 4; run += 1) {
    await write(directory, 5);
    const followed = follow(sink());
    await followed.untilSent();
    await followed.finish();
    expect(followed.logged).toEqual([]);
  }
  // Without its position, it asks the witness what that has.
  await rm(join(directory, REPLICA, 'witness.sink'));
  const audit = await open(REPLICA, { signingKey: key.secret, segment: SEGMENT });
  const followed = follow(sink());
  for (let index = 0; index < 20; index += 1) {
    await recordAccess(audit);
    await recordAccess(audit);
  }
  await audit.close('stop');
  await followed.untilSent();
  const { kinds, notes, cosignedRecords } = await check(directory, { witnessHeads: true });
  expect([kinds, notes, cosignedRecords]).toEqual([[], [], 4 * 6 + 41]);
  expect(
    (await readdir(join(directory, REPLICA))).filter((name) => name.endsWith('.cosigned')).length,
  ).toBeGreaterThan(3);
});

test('a log goes on being cosigned after its process was killed', async () => {
  const { directory, follow, open } = await scene();
  const killed = await mkdtemp(join(tmpdir(), 'witness-killed-'));
  const audit = await open(REPLICA, { signingKey: key.secret, segment: SEGMENT });
  const before = follow(sink());
  for (let index = 0; index < 5; index += 1) await recordAccess(audit);
  await before.untilSent();
  await before.finish();
  // What a kill leaves: no stop, and lines without a seal.
  await cp(directory, killed, { recursive: true });
  await audit.close();
  await rm(directory, { recursive: true });
  await cp(killed, directory, { recursive: true });
  await rm(killed, { recursive: true });
  const segments = (await readdir(join(directory, REPLICA))).filter((name) => name.endsWith('.jsonl')).sort();
  const newest = segments.at(-1) ?? '';
  await appendFile(
    join(directory, REPLICA, newest),
    '{"seq":6,"time":"2026-01-01T00:00:00.000Z","kind":"access"}\n{"se',
  );
  await write(directory, 5);
  const after = follow(sink());
  await after.untilSent();
  expect((await after.status()).rejected).toBe(false);
  const { kinds, cosignedRecords } = await check(directory, { witnessHeads: true });
  expect([kinds, cosignedRecords]).toEqual([[], 12]);
});

test('the last head is cosigned, though its segment was closed and the next one is empty', async () => {
  const { directory, follow, open } = await scene();
  const audit = await open(REPLICA, { signingKey: key.secret, segment: { ...SEGMENT, size: 1 } });
  await recordAccess(audit);
  await audit.close();
  const followed = follow(sink());
  await followed.untilSent();
  expect(await check(directory, { witnessHeads: true })).toMatchObject({ kinds: [], cosignedRecords: 1 });
});

test('a witness that is away stops nothing, and gets the newest head when it is back', async () => {
  const { directory, follow, open } = await scene();
  await witness.stop();
  const audit = await open(REPLICA, { signingKey: key.secret, segment: SEGMENT });
  const followed = follow(sink());
  for (let index = 0; index < 12; index += 1) await recordAccess(audit);
  await until(async () => (await followed.status()).failures > 0);
  const { failing, since, rejected } = await followed.status();
  expect([failing, since, rejected]).toEqual([
    expect.stringContaining('ECONNREFUSED'),
    expect.any(Number),
    false,
  ]);
  await audit.close('stop');
  expect(await check(directory)).toMatchObject({ kinds: ['cosignature-missing'], cosigned: 0 });
  await witness.restart();
  await followed.untilSent();
  expect(await check(directory, { witnessHeads: true })).toMatchObject({
    kinds: [],
    notes: [],
    cosignedRecords: 13,
  });
});

test('a cosignature whose response was lost is fetched again, though the log has nothing new', async () => {
  const { directory, follow } = await scene();
  await write(directory, 9);
  const replies: number[] = [];
  const relay = createServer(async (request, response) => {
    const { status, text: lines } = await witness.add(await text(request));
    replies.push(status);
    if (replies.length === 1) response.destroy();
    else response.writeHead(status).end(lines);
  });
  const { port, close } = await listenOnLoopback(relay);
  closing.push(close);
  const followed = follow(sink({ url: `http://127.0.0.1:${port}` }));
  await until(() => followed.logged.some(({ msg }) => msg === 'audit sink gets records again'));
  expect(replies).toEqual([200, 409, 200]);
  expect(await followed.status()).toMatchObject({ behind: 0, delivered: 10, failures: 1 });
  expect(await check(directory, { witnessHeads: true })).toMatchObject({
    kinds: [],
    notes: [],
    cosigned: 1,
    cosignedRecords: 10,
  });
});

test('a copy of closed segments may lack what is cosigned', async () => {
  const { directory, follow } = await scene();
  await write(directory, 12);
  const followed = follow(sink());
  await followed.untilSent();
  await followed.finish();
  const newest = (await readdir(join(directory, REPLICA))).filter((name) =>
    /^\d+\.(jsonl|cosigned)$/.test(name),
  );
  for (const name of newest) await rm(join(directory, REPLICA, name));
  expect(await check(directory, { witnessHeads: true, isCopy: true })).toMatchObject({
    kinds: ['cosignature-missing'],
    notes: ['cosigned-ahead'],
  });
});

test('order, repetition and forged heads in the files of cosigned heads accuse no log', async () => {
  const { directory, follow } = await scene();
  for (let run = 0; run < 3; run += 1) {
    await write(directory, 4);
    const followed = follow(sink());
    await followed.untilSent();
    await followed.finish();
  }
  const before = await check(directory, { witnessHeads: true });
  const folder = join(directory, REPLICA);
  const files = (await readdir(folder)).filter((name) => name.endsWith('.cosigned'));
  const texts = await Promise.all(files.map((name) => readFile(join(folder, name), 'utf8')));
  const lines = texts.join('').trimEnd().split('\n').reverse();
  const forged = (lines[0] ?? '').replace(/(?<=\\n)\d+(?=\\n)/, '99999');
  for (const name of files)
    await writeFile(join(folder, name), `${[forged, ...lines, ...lines].join('\n')}\n`);
  expect(await check(directory, { witnessHeads: true })).toEqual(before);
  expect(before).toMatchObject({ kinds: [], notes: [], cosigned: 3 });
});

test('records behind the last cosigned head are a note', async () => {
  const { directory, follow } = await scene();
  await write(directory, 3);
  const followed = follow(sink());
  await followed.untilSent();
  await followed.finish();
  await write(directory, 3);
  expect(await check(directory, { witnessHeads: true })).toMatchObject({
    kinds: [],
    notes: ['end-uncosigned'],
  });
});

test('retention takes cosigned heads with their segment, and the witness still gets a proof', async () => {
  const { directory, follow } = await scene();
  await write(directory, 12);
  const first = follow(sink());
  await first.untilSent();
  const heads = await witness.checkpoints();
  await first.finish();
  await write(directory, 12, { segment: { ...SEGMENT, keep: 1, keepUnsent: 1e9 }, sinks: ['witness'] });
  const names = await readdir(join(directory, REPLICA));
  expect(names.filter((name) => name.startsWith('000000000001.'))).toEqual([]);
  expect((await check(directory, { witnessHeads: true })).kinds).toEqual([]);
  const second = follow(sink());
  await second.untilSent();
  expect((await second.status()).rejected).toBe(false);
  await second.finish();
  await write(directory, 1, { segment: { ...SEGMENT, keep: 1 } });
  expect(await check(directory, { witnessHeads: heads })).toMatchObject({
    kinds: [],
    notes: ['cosigned-retired', 'end-uncosigned'],
  });
  expect((await check(directory, { witnessHeads: true })).kinds).toEqual([]);
});

describe('a log that does not continue what was cosigned', () => {
  /** A folder that was cosigned, and a copy of it from before. */
  async function cosigned() {
    const { directory, follow } = await scene();
    await write(directory, 6);
    const old = await mkdtemp(join(tmpdir(), 'witness-old-'));
    await cp(directory, old, { recursive: true });
    const followed = follow(sink());
    await followed.untilSent();
    await followed.finish();
    await write(directory, 6);
    const again = follow(sink());
    await again.untilSent();
    await again.finish();
    const names = (await readdir(join(directory, REPLICA))).filter((name) => name.endsWith('.cosigned'));
    const replace = async (): Promise<void> => {
      await rm(directory, { recursive: true });
      await cp(old, directory, { recursive: true });
      await rm(old, { recursive: true });
    };
    return { directory, follow, old, names, replace };
  }

  test('an old copy is found by the head that the witness has', async () => {
    const { directory, follow, replace } = await cosigned();
    await replace();
    expect(await check(directory, { witnessHeads: true })).toMatchObject({
      kinds: ['cosigned-truncated', 'cosignature-missing'],
    });
    const followed = follow(sink());
    await until(async () => (await followed.status()).rejected);
    expect((await followed.status()).failing).toMatch(
      /it has cosigned 14 records, and this log has 7: its end is gone/,
    );
  });

  test('stays one while its witness is away', async () => {
    const { follow, replace } = await cosigned();
    await replace();
    const followed = follow(sink());
    await until(async () => (await followed.status()).rejected);
    await witness.stop();
    await until(async () => /ECONNREFUSED/.test((await followed.status()).failing ?? ''));
    expect((await followed.status()).rejected).toBe(true);
  });

  test('an old copy that was continued with the keys of the gateway gets no cosignature', async () => {
    const { directory, follow, replace } = await cosigned();
    await replace();
    await write(directory, 20);
    const { kinds } = await check(directory, { witnessHeads: true });
    expect(kinds).toContain('cosigned-rewritten');
    const followed = follow(sink());
    await until(async () => (await followed.status()).rejected);
    expect((await followed.status()).failing).toMatch(/is not the beginning of this log/);
    expect(witness.logged.at(-1)).toMatchObject({ reason: 'inconsistent', request: expect.any(String) });
  });

  test('a log that was cut off and compressed, as in a copy, is found by the head that the witness has', async () => {
    const { directory, replace } = await cosigned();
    await replace();
    const names = await readdir(join(directory, REPLICA));
    const file = join(directory, REPLICA, names.find((name) => name.endsWith('.jsonl')) ?? '');
    await writeFile(`${file}.zst`, zstdCompressSync(await readFile(file)));
    await rm(file);
    expect(await check(directory, { witnessHeads: true })).toMatchObject({
      kinds: ['cosigned-truncated', 'cosignature-missing'],
    });
  });

  test('a log that was written anew without signed heads is found, though the next start begins a tree that is cosigned', async () => {
    const { directory, follow, old } = await cosigned();
    await rm(old, { recursive: true });
    await rm(join(directory, REPLICA), { recursive: true });
    await write(directory, 15, { signingKey: undefined });
    await write(directory, 3);
    expect((await check(directory, { witnessHeads: true })).kinds).toEqual([
      'cosigned-rewritten',
      'cosignature-missing',
    ]);
    const followed = follow(sink());
    await followed.untilSent();
    const found = await check(directory, { witnessHeads: true });
    expect(found).toMatchObject({ kinds: ['cosigned-rewritten'], cosigned: 1, cosignedRecords: 4 });
    expect(found.notes).not.toContain('cosigned-retired');
  });

  test('one that was written anew with old times, so that its segments went for their age, is found', async () => {
    const { directory, old } = await cosigned();
    await rm(old, { recursive: true });
    await rm(join(directory, REPLICA), { recursive: true });
    const now = Date.now();
    for (const days of [42, 41, 40]) {
      setWallClock(now - days * 86_400_000);
      await write(directory, 15, { signingKey: undefined, segment: { ...SEGMENT, keep: 0 } });
    }
    jest.useRealTimers();
    await write(directory, 3);
    const names = await readdir(join(directory, REPLICA));
    expect(names.filter((name) => name.startsWith('000000000001.'))).toEqual([]);
    const found = await check(directory, { witnessHeads: true });
    expect(found.kinds).toContain('cosigned-rewritten');
    expect(found.notes).not.toContain('cosigned-retired');
  });

  test('one whose old times made the gateway itself retire it is found, whatever the oldest header says', async () => {
    const { directory, old } = await cosigned();
    await rm(old, { recursive: true });
    await rm(join(directory, REPLICA), { recursive: true });
    const now = Date.now();
    // No gap between them makes the gateway doubt its clock.
    for (const days of [60, 45, 30, 15]) {
      setWallClock(now - days * 86_400_000);
      await write(directory, 15, { signingKey: undefined, segment: { ...SEGMENT, keep: 1e12 } });
    }
    jest.useRealTimers();
    const segment = { ...SEGMENT, keep: 20 * 86_400_000 };
    const { audit } = await openTestAudit(directory, { signingKey: key.secret, segment });
    for (let index = 0; index < 3; index += 1) await recordAccess(audit, { requestId: `q${index}` });
    // An end does not wait until all are retired.
    await until(async () => Number.parseInt((await namesOf(directory))[0] ?? '', 10) > 20);
    await audit.close('stop');
    await write(directory, 1, { segment });
    const before = await check(directory, { witnessHeads: true });
    // Nobody signs a header.
    await rewrite(directory, 0, ([header = '', ...lines]) =>
      redigested([header.replace(/"opened":"[^"]*/, `"opened":"${new Date(now).toISOString()}`), ...lines]),
    );
    const after = await check(directory, { witnessHeads: true });
    expect([before, after].map(({ kinds }) => kinds)).toEqual(
      Array(2).fill(['cosigned-rewritten', 'cosignature-missing']),
    );
    expect(after.notes).toEqual(before.notes);
  });

  test('a log that got its signing key later is none, also once its first segments were retired', async () => {
    const { directory, follow } = await scene();
    await write(directory, 5, { signingKey: undefined });
    await write(directory, 5);
    const followed = follow(sink());
    await followed.untilSent();
    const heads = await witness.checkpoints();
    const found = await check(directory, { witnessHeads: heads });
    expect(found).toMatchObject({ kinds: [], cosigned: 1, cosignedRecords: 6 });
    await followed.finish();
    for (let run = 0; run < 2; run += 1) await write(directory, 3, { segment: { ...SEGMENT, keep: 0 } });
    const later = await check(directory, { witnessHeads: heads });
    expect([later.kinds, later.notes]).toEqual([[], ['cosigned-retired', 'end-uncosigned']]);
  });

  test('a log that was removed is found by the head that the witness has', async () => {
    const { directory, old } = await cosigned();
    await rm(old, { recursive: true });
    await rm(join(directory, REPLICA), { recursive: true });
    expect((await check(directory, { witnessHeads: true })).kinds).toEqual(['log-missing']);
  });
});

test('a proof leads to a cosigned head, if there is one', async () => {
  const { directory, follow } = await scene();
  await write(directory, 9);
  const before = JSON.stringify(await prove({ directory, requestId: 'q2' }));
  const own = [witnessKey(witness.publicKey)];
  expect(checkProof(before, [key.publicKey]).cosignatures).toEqual([]);
  expect(() => checkProof(before, [key.publicKey], own)).toThrow('that no given witness has cosigned');
  const followed = follow(sink());
  await followed.untilSent();
  for (const requestId of ['q0', 'q2', 'q8']) {
    const proof = JSON.stringify(await prove({ directory, requestId }));
    expect(checkProof(proof, [key.publicKey], own)).toMatchObject({
      requestId,
      cosignatures: [{ name: WITNESS_NAME, time: expect.any(Number) }],
    });
    expect(() => checkProof(proof, [key.publicKey], [witnessKey(key.publicPem)])).toThrow('no given witness');
  }
});

test('a verifier of the documented format in Python accepts a cosigned proof, and no other', async () => {
  needPackages('python3', 'openssl');
  const { directory, follow } = await scene();
  await write(directory, 9);
  const files = { key: key.publicPem, witness: witness.key.publicPem, other: newSigningKey().publicPem };
  for (const [name, pem] of Object.entries(files)) await writeFile(join(directory, name), pem);
  const verdict = async (witnessName: string, change = (proof: string) => proof): Promise<string> => {
    const file = join(directory, 'proof');
    await writeFile(file, change(JSON.stringify(await prove({ directory, requestId: 'q4' }))));
    const args = [PYTHON, '--witness', join(directory, witnessName), join(directory, 'key'), file];
    return execFileSync('python3', args, { encoding: 'utf8' });
  };
  expect(await verdict('witness')).toBe('refused: the witness cosigned it\n');
  const followed = follow(sink());
  await followed.untilSent();
  expect(await verdict('witness')).toBe('ok: 1\n');
  expect(await verdict('other')).toBe('refused: the witness cosigned it\n');
  const [, line = ''] =
    new RegExp(`(${WITNESS_NAME} [^\\\\]+)`).exec(await readFile(join(directory, 'proof'), 'utf8')) ?? [];
  for (let at = WITNESS_NAME.length + 1; at < line.length; at += 25) {
    const changed = `${line.slice(0, at)}${line[at] === 'A' ? 'B' : 'A'}${line.slice(at + 1)}`;
    expect(await verdict('witness', (proof) => proof.replace(line, changed))).toMatch(/^refused: /);
  }
});

test('lines that are no cosigned heads change nothing', async () => {
  const { directory, follow } = await scene();
  await write(directory, 9);
  const followed = follow(sink());
  await followed.untilSent();
  await followed.finish();
  const names = (await readdir(join(directory, REPLICA))).filter((name) => name.endsWith('.cosigned'));
  const [name = ''] = names;
  const path = join(directory, REPLICA, name);
  const text = await readFile(path, 'utf8');
  await writeFile(path, `x\n{"checkpoint":"x"}\n${text.replace('\\n10\\n', '\\n9\\n')}${text}{"checkp`);
  expect(await check(directory)).toMatchObject({ kinds: [], cosignedRecords: 10 });
  // A line that a crash has torn does not take the next one with it.
  await write(directory, 3);
  await appendFile(path, '');
  const again = follow(sink());
  await again.untilSent();
  expect(await check(directory, { witnessHeads: true })).toMatchObject({ kinds: [], notes: [] });
  expect((await prove({ directory, requestId: 'q1', record: 2 })).records).toHaveLength(1);
});

test('speaks TLS, and says why a witness does not cosign', async () => {
  const authority = await createTestAuthority();
  const tls = { ...(await authority.server()), ca: authority.ca };
  await using secure = await startTestWitness({ [REPLICA]: key.publicPem }, tls);
  await using foreign = await startTestWitness({ [REPLICA]: newSigningKey().publicPem });
  await using other = await startTestWitness({ other: key.publicPem });
  const { directory, follow } = await scene();
  await write(directory, 3);
  /** Resolves when a reason like this is told: a try that follows may have another one. */
  const fails = async (change: Partial<WitnessOptions>, reason: RegExp): Promise<void> => {
    const followed = follow(sink(change));
    await until(async () => reason.test((await followed.status()).failing ?? ''));
    expect((await followed.status()).rejected).toBe(false);
    await followed.finish();
  };
  await fails({ url: foreign.url }, /it has another public key for this log/);
  await fails({ url: other.url }, /it does not know this log: add the replica to its logs/);
  await fails({ url: secure.url }, /UNABLE_TO_VERIFY/);
  await fails({ publicKey: other.publicKey }, /no cosignature of audit\.witness\.publicKey/);
  const followed = follow(sink({ url: secure.url, publicKey: secure.publicKey, tls: { ca: authority.ca } }));
  await followed.untilSent();
  expect((await check(directory, { witnesses: [secure.publicKey] })).kinds).toEqual([]);
});
