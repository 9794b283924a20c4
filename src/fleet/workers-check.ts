import type { Audit } from '../audit/audit.ts';
import { type Check, simpleCheck } from '../control/readiness.ts';

/** Returns the check of the workers, and of the primary's own audit log, in the readiness. */
export function workersCheck(serving: number, wanted: number, { failing, sink }: Audit): Check {
  const missing = `${serving} of ${wanted} workers serve; the others are being started`;
  const check = simpleCheck('workers', serving < wanted ? missing : undefined);
  const errors = [
    ...check.errors,
    ...(failing === undefined ? [] : [`the primary's audit log cannot be written: ${failing}`]),
    ...(sink?.failing === undefined ? [] : [`the primary cannot reach the audit stream: ${sink.failing}`]),
  ];
  return { ...check, ok: errors.length === 0, errors };
}
