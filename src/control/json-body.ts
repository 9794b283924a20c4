import express, { type RequestHandler } from 'express';
import { type ControlErrorCode, sendControlError } from './control-error.ts';

const parse = express.json({ limit: '16kb', type: () => true });

/**
 * Reads a body of JSON. Any other Content-Type is refused: a form of another site can send text, and a page there would
 * have to ask first. `invalid`: code of the response to a body that is no JSON.
 */
export function jsonBody(invalid: ControlErrorCode): RequestHandler {
  return (req, res, next) => {
    const type = (req.headers['content-type'] ?? '').toLowerCase();
    if (!/^application\/json(?:$|\s*;)/.test(type)) return sendControlError(res, 'json-required');
    parse(req, res, (error?: unknown) => {
      if (isSyntax(error)) sendControlError(res, invalid);
      else next(error);
    });
  };
}

function isSyntax(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'status' in error && error.status === 400;
}
