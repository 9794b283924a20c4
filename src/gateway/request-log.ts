import type { Log } from '../base/log.ts';
import type { RequestRecord } from './request-record.ts';

const LONGEST_PATH = 1024;

/** How a request ended. */
export interface RequestEnd {
  /** What the client saw. */
  readonly status: number;
  /** Of the gateway's own refusal; empty when the upstream answered. */
  readonly code: string;
  readonly durationMs: number;
  /** Of the answer's body. */
  readonly bytes: number;
}

/** A line for each request, for whoever asks for it (`log.requests`). The query stays out: it says who is asked about. */
export function logRequest(log: Log, record: RequestRecord, target: string, end: RequestEnd): void {
  const { requestId, client, deployment, operation, method } = record;
  const durationMs = Math.round(end.durationMs * 1000) / 1000;
  const path = pathOf(target);
  log.info({ requestId, client, deployment, operation, method, path, ...end, durationMs }, 'request');
}

/** Without scheme, authority and query: an authority can hold a password. */
function pathOf(target: string): string {
  const [, path = ''] = /^(?:[a-z][a-z0-9+.-]*:\/\/[^/?]*)?([^?]*)/i.exec(target) ?? [];
  return path.slice(0, LONGEST_PATH);
}
