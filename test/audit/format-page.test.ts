import { createHash, createHmac, hkdfSync } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { zstdDecompressSync } from 'node:zlib';
import { describe, expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, openTestAudit, REPLICA, recordAccess, useFolders } from '../support/audit-log.ts';
import { repository } from '../support/repository.ts';
import { newSigningKey } from '../support/signing-key.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';

const folder = useFolders();

/**
 * Verifies the log of one replica by the rules of docs/audit/format.md alone: it shares no code with src/audit, so a
 * mistake of either shows. Gives the number of sealed records.
 * @throws Error that says what is wrong
 */
function verifyByPage(folder: string, replica: string, masterHex: string): number {
  const names = readdirSync(folder).filter((name) => /^\d{12,15}\.jsonl(\.zst)?$/.test(name));
  const plainFirst = (name: string): boolean => !name.endsWith('.zst') || !names.includes(name.slice(0, -4));
  const segments = names.filter(plainFirst).sort((a, b) => numberOf(a) - numberOf(b));
  const verifier = new PageVerifier(replica, masterHex);
  for (const name of segments) {
    const file = readFileSync(join(folder, name));
    const unsealed = verifier.read(name, name.endsWith('.zst') ? zstdDecompressSync(file) : file);
    if (name === segments.at(-1)) continue;
    if (unsealed > 0 || file.length === 0) throw new Error(`${name}: bytes without a seal, or no byte`);
  }
  return verifier.finish();
}

interface Header {
  readonly replica: string;
  readonly first: number;
  readonly previous: string;
  readonly key: string;
  readonly retired?: AdminRecord;
}

interface AdminRecord {
  readonly kind?: string;
  readonly event?: string;
  readonly last?: number;
  readonly hmac?: string;
}

class PageVerifier {
  readonly #replica: string;
  readonly #sealKey: Buffer;
  readonly #keyId: string;
  #start: string | undefined;
  #previous = '';
  #next = 1;
  /** First number that the next seal has to cover. */
  #first = 1;
  #admin: AdminRecord[] = [];
  readonly #starts = new Set(['0 ']);

  constructor(replica: string, masterHex: string) {
    const derive = (info: string) =>
      Buffer.from(hkdfSync('sha256', Buffer.from(masterHex, 'hex'), '', info, 32));
    this.#replica = replica;
    this.#sealKey = derive('digest-gateway audit seal');
    this.#keyId = derive('digest-gateway audit key id').toString('hex', 0, 8);
  }

  /** Gives the bytes after the last seal. */
  read(name: string, bytes: Buffer): number {
    let [from, sealed] = [0, 0];
    for (let end = bytes.indexOf('\n'); end !== -1; end = bytes.indexOf('\n', from)) {
      const line = bytes.toString('utf8', from, end);
      if (from === 0) this.#readHeader(JSON.parse(line).segment, numberOf(name));
      else if (line.startsWith('{"seq":')) this.#readRecord(JSON.parse(line));
      else if (!line.startsWith('{"checkpoint":')) {
        this.#readSeal(line, bytes.subarray(sealed, from));
        sealed = end + 1;
      }
      from = end + 1;
    }
    this.#next = this.#first;
    return bytes.length - sealed;
  }

