import { isUnavailable } from './challenge.ts';
import type { Answer } from './contact.ts';
import { type Finding, fine, wrong } from './finding.ts';

const NOT_SERVED = new Set([404, 405, 410, 501]);

/** Judges the response to a request whose Digest was accepted. `address`: the source address, if known. */
export function accessFinding(answer: Answer, ofSite: boolean, address: string | undefined): Finding {
  const status = answer.kind === 'answered' ? answer.status : 401;
  const facts = { status };
  const saw = `HTTP ${status}`;
  if (status === 401 || status === 403) {
    const from = address === undefined ? '' : `, from ${address}`;
    return wrong('access', 'refused-afterwards', `${saw} after Digest succeeded${from}`, facts);
  }
  if (isUnavailable(status)) return wrong('access', 'upstream-unavailable', saw, facts);
  if (NOT_SERVED.has(status)) return wrong('access', 'probe-not-served', saw, facts);
  if (status === 500 && ofSite) {
    return wrong('access', 'site-refused', `${saw} after Digest succeeded`, facts);
  }
  if (status >= 500) return wrong('access', 'upstream-error', saw, facts);
  return fine('access', `${saw}, not refused`, facts);
}
