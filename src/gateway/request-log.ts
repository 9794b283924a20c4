import type { Log } from '../base/log.ts';
import type { RequestRecord } from './request-record.ts';

const LONGEST_PATH = 1024;

/** The outcome of a request. */
export interface RequestEnd {
  /** The status that the client received. */
  readonly status: number;
  /** Code of the gateway's error; empty if the upstream responded. */
  readonly code: string;
  readonly durationMs: number;
  /** Bytes of the response body. */
  readonly bytes: number;
}

/** Logs a request, if `log.requests` is on. The query is left out, because it can identify a person. */
export function logRequest(log: Log, record: RequestRecord, path: string, end: RequestEnd): void {
  const { requestId, client, address, deployment, operation, method, outcome } = record;
  const durationMs = Math.round(end.durationMs * 1000) / 1000;
  const found = outcome !== '' && { outcome };
  log.info(
    { requestId, client, address, deployment, operation, method, path, ...end, durationMs, ...found },
    'request',
  );
}

/** Removes scheme, authority and query: an authority can hold a password. */
export function pathOf(target: string): string {
  const [, path = ''] = /^(?:[a-z][a-z0-9+.-]*:\/\/[^/?]*)?([^?]*)/i.exec(target) ?? [];
  return path.slice(0, LONGEST_PATH);
}
