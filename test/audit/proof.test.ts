import { execFileSync } from 'node:child_process';
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Audit } from '../../src/audit/audit.ts';
import { checkProof } from '../../src/audit/proof.ts';
import { prove } from '../../src/audit/reader/prove.ts';
import { openTestAudit, REPLICA, recordAccess, useFolders } from '../support/audit-log.ts';
import { fuzzRuns } from '../support/fuzz.ts';
import { newSigningKey } from '../support/signing-key.ts';
import { needPackages } from '../support/system-packages.ts';
import { checkProofs, isRefused, memoryLog } from './many-proofs.ts';

const key = newSigningKey();
const keys = [key.publicKey];
const folder = useFolders();
const PYTHON = fileURLToPath(new URL('../../deploy/examples/audit/check_proof.py', import.meta.url));
const SEGMENT = { size: 4000, age: 1e9, keep: 1e9 };
/** Requests q0 to q19 of clients c0 to c19; those with an even number have an outcome record, later in the log. */
let original: string;

beforeAll(async () => {
  original = await mkdtemp(join(tmpdir(), 'proof-'));
  const { audit } = await openTestAudit(original, { signingKey: key.secret, segment: SEGMENT });
  for (let index = 0; index < 20; index += 1) await request(audit, index);
  await audit.close('stop');
});
afterAll(() => rm(original, { recursive: true }));

async function request(audit: Audit, index: number): Promise<void> {
  const requestId = `q${index}`;
  const access = await new Promise<number>((resolve) => {
    const seq = { number: 0 };
    const recorded = (): void => resolve(seq.number);
    seq.number = audit.access(
      {
        requestId,
        client: `client-${index}`,
        address: '192.0.2.7',
        deployment: 'd',
        site: '',
        operation: 'o',
        method: 'GET',
        target: `/x?ids=${index}`,
        status: 200,
        code: '',
        upstream: undefined,
        credential: undefined,
        credentialRule: '',
        key: '',
        wouldRefuse: '',
      },
      { recorded, unrecorded: recorded },
    );
  });
  if (index % 2 === 1) return;
  const end = { status: 200, code: '', outcome: '', bytes: { in: 0, out: 7 }, durationMs: 3 };
  audit.outcome({ access, requestId, ...end });
}

describe('prove', () => {
  test('proves both records of a request, or its only one, with no byte of others', async () => {
    for (let index = 0; index < 20; index += 1) {
      const proof = await prove({ directory: original, requestId: `q${index}` });
      const text = JSON.stringify(proof);
      const { records, origin } = checkProof(text, keys);
      expect([records.length, origin]).toEqual([index % 2 === 0 ? 2 : 1, `digest-gateway/${REPLICA}/1`]);
      expect(new Set(text.match(/client-\d+/g))).toEqual(new Set([`client-${index}`]));
      expect(
        new Set(text.match(/"requestId\\?":\\?"q\d+/g)?.map((each) => each.replaceAll('\\', ''))),
      ).toEqual(new Set([`"requestId":"q${index}`]));
    }
  });

  test('proves a record after the segments before it are gone', async () => {
    const directory = await folder();
    await cp(original, directory, { recursive: true });
    const names = (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
    for (const name of names.slice(0, -1)) await rm(join(directory, REPLICA, name));
    await expect(prove({ directory, requestId: 'q1' })).rejects.toThrow(
      `has no record of request q1; r1 begins with record ${Number.parseInt(names.at(-1) ?? '', 10)}; audit verify`,
    );
    expect(
      checkProof(JSON.stringify(await prove({ directory, requestId: 'q19' })), keys).records,
    ).toHaveLength(1);
  });

  test('finds no proof where there is no record, no signed head, or an altered line', async () => {
    await expect(prove({ directory: original, requestId: 'q99' })).rejects.toThrow(
      'has no record of request q99',
    );
    const unsigned = await folder();
    const { audit } = await openTestAudit(unsigned);
    await recordAccess(audit);
    await audit.close();
    await expect(prove({ directory: unsigned, requestId: 'q1' })).rejects.toThrow(
      'no signed head covers record 1 of r1',
    );
    const directory = await folder();
    await cp(original, directory, { recursive: true });
    const names = (await readdir(join(directory, REPLICA))).filter((name) => name.endsWith('.jsonl')).sort();
    const file = join(directory, REPLICA, names.at(-1) ?? '');
    await writeFile(file, (await readFile(file, 'utf8')).replace('"status":200', '"status":404'));
    await expect(prove({ directory, requestId: 'q19' })).rejects.toThrow('run audit verify');
  });

  test('does not mix requests that chose the same id', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { signingKey: key.secret });
    await recordAccess(audit, { client: 'first' });
    await recordAccess(audit, { client: 'second' });
    await audit.close();
    const options = { directory, requestId: 'q1' };
    await expect(prove(options)).rejects.toThrow('choose one by --replica and --record (r1 1, r1 2)');
    expect(JSON.stringify(await prove({ ...options, record: 2 }))).not.toContain('first');
  });

  test('an id of many requests names the first of them', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { signingKey: key.secret });
    for (let index = 0; index < 13; index += 1) await recordAccess(audit, { requestId: 'q' });
    await audit.close('stop');
    await expect(prove({ directory, requestId: 'q' })).rejects.toThrow(/\(r1 1, .*r1 10 and 3 more\)$/);
  });

  test('is not misled by the text of a client', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { signingKey: key.secret });
    await recordAccess(audit, { target: '/x?ids="requestId":"q7",', requestId: 'q"\\1' });
    await audit.close();
    await expect(prove({ directory, requestId: 'q7' })).rejects.toThrow('has no record');
    const text = JSON.stringify(await prove({ directory, requestId: 'q"\\1' }));
    expect(checkProof(text, keys).requestId).toBe('q"\\1');
  });
});

