import type { Response } from 'express';
import { STATUS_CODES } from '../base/node-http.ts';

/** Sends problem+json (RFC 9457 §4.2.1: without a type, the title is the phrase of the status). */
export function sendProblem(res: Response, status: number, detail: string, extensions: object = {}): void {
  res
    .status(status)
    .set('cache-control', 'no-store')
    .type('application/problem+json')
    .send(`${JSON.stringify({ status, title: STATUS_CODES[status], detail, ...extensions })}\n`);
}
