import type { Audit } from '../../src/audit/audit.ts';
import type { AccessFacts } from '../../src/audit/record.ts';

/** Requests that are under way at a time. */
const CONNECTIONS = 32;

/** The facts of a request, with an id of its own. */
export function auditedRequest(id: number): AccessFacts {
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

/**
 * Microseconds of CPU time for each record: some requests are under way at a time, each with one record, and the next one
 * comes when a record is written.
 */
export async function recordCost(
  audit: Audit,
  records: number,
  request: (id: number) => AccessFacts,
): Promise<number> {
  const before = process.cpuUsage();
  let begun = 0;
  await new Promise<void>((resolve) => {
    let written = 0;
    const next = (): void => {
      if (begun >= records) return;
      begun += 1;
      audit.access(request(begun), { recorded, unrecorded: recorded });
    };
    const recorded = (): void => {
      written += 1;
      if (written === records) resolve();
      // As from a socket: in a later turn.
      else setImmediate(next);
    };
    for (let connection = 0; connection < CONNECTIONS; connection += 1) next();
  });
  const { user, system } = process.cpuUsage(before);
  return (user + system) / records;
}

/** The median of measured values. */
export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
}