/** The text with each of its characters changed in turn, removed, and doubled. */
function* mutationsOf(text: string): Generator<string> {
  for (let at = 0; at < text.length; at += 1) {
    const [before, after] = [text.slice(0, at), text.slice(at + 1)];
    const code = text.charCodeAt(at);
    for (const other of [code ^ 1, code ^ 0x20, 0x41, 0x30, 0x0a]) {
      if (other !== code) yield `${before}${String.fromCharCode(other)}${after}`;
    }
    yield before + after;
    yield `${before}${text[at]}${text[at]}${after}`;
  }
}

test('proofs of each place in trees of many sizes are accepted, and none with a changed field', () => {
  expect(checkProofs(key, fuzzRuns(100))).toEqual([]);
});

test('a proof with any change of any field is refused', () => {
  const proof = memoryLog(key, 23)(11, 23);
  const [only] = proof.records;
  if (only === undefined) throw new Error('there is no record');
  const accepted = [
    ...[...mutationsOf(proof.requestId)].map((requestId) => ({ ...proof, requestId })),
    ...[...mutationsOf(only.record)].map((record) => ({ ...proof, records: [{ ...only, record }] })),
    ...[...mutationsOf(only.proof)].map((text) => ({ ...proof, records: [{ ...only, proof: text }] })),
    { ...proof, more: 1 },
    { ...proof, records: [] },
    { ...proof, records: [only, only] },
    { ...proof, records: [{ ...only, more: 1 }] },
    { requestId: proof.requestId, records: [{ record: only.record }] },
    'x',
    '[]',
    'null',
  ].filter((each) => !isRefused(each, keys));
  expect(accepted).toEqual([]);
});

test('a proof is refused under another key, and accepted if one of several keys signed it', () => {
  const text = JSON.stringify(memoryLog(key, 3)(1, 3));
  const other = newSigningKey().publicKey;
  expect(() => checkProof(text, [other])).toThrow('that the key did not sign');
  expect(checkProof(text, [other, key.publicKey]).requestId).toBe('q1');
});

test('a proof with the signature of a witness beside that of the log is accepted', () => {
  const proof = memoryLog(key, 3)(1, 3);
  const witness = `— witness.example ${Buffer.alloc(76, 1).toString('base64')}\n`;
  const records = proof.records.map((each) => ({ ...each, proof: each.proof + witness }));
  expect(isRefused({ ...proof, records }, keys)).toBe(false);
});

describe('a verifier in Python, from docs/audit/format.md', () => {
  /** The verdict on each proof. */
  async function verdicts(proofs: readonly unknown[]): Promise<string[]> {
    const place = await folder();
    const pem = join(place, 'key.pub');
    await writeFile(pem, key.publicPem);
    const files = proofs.map((_, index) => join(place, `proof${index}`));
    for (const [index, file] of files.entries())
      await writeFile(file, JSON.stringify(proofs[index], undefined, 2));
    return execFileSync('python3', [PYTHON, pem, ...files], { encoding: 'utf8' })
      .trimEnd()
      .split('\n');
  }

  test('has fewer than 200 lines, accepts proofs of the gateway and refuses changed ones', async () => {
    needPackages('python3', 'openssl');
    expect((await readFile(PYTHON, 'utf8')).split('\n').length).toBeLessThan(200);
    const proofs = await Promise.all(
      [0, 7, 19].map((index) => prove({ directory: original, requestId: `q${index}` })),
    );
    expect(await verdicts(proofs)).toEqual(['ok: 2', 'ok: 1', 'ok: 1']);
    const changed = proofs.flatMap((proof) => {
      const [first = { record: '', proof: '' }, ...rest] = proof.records;
      const lines = first.proof.split('\n');
      return [
        { ...proof, requestId: 'q99' },
        { ...proof, records: [{ ...first, record: first.record.replace('200', '404') }, ...rest] },
        ...lines.flatMap((line, at) => {
          if (line === '') return [];
          const middle = line.length >> 1;
          const other = `${line.slice(0, middle)}${line[middle] === 'A' ? 'B' : 'A'}${line.slice(middle + 1)}`;
          return [{ ...proof, records: [{ ...first, proof: lines.with(at, other).join('\n') }, ...rest] }];
        }),
      ];
    });
    expect((await verdicts(changed)).filter((verdict) => !verdict.startsWith('refused: '))).toEqual([]);
  });
});

test('openssl reads the keys', async () => {
  needPackages('openssl');
  const place = await folder();
  await writeFile(join(place, 'key'), key.privatePem);
  const output = execFileSync('openssl', ['pkey', '-in', join(place, 'key'), '-pubout'], {
    encoding: 'utf8',
  });
  expect(output).toBe(key.publicPem);
});