  #readHeader({ replica, first, previous, key, retired }: Header, inName: number): void {
    if (replica !== this.#replica || first !== inName || key !== this.#keyId) throw new Error('wrong header');
    if (this.#start === undefined) {
      this.#start = `${first - 1} ${previous}`;
      [this.#previous, this.#next, this.#first] = [previous, first, first];
    }
    if (previous !== this.#previous || first !== this.#next) throw new Error(`gap before record ${first}`);
    this.#admin = retired === undefined ? [] : [{ event: 'segment-retired', ...retired }];
  }

  #readRecord(record: AdminRecord & { readonly seq: number }): void {
    if (record.seq !== this.#next) throw new Error(`record ${record.seq} instead of ${this.#next}`);
    this.#next += 1;
    if (record.kind === 'admin') this.#admin.push(record);
  }

  #readSeal(line: string, covered: Buffer): void {
    const range = [this.#first, this.#next - 1] as const;
    const isOverLeaves = line.includes('"leaves"');
    const hash = sha256(isOverLeaves ? leafHashesOf(covered) : covered).toString('base64url');
    const named = isOverLeaves ? `leaves\n${hash}` : hash;
    const text = `${this.#replica}\n${this.#previous}\n${range[0]}\n${range[1]}\n${named}`;
    const hmac = createHmac('sha256', this.#sealKey).update(text).digest('base64url');
    const digest = isOverLeaves ? { leaves: hash } : { sha256: hash };
    if (line !== JSON.stringify({ seal: range, ...digest, hmac })) throw new Error(`wrong seal of ${range}`);
    for (const { event, last, hmac: end } of this.#admin) {
      if (event === 'segment-retired') this.#starts.add(`${last} ${end}`);
    }
    [this.#admin, this.#previous, this.#first] = [[], hmac, this.#next];
  }

  finish(): number {
    const start = this.#start ?? '0 ';
    if (!this.#starts.has(start)) throw new Error('the beginning of the log is missing');
    return this.#first - 1 - Number.parseInt(start, 10);
  }
}

function sha256(...parts: readonly Uint8Array[]): Buffer {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
}

function leafHashesOf(covered: Buffer): Buffer {
  const lines = covered.toString().split('\n').slice(0, -1);
  return Buffer.concat(lines.map((line) => sha256(Buffer.of(0), Buffer.from(line))));
}

function numberOf(name: string): number {
  return Number.parseInt(name, 10);
}

const page = await readFile(join(repository, 'docs/audit/format.md'), 'utf8');
const [, example = ''] = /```jsonl\n([\s\S]*?)```/.exec(page) ?? [];
const [, key = ''] = /key file holds `([0-9a-f]{64})`/.exec(page) ?? [];
const [, overLeaves = ''] = /```json\n(\{"seal":[\s\S]*?)```/.exec(page) ?? [];
/** The example, and how it ends in a log with signed heads. */
const examples = [
  example,
  `${example.trimEnd().split('\n').slice(0, -1).join('\n')}\n${overLeaves}`,
] as const;
const EXAMPLE_REPLICA = 'gateway-1';

async function writeExample(text: string): Promise<string> {
  const directory = await folder();
  await mkdir(join(directory, EXAMPLE_REPLICA));
  await writeFile(join(directory, EXAMPLE_REPLICA, '000000000001.jsonl'), text);
  return directory;
}

describe.each(examples)('the worked example of docs/audit/format.md', (example) => {
  test('verifies by the rules of the page', async () => {
    const directory = await writeExample(example);
    expect(verifyByPage(join(directory, EXAMPLE_REPLICA), EXAMPLE_REPLICA, key)).toBe(3);
  });

  test('verifies with the gateway', async () => {
    const directory = await writeExample(example);
    const keys = [auditKeys(new Secret(key))];
    const result = await verified(directory, { keys });
    expect(result).toMatchObject({ alterations: [], notes: [], records: 3, seals: 3 });
  });

  test('does not verify if a byte is changed', async () => {
    const directory = await writeExample(example.replace('192.0.2.7', '192.0.2.8'));
    expect(() => verifyByPage(join(directory, EXAMPLE_REPLICA), EXAMPLE_REPLICA, key)).toThrow('wrong seal');
  });
});

describe('a verifier written from docs/audit/format.md', () => {
  const segment = { size: 1200, age: 1e9, keep: 1e9 };
  const check = (directory: string): number => verifyByPage(join(directory, REPLICA), REPLICA, AUDIT_KEY);

  async function writeLog(): Promise<string> {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { segment });
    for (let index = 0; index < 9; index += 1) await recordAccess(audit, { requestId: `q${index}` });
    await audit.close();
    return directory;
  }

  test('follows a log of plain and compressed segments', async () => {
    const directory = await writeLog();
    expect((await readdir(join(directory, REPLICA))).some((name) => name.endsWith('.zst'))).toBe(true);
    expect(check(directory)).toBe(9);
  });

  test('follows a log with signed heads', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { segment, signingKey: newSigningKey().secret });
    for (let index = 0; index < 9; index += 1) await recordAccess(audit);
    await audit.close();
    expect(check(directory)).toBe(9);
    const newest = (await readdir(join(directory, REPLICA))).filter((name) => name.endsWith('.jsonl')).at(-1);
    const text = await readFile(join(directory, REPLICA, newest ?? ''), 'utf8');
    expect(text).toMatch(/^\{"seal":\[\d+,\d+\],"leaves":/m);
    expect(text).not.toContain('"sha256"');
  });

  test('finds that a segment was removed', async () => {
    const directory = await writeLog();
    const names = (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
    await rm(join(directory, REPLICA, names[0] ?? ''));
    expect(() => check(directory)).toThrow('the beginning of the log is missing');
    await rm(join(directory, REPLICA, names[2] ?? ''));
    expect(() => check(directory)).toThrow('gap');
  });

  test('finds an empty file that is not the newest', async () => {
    const directory = await writeLog();
    await writeFile(join(directory, REPLICA, '000000009998.jsonl'), '');
    expect(check(directory)).toBe(9);
    await writeFile(join(directory, REPLICA, '000000009999.jsonl'), '');
    expect(() => check(directory)).toThrow('000000009998.jsonl: bytes without a seal, or no byte');
  });

  test('follows a log whose oldest segments were retired', async () => {
    const directory = await writeLog();
    const { audit } = await openTestAudit(directory, { segment: { size: 1e9, age: 1e9, keep: 1 } });
    await recordAccess(audit);
    await recordAccess(audit);
    await until(async () => !(await readdir(join(directory, REPLICA))).includes('000000000001.jsonl.zst'));
    await audit.close();
    expect(check(directory)).toBeGreaterThan(0);
  });
});
