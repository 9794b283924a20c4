import { createHash, createHmac, hkdfSync } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { zstdDecompressSync } from 'node:zlib';

/**
 * Verifies the log of one replica by the rules of docs/audit.md alone: it shares no code with src/audit, so a mistake of
 * either shows. Gives the number of sealed records.
 * @throws Error that says what is wrong
 */
export function verifyByPage(folder: string, replica: string, masterHex: string): number {
  const names = readdirSync(folder).filter((name) => /^\d{12,15}\.jsonl(\.zst)?$/.test(name));
  const plainFirst = (name: string): boolean => !name.endsWith('.zst') || !names.includes(name.slice(0, -4));
  const segments = names.filter(plainFirst).sort((a, b) => numberOf(a) - numberOf(b));
  const verifier = new PageVerifier(replica, masterHex);
  for (const name of segments) {
    const file = readFileSync(join(folder, name));
    const unsealed = verifier.read(name, name.endsWith('.zst') ? zstdDecompressSync(file) : file);
    if (unsealed > 0 && name !== segments.at(-1)) throw new Error(`${name}: bytes without a seal`);
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
      else {
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
    const sha256 = createHash('sha256').update(covered).digest('base64url');
    const text = `${this.#replica}\n${this.#previous}\n${range[0]}\n${range[1]}\n${sha256}`;
    const hmac = createHmac('sha256', this.#sealKey).update(text).digest('base64url');
    if (line !== JSON.stringify({ seal: range, sha256, hmac })) throw new Error(`wrong seal of ${range}`);
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

function numberOf(name: string): number {
  return Number.parseInt(name, 10);
}
