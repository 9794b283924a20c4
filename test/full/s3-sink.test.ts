import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { S3Delivery } from '../../src/audit/shipping/s3.ts';
import { Secret } from '../../src/base/secret.ts';
import { REPLICA, recordAccess, useFolders } from '../support/audit-log.ts';
import { gateway } from '../support/program.ts';
import { newSigningKey } from '../support/signing-key.ts';
import { positionOf, recordMany, type SinkScene, storedSeq, useSinks } from '../support/sink-scene.ts';
import { startTsa } from '../support/time-stamping-authority.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';
import { startTestWitness } from '../support/witness.ts';
import { type S3Server, s3To, startS3 } from './servers/s3-server.ts';

const scene = useSinks();
const folder = useFolders();
const SMALL = { segment: { size: 2_000, age: 1e9, keep: 1e9 } };
const FIRST = '000000000001.jsonl';
let server: S3Server;

beforeAll(async () => {
  server = await startS3();
});
afterAll(() => server.close());

/** Writes records one by one into several segments, and waits until the closed ones are compressed. */
async function writeSegments(
  { directory, open }: Pick<SinkScene, 'directory' | 'open'>,
  replica = REPLICA,
): Promise<string[]> {
  const audit = await open(replica, SMALL);
  for (let count = 0; count < 20; count += 1) await recordAccess(audit, { requestId: `q${count}` });
  await audit.close('stop');
  return closedIn(directory, replica);
}

async function closedIn(directory: string, replica = REPLICA): Promise<string[]> {
  const names = (await readdir(join(directory, replica))).filter((name) => name.includes('.jsonl'));
  return names.sort().slice(0, -1);
}

