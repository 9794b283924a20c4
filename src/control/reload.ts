import type { RequestHandler } from 'express';
import type { LocatedIssue } from '../config/issues.ts';
import { sendProblem } from './problem.ts';
import { Slots } from './slots.ts';

/** The result of a reload. */
export type ReloadResult = Reloaded | ReloadRefused;

export interface Reloaded {
  readonly result: 'success';
  /** Names of the changed sections and entries. */
  readonly changed: readonly string[];
  /** Keys that differ from those at the start, and change with a restart only. */
  readonly needsRestart: readonly string[];
  /** Settings that work but should be changed, and parts of the configuration that were not applied. */
  readonly warnings: readonly string[];
}

export interface ReloadRefused {
  readonly result: 'failure';
  /** 409: no reload is possible now; 422: the configuration is invalid; 500: an unexpected error. */
  readonly status: 409 | 422 | 500;
  readonly reason: string;
  readonly issues: readonly LocatedIssue[];
}

/** Maximum number of issues in a response; the log has all. */
const MOST_ISSUES = 100;
/** Maximum number of requested reloads that are not finished. */
const MOST_PENDING = 8;

/** Serves `POST /api/reload`. `reload` is called with the address of the client, and never rejects. */
export function reloadHandler(reload: (address: string) => Promise<ReloadResult>): RequestHandler {
  const pending = new Slots(MOST_PENDING);
  return async (req, res) => {
    using slot = pending.take();
    if (slot === undefined) {
      res.set('retry-after', '5');
      sendProblem(res, 429, 'Other reloads are not finished yet. Retry later.');
      return;
    }
    const outcome = await reload(req.socket.remoteAddress ?? '');
    if (outcome.result === 'success') {
      res.set('cache-control', 'no-store').json(outcome);
      return;
    }
    const { status, reason, issues } = outcome;
    sendProblem(res, status, reason, status === 422 ? { issues: issues.slice(0, MOST_ISSUES) } : {});
  };
}
