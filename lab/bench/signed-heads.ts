import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Audit } from '../../src/audit/audit.ts';
import { openAudit } from '../../src/audit/journal/file-audit.ts';
import { Secret } from '../../src/base/secret.ts';
import { newSigningKey } from '../../test/support/signing-key.ts';

/**
 * CPU time of the process for one audit record, with and without signed heads, in turns: so many requests are under way
 * at a time, each with one record, and the next one comes when a record is written. `node lab/bench/signed-heads.ts`
 */

const CONNECTIONS = 32;
const RECORDS = 40_000;
const ROUNDS = 15;
const quiet = { level: 'silent', debug() {}, info() {}, warn() {}, error() {} };

const directory = await mkdtemp(join(tmpdir(), 'signed-heads-'));

function open(replica: string, signing: Secret | undefined): Promise<Audit> {
  return openAudit(
    {
      directory,
      replica,
      key: new Secret('0123456789abcdef'.repeat(4)),
      signingKey: signing,
      durability: 'write',
      onFailure: 'refuse',
      parameters: ['ids', 'site_name'],
      pseudonymise: [],
      segment: { size: 2 ** 40, age: 1e9, keep: 1e9 },
    },
    { log: quiet },
  );
}

function request(id: number) {
  return {
    requestId: `0f8fad5b-d9cb-469f-a165-${String(id).padStart(12, '0')}`,
    client: 'reporting',
    address: '192.0.2.7',
    deployment: 'submissions',
    site: 'journal-a',
    operation: 'authors',
    method: 'GET',
    target: '/api/manuscripts/v2/submissions/full/authors?ids=%27DEMO-2026-0001%27&site_name=journal-a',
    status: 200,
    code: '',
    upstream: {
      status: 200,
      attempts: 1,
      challenged: false,
      durationMs: 1.26,
      queueMs: 0,
      connectMs: 0,
      earlierMs: 0,
      address: 'a.example:443',
      egress: '',
    },
    credential: { name: 'journal-a', version: '1' },
    credentialRule: '',
    key: '',
    wouldRefuse: '',
    end: { outcome: '', bytes: { in: 0, out: 2048 }, durationMs: 2.1 },
  };
}

/** Microseconds of CPU time for each record. */
async function round(audit: Audit): Promise<number> {
  const before = process.cpuUsage();
  let begun = 0;
  await new Promise<void>((resolve) => {
    let written = 0;
    const next = (): void => {
      if (begun >= RECORDS) return;
      begun += 1;
      audit.access(request(begun), { recorded, unrecorded: recorded });
    };
    const recorded = (): void => {
      written += 1;
      if (written === RECORDS) resolve();
      // As from a socket: in a later turn.
      else setImmediate(next);
    };
    for (let connection = 0; connection < CONNECTIONS; connection += 1) next();
  });
  const { user, system } = process.cpuUsage(before);
  return (user + system) / RECORDS;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
}

try {
  const [unsigned, signed] = [
    await open('unsigned', undefined),
    await open('signed', newSigningKey().secret),
  ];
  for (const audit of [unsigned, signed]) await round(audit);
  const pairs: { without: number; with: number }[] = [];
  for (let each = 0; each < ROUNDS; each += 1) {
    const isTurned = each % 2 === 1;
    const first = await round(isTurned ? signed : unsigned);
    const second = await round(isTurned ? unsigned : signed);
    pairs.push(isTurned ? { without: second, with: first } : { without: first, with: second });
  }
  const differences = pairs.map((pair) => pair.with - pair.without);
  console.log(`without signed heads ${median(pairs.map((pair) => pair.without)).toFixed(2)} µs a record`);
  console.log(`with signed heads    ${median(pairs.map((pair) => pair.with)).toFixed(2)} µs a record`);
  console.log(`difference           ${median(differences).toFixed(2)} µs (${ROUNDS} pairs, median)`);
  await Promise.all([unsigned.close(), signed.close()]);
} finally {
  await rm(directory, { recursive: true });
}
