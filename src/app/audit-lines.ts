import { z } from 'zod';
import type { Audit, RecentRecord } from '../audit/audit.ts';
import type { AuditLines } from '../control/snapshot.ts';
import type { AuditLine } from '../control/view.ts';

const text = z.string().default('');

/** The fields of a record for the console; admin records have few of them. */
const shown = z.object({
  kind: text,
  requestId: text,
  client: text,
  deployment: text,
  site: text,
  operation: text,
  method: text,
  path: text,
  status: z.number().default(0),
  code: text,
  event: text,
});

/** Returns the lines after this position, oldest first (0: all that are kept), and the position after them. */
export function auditLines(audit: Audit, from: number): AuditLines {
  const { records, position } = audit.recent.since(from);
  return { lines: records.map(lineOf), position };
}

function lineOf({ seq, at, record }: RecentRecord): AuditLine {
  const { event, operation, ...line } = shown.parse(JSON.parse(`{${record}`));
  return { seq, time: new Date(at).toISOString(), ...line, operation: operation || event };
}
