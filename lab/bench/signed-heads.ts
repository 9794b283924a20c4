import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Audit } from '../../src/audit/audit.ts';
import { openAudit } from '../../src/audit/journal/file-audit.ts';
import { Secret } from '../../src/base/secret.ts';
import { newSigningKey } from '../../test/support/signing-key.ts';
import { auditedRequest, median, recordCost } from './audit-records.ts';

/**
 * CPU time of the process for one audit record, with and without signed heads, in turns. `node lab/bench/signed-heads.ts`
 */

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
      segment: { size: 2 ** 40, age: 1e9, keep: 1e9 },
    },
    { log: quiet },
  );
}

try {
  const [unsigned, signed] = [
    await open('unsigned', undefined),
    await open('signed', newSigningKey().secret),
  ];
  for (const audit of [unsigned, signed]) await recordCost(audit, RECORDS, auditedRequest);
  const pairs: { without: number; with: number }[] = [];
  for (let each = 0; each < ROUNDS; each += 1) {
    const isTurned = each % 2 === 1;
    const first = await recordCost(isTurned ? signed : unsigned, RECORDS, auditedRequest);
    const second = await recordCost(isTurned ? unsigned : signed, RECORDS, auditedRequest);
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