describe('a bucket', () => {
  test('gets each closed segment with a lock, and can be verified where it was downloaded', async () => {
    const bucket = await server.bucket('verified');
    const { directory, open, follow } = await scene();
    const names = await writeSegments({ directory, open });
    const ofWorker = await writeSegments({ directory, open }, `${REPLICA}@2`);
    expect(names.length).toBeGreaterThan(2);
    const followed = follow(s3To(server, bucket.name));
    await until(async () => (await bucket.keys()).length === names.length + ofWorker.length);
    await followed.untilSent();
    expect(await bucket.keys()).toEqual([
      ...names.map((name) => `audit/${REPLICA}/${name}`),
      ...ofWorker.map((name) => `audit/${REPLICA}@2/${name}`),
    ]);
    const key = `audit/${REPLICA}/${FIRST}.zst`;
    const head = await bucket.head(key);
    expect(head.get('x-amz-object-lock-mode')).toBe('COMPLIANCE');
    const retained = Date.parse(String(head.get('x-amz-object-lock-retain-until-date')));
    expect(retained).toBeGreaterThan(Date.now() + 3_000_000);
    expect(await bucket.remove(key, String(head.get('x-amz-version-id')))).toBe(403);

    const copy = await folder();
    await bucket.download('audit/', copy);
    for (const name of names) {
      expect(await readFile(join(copy, REPLICA, name))).toEqual(
        await readFile(join(directory, REPLICA, name)),
      );
    }
    const found = await verified(copy, { isCopy: true });
    expect(found).toMatchObject({ alterations: [], replicas: 1, workers: 1 });
    expect(found.records).toBeGreaterThan(20);
    expect(followed.logged).toEqual([]);
  });

  test('gets the files that a start set aside, which the log names', async () => {
    const bucket = await server.bucket('set-aside');
    const { directory, open, follow } = await scene();
    const audit = await open(REPLICA);
    await recordMany(audit, 3);
    await audit.close();
    await writeFile(join(directory, REPLICA, FIRST), '{"seq":4,"time":"x"}\n', { flag: 'a' });
    await writeSegments({ directory, open });
    await follow(s3To(server, bucket.name)).untilSent();
    expect(await bucket.keys()).toContainEqual(
      expect.stringMatching(/000000000001\.jsonl\.\d+\.\d+\.unsealed$/),
    );
    const copy = await folder();
    await bucket.download('audit/', copy);
    const found = await verified(copy, { isCopy: true });
    expect(found.alterations).toEqual([]);
  });

  test('gets nothing twice after a crash before the position was stored', async () => {
    const bucket = await server.bucket('again');
    const { directory, open, follow } = await scene();
    const names = await writeSegments({ directory, open });
    const first = follow(s3To(server, bucket.name));
    await first.untilSent();
    await first.finish();
    const before = await Promise.all(names.map((name) => bucket.head(`audit/${REPLICA}/${name}`)));
    await rm(positionOf(directory));
    const second = follow(s3To(server, bucket.name));
    await second.untilSent();
    expect((await second.status()).failures).toBe(0);
    const after = await Promise.all(names.map((name) => bucket.head(`audit/${REPLICA}/${name}`)));
    const versions = (heads: Headers[]): unknown[] => heads.map((head) => head.get('x-amz-version-id'));
    expect(versions(after)).toEqual(versions(before));
  });

  test('gets every segment if another key signed the position', async () => {
    const bucket = await server.bucket('other-key');
    const { directory, open, follow } = await scene();
    const names = await writeSegments({ directory, open });
    const first = follow(s3To(server, (await server.bucket('before')).name));
    await first.untilSent();
    await first.finish();
    const file = positionOf(directory);
    const position = JSON.parse(await readFile(file, 'utf8'));
    await writeFile(file, JSON.stringify({ ...position, key: 'f'.repeat(16) }));
    const second = follow(s3To(server, bucket.name));
    await until(async () => (await bucket.keys()).length === names.length);
    expect(second.logged).toMatchObject([
      {
        msg: 'audit records are sent to the sink again',
        reason: 'the log is not the one that the position belongs to',
      },
    ]);
  });

  test('gets the files that are there; the records of a segment that is gone do not count as delivered', async () => {
    const bucket = await server.bucket('gone');
    const files = await folder();
    const delivery = new S3Delivery(s3To(server, bucket.name));
    const deliver = (...names: string[]): Promise<number> =>
      delivery.deliver(
        { replica: REPLICA, folder: files, names, evidence: [], records: 7 },
        AbortSignal.timeout(30_000),
      );
    await writeFile(join(files, FIRST), 'segment');
    await writeFile(join(files, `${FIRST}.2.unsealed`), 'aside');
    expect(await deliver(FIRST, `${FIRST}.1.unsealed`, `${FIRST}.2.unsealed`)).toBe(0);
    expect(await bucket.keys()).toEqual([
      `audit/${REPLICA}/${FIRST}`,
      `audit/${REPLICA}/${FIRST}.2.unsealed`,
    ]);
    expect(await deliver('000000000008.jsonl')).toBe(7);
    await delivery.close();
  });

  test('keeps another object with the same key, and the sink waits', async () => {
    const bucket = await server.bucket('other-object');
    const { directory, open, follow } = await scene();
    await writeSegments({ directory, open });
    await bucket.put(`audit/${REPLICA}/${FIRST}.zst`, 'other');
    const followed = follow(s3To(server, bucket.name));
    await until(async () => (await followed.status()).failures > 1);
    expect((await followed.status()).failing).toMatch(/another object is there, which is not replaced$/);
    expect((await bucket.head(`audit/${REPLICA}/${FIRST}.zst`)).get('content-length')).toBe('5');
    expect(await storedSeq(directory)).toBe(0);
  });

  test('without object lock is not enough where a lock is configured', async () => {
    const bucket = await server.bucket('no-lock', false);
    const { directory, open, follow } = await scene();
    await writeSegments({ directory, open });
    const followed = follow(s3To(server, bucket.name));
    await until(async () => (await followed.status()).failures > 0);
    expect((await followed.status()).delivered).toBe(0);
    await followed.finish();
    const unlocked = follow(s3To(server, bucket.name, { prefix: 'plain/', lock: undefined }));
    await unlocked.untilSent();
  });

  test('gets the heads that a witness cosigned and an authority stamped, and can be verified with public keys alone', async () => {
    const bucket = await server.bucket('evidence');
    const { directory, open, follow } = await scene();
    const key = newSigningKey();
    await using witness = await startTestWitness({ [REPLICA]: key.publicPem });
    await using tsa = await startTsa();
    const s3 = async (): Promise<void> => {
      const followed = follow(s3To(server, bucket.name));
      await until(async () => (await followed.status()).behind === 0);
      // Only the bucket shows which objects were delivered.
      await until(async () => (await bucket.keys()).includes(`audit/${REPLICA}/${evidence}`));
      await followed.finish();
    };
    const audit = await open(REPLICA, { signingKey: key.secret, segment: { ...SMALL.segment, size: 1 } });
    for (let count = 0; count < 3; count += 1) await recordAccess(audit);
    await audit.close();
    const names = await closedIn(directory);
    const heads = (names.at(-1) ?? '').replace('.jsonl.zst', '');
    let evidence = names.at(-1) ?? '';
    await s3();
    expect((await bucket.keys()).filter((name) => !name.endsWith('.zst'))).toEqual([]);

    const { url, publicKey } = witness;
    const common = { timeout: 60_000, every: 1, tls: undefined };
    const cosigning = follow({ ...common, kind: 'witness', name: 'witness', url, publicKey });
    const { url: tsaUrl, ca: authorities } = tsa;
    const named = { kind: 'timestamps', name: 'timestamps', url: tsaUrl } as const;
    const stamping = follow({ ...common, ...named, authorities, policy: undefined });
    await Promise.all([cosigning.untilSent(), stamping.untilSent()]);
    await Promise.all([cosigning.finish(), stamping.finish()]);
    evidence = `${heads}.stamped`;
    await s3();

    const copy = await folder();
    await bucket.download('audit/', copy);
    const files = await folder();
    const place = (name: string): string => join(files, name);
    await writeFile(place('log.pub'), key.publicPem);
    await writeFile(place('witness.pub'), publicKey);
    const run = await gateway([
      ...['audit', 'verify', '--copy', '--directory', copy, '--public-key', place('log.pub')],
      ...['--witness-key', place('witness.pub'), '--timestamp-ca', tsa.caFile],
    ]);
    expect([run.status, run.stderr]).toEqual([0, '']);
    expect(run.stdout).toMatch(/ 1 cosigned head over \d+ records, .* 1 time-stamped head/);

    const object = `audit/${REPLICA}/${heads}.cosigned`;
    const file = join(directory, REPLICA, `${heads}.cosigned`);
    const line = await readFile(file, 'utf8');
    await writeFile(file, line, { flag: 'a' });
    const again = follow(s3To(server, bucket.name));
    await until(
      async () => (await bucket.head(object)).get('content-length') === String(2 * Buffer.byteLength(line)),
    );
    await again.finish();
    await writeFile(file, `${line.replace('checkpoint', 'checkPoint')}${line}${line}`);
    const changed = follow(s3To(server, bucket.name));
    await until(async () => (await changed.status()).failures > 0);
    expect((await changed.status()).failing).toMatch(
      /cosigned: another object is there, which is not replaced$/,
    );
    expect((await bucket.head(object)).get('content-length')).toBe(String(2 * Buffer.byteLength(line)));
  });

  test('that refuses the access key or is not there is told without the secret', async () => {
    const { directory, open, follow } = await scene();
    await writeSegments({ directory, open });
    const bucket = await server.bucket('refused');
    const failing = async (options: Parameters<typeof follow>[0]): Promise<string> => {
      const followed = follow(options);
      await until(async () => (await followed.status()).failures > 0);
      await followed.finish();
      return JSON.stringify([await followed.status(), followed.logged]);
    };
    const secretAccessKey = new Secret('not-the-secret');
    const refused = await failing(s3To(server, bucket.name, { secretAccessKey }));
    expect(refused).toContain('status 403 SignatureDoesNotMatch');
    expect(refused).not.toContain('not-the-secret');
    expect(await failing(s3To(server, 'nowhere'))).toContain('status 404 NoSuchBucket');
    expect(await failing(s3To({ origin: 'http://127.0.0.1:1' }, bucket.name))).toContain('ECONNREFUSED');
  });
});
