import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Audit, PseudonymOptions } from '../../src/audit/audit.ts';
import { openAudit } from '../../src/audit/journal/file-audit.ts';
import { newKeyId, newKeyText, PseudonymKey } from '../../src/audit/pseudonym.ts';
import type { AccessFacts } from '../../src/audit/record.ts';
import { Secret } from '../../src/base/secret.ts';
import { auditedRequest, median, recordCost } from './audit-records.ts';

/**
 * CPU time of the process for one audit record, without pseudonyms and with them, in turns: of the address, and also of
 * a parameter with another value in each request. `node lab/bench/pseudonyms.ts`
 */

const RECORDS = 40_000;
const ROUNDS = 15;
const quiet = { level: 'silent', debug() {}, info() {}, warn() {}, error() {} };
const directory = await mkdtemp(join(tmpdir(), 'pseudonyms-'));

function open(replica: string, fields: readonly string[] | undefined): Promise<Audit> {
  const keysDirectory = join(directory, 'keys');
  const pseudonyms: PseudonymOptions | undefined = fields && { keysDirectory, fields, per: 'month' };
  return openAudit(
    {
      directory,
      replica,
      key: new Secret('0123456789abcdef'.repeat(4)),
      durability: 'write',
      onFailure: 'refuse',
      parameters: ['ids', 'site_name'],
      pseudonyms,
      segment: { size: 2 ** 40, age: 1e9, keep: 1e9 },
    },
    { log: quiet },
  );
}

/** A request from one of 200 addresses for an identifier that no other asks for. */
function request(id: number): AccessFacts {
  const ids = `%27DEMO-${String(++identifiers).padStart(9, '0')}%27`;
  const target = `/api/manuscripts/v2/submissions/full/authors?ids=${ids}&site_name=journal-a`;
  return { ...auditedRequest(id), address: `192.0.2.${id % 200}`, target };
}

let identifiers = 0;

/** Microseconds to hide a value that is not cached. */
function hideCost(): number {
  const key = new PseudonymKey(newKeyId(), { scope: 'month', subject: '', made: 0, secret: newKeyText() });
  const COUNT = 200_000;
  const before = process.cpuUsage();
  for (let each = 0; each < COUNT; each += 1) key.hide(`'DEMO-${String(each).padStart(9, '0')}'`);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / COUNT;
}

try {
  const audits = [
    await open('none', undefined),
    await open('address', ['address']),
    await open('both', ['address', 'parameters.ids']),
  ] as const;
  for (const audit of audits) await recordCost(audit, RECORDS, request);
  const rounds: number[][] = [];
  for (let each = 0; each < ROUNDS; each += 1) {
    const costs = [0, 0, 0];
    for (let at = 0; at < audits.length; at += 1) {
      const which = (at + each) % audits.length;
      const audit = audits[which];
      if (audit !== undefined) costs[which] = await recordCost(audit, RECORDS, request);
    }
    rounds.push(costs);
  }
  const more = (at: number): string =>
    median(rounds.map((costs) => (costs[at] ?? 0) - (costs[0] ?? 0))).toFixed(2);
  console.log(`without pseudonyms ${median(rounds.map(([none = 0]) => none)).toFixed(2)} µs a record`);
  console.log(`of addresses       ${more(1)} µs more (${ROUNDS} rounds, median)`);
  console.log(`and of identifiers ${more(2)} µs more`);
  console.log(`a value alone      ${hideCost().toFixed(2)} µs`);
  await Promise.all(audits.map((audit) => audit.close()));
} finally {
  await rm(directory, { recursive: true });
}
