import { hash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { zstdCompressSync } from 'node:zlib';
import type { AuditKeys } from '../../src/audit/keys.ts';
import { RecordText, recordedTarget, recordLine } from '../../src/audit/record.ts';
import { GENESIS, sealFor, sealLine } from '../../src/audit/seal.ts';
import { compressedName, headerLine, segmentName } from '../../src/audit/segments/segment.ts';

const DAY_MS = 86_400_000;
const REQUESTS_A_SEAL = 25;

export interface LogOptions {
  readonly replica: string;
  readonly keys: AuditKeys;
  /** Unix milliseconds. */
  readonly start: number;
  readonly days: number;
  readonly requestsADay: number;
}

/** Each log begins with its own number, so that it is always the same, whatever else the process has written. */
let state = 1;
function random(below: number): number {
  state = (state * 48_271) % 2_147_483_647;
  return state % below;
}

function requestAt(time: number, seq: number, text: RecordText): string {
  const requestId = `${random(1e9).toString(16)}-${random(1e9).toString(16)}-${random(1e9).toString(16)}`;
  const site = `journal-${random(40)}`;
  const ids = Array.from({ length: 1 + random(4) }, () => `%27MS-2026-${random(2_000_000)}%27`).join(',');
  const target = `/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?ids=${ids}&site_name=${site}&external_id=${random(1e6)}`;
  const status = random(50) === 0 ? 404 : 200;
  const durationMs = 20 + random(2000) / 10;
  const access = text.access(
    {
      requestId,
      client: `app-${random(60)}`,
      address: `10.1.${random(8)}.${random(250)}`,
      deployment: 'submissions',
      site,
      operation: `operation-${random(30)}`,
      method: 'GET',
      target,
      status,
      code: '',
      upstream: {
        status,
        attempts: 1,
        challenged: false,
        durationMs,
        queueMs: 0,
        connectMs: 0,
        earlierMs: 0,
        address: 'submissions.example.org',
        egress: '',
      },
      credential: { name: site, version: '1' },
      key: '',
      credentialRule: '',
      wouldRefuse: '',
    },
    { address: '10.1.2.3', ...recordedTarget(target, new Set(['ids', 'site_name', 'external_id'])) },
  );
  const outcome = text.outcome({
    access: seq,
    requestId,
    status,
    code: '',
    outcome: '',
    bytes: { in: 0, out: random(50_000) },
    durationMs: durationMs + 1,
  });
  const [came, ended] = [time, time + 50].map((at) => new Date(at).toISOString());
  return recordLine(seq, came ?? '', access) + recordLine(seq + 1, ended ?? '', outcome);
}

/**
 * Writes the log of one replica, sealed, in segments of a day that are compressed but for the last; returns its bytes.
 */
export async function writeLog(
  directory: string,
  { replica, keys, start, days, requestsADay }: LogOptions,
): Promise<number> {
  await mkdir(join(directory, replica), { recursive: true });
  state = 1 + Number.parseInt(hash('sha256', replica).slice(0, 7), 16);
  const text = new RecordText(replica);
  let [seq, previous, bytes] = [1, GENESIS, 0];
  for (let day = 0; day < days; day += 1) {
    const from = start + day * DAY_MS;
    const header = headerLine({
      replica,
      first: seq,
      previous,
      key: keys.id,
      opened: new Date(from).toISOString(),
    });
    const name = segmentName(seq);
    const parts = [header];
    let batch = header;
    let first = seq;
    for (let request = 0; request < requestsADay; request += 1) {
      const lines = requestAt(from + Math.floor((request * DAY_MS) / requestsADay), seq, text);
      parts.push(lines);
      batch += lines;
      seq += 2;
      if (request % REQUESTS_A_SEAL !== REQUESTS_A_SEAL - 1 && request !== requestsADay - 1) continue;
      const seal = sealFor(keys, { replica, previous }, { first, last: seq - 1 }, Buffer.from(batch));
      parts.push(sealLine(seal));
      [previous, batch, first] = [seal.hmac, '', seq];
    }
    const content = Buffer.from(parts.join(''));
    bytes += content.length;
    const open = day === days - 1;
    const file = join(directory, replica, open ? name : compressedName(name));
    await writeFile(file, open ? content : zstdCompressSync(content), { mode: 0o600 });
  }
  return bytes;
}
