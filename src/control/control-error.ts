import express, { type RequestHandler, type Response } from 'express';
import { isMapping } from '../base/json.ts';
import { STATUS_CODES } from '../base/node-http.ts';

/** Who asked too often is told when to ask again. */
type ErrorRow =
  | readonly [status: 429, detail: string, retryAfterSeconds: number]
  | readonly [
      status: 400 | 403 | 404 | 409 | 415 | 422 | 500 | 502 | 503,
      detail: string,
      retryAfterSeconds?: number,
    ];

/**
 * Every reason for which the control plane refuses an action or a question: its stable code, HTTP status, what to do,
 * and Retry-After.
 */
const ERRORS = {
  'actions-off': [403, 'Actions are off: set control.actions to true and restart the gateway.'],
  'read-only': [403, 'This token or session may only read. Sign in with the token that may act.'],
  'role-required': [403, 'Your sign-in has not the role that this needs.'],
  'sign-in-unavailable': [
    503,
    'The provider of the sign-in cannot be reached, or its discovery document cannot be used. Try again; digest-gateway doctor and the log have the reason.',
  ],
  'sign-in-expired': [
    400,
    'This sign-in took longer than ten minutes, was used before, or began in another browser. Sign in again.',
  ],
  'sign-in-denied': [403, 'The provider did not sign you in. Try again, or ask its administrator.'],
  'sign-in-rejected': [
    502,
    'The provider rejects the gateway: check clientId and clientSecret under control.oidc, and the redirect URI that is registered there.',
  ],
  'sign-in-clock': [
    502,
    'The times in the ID token do not fit the clock of the gateway. Set the clocks of the gateway and the provider by NTP.',
  ],
  'sign-in-invalid': [
    502,
    'The response of the provider is not valid: its issuer, audience, nonce, state or signature is wrong. Sign in again; the log of the gateway has the reason.',
  ],
  'claim-missing': [403, 'The provider sent no usable claim.'],
  'role-missing': [403, 'You have no role here.'],
  'sessions-full': [
    503,
    'Too many people are signed in (control.session.max). Try again when one has signed out; the token still works.',
  ],
  'sign-ins-pending': [429, 'Too many sign-ins are under way. Try again in a minute.', 60],
  'cross-site': [
    403,
    'A page of another site made a browser send this request, or the request of a session does not say where it comes from. Act from the console, or send the token.',
  ],
  'json-required': [415, 'Send the body with the Content-Type application/json.'],
  'action-invalid': [400, 'The body does not describe an action.'],
  'request-invalid': [400, 'The body does not describe a request.'],
  'target-unknown': [404, 'The gateway has no such deployment, credential or version.'],
  'client-unknown': [404, 'The configuration has no client of this name.'],
  'confirmation-unknown': [
    404,
    'There is no such confirmation: it was used, is older than a minute, or belongs to another session. Start the action again.',
  ],
  'confirmations-pending': [
    429,
    'Too many actions wait for their confirmation. Confirm one, or wait a minute.',
    60,
  ],
  'proposal-unknown': [
    404,
    'There is no such proposal: it was confirmed, withdrawn, or is too old. Propose the action again.',
  ],
  'proposal-own': [403, 'You proposed this action yourself, so another operator has to confirm it.'],
  'second-person-required': [
    403,
    'A person has to confirm a proposal: sign in by name. The token carries out an action without a second person.',
  ],
  'proposal-outdated': [
    409,
    'The action would do something else than when it was proposed. Withdraw the proposal, and propose the action again.',
  ],
  'proposals-pending': [429, 'Too many proposals wait for a second person. Confirm or withdraw one.', 60],
  'flight-record-pending': [
    429,
    'A flight record was read in the last ten seconds, and each stops the workers for a moment. Retry later.',
    10,
  ],
  'too-many-actions': [429, 'Too many actions in the last minute. Wait a minute.', 60],
  'action-running': [409, 'This action is under way already. Wait for its end.'],
  'audit-unavailable': [
    503,
    'This cannot be recorded in the audit log, so it is refused. Make the log writable, then start again.',
  ],
  'version-in-use': [409, 'This version is in use already.'],
  'no-fallback': [409, 'No earlier version is kept, so there is nothing to roll back to.'],
  'no-next-version': [
    409,
    'No version waits to be tried. Put the next secret beside the current one first, or name the version.',
  ],
  'not-refused': [
    409,
    'No upstream refuses this credential, so there is nothing to retry. Promote a version that waits to have it tried now.',
  ],
  'credential-refused': [409, 'The upstream still refuses every version of this credential.'],
  'nothing-to-withdraw': [409, 'The credential has no next version, so there is nothing to withdraw.'],
  'next-configured': [409, 'The next version is in the configuration: remove it there, and reload.'],
  'next-in-use': [409, 'The next version is in use, so it is not withdrawn: roll back first.'],
  'version-refused': [409, 'The upstream refuses this version. Nothing has changed.'],
  'version-unclear': [
    409,
    'The upstream did not say whether it accepts this version: it cannot be reached, or its response says nothing. Nothing has changed.',
  ],
  'attempts-used-up': [
    409,
    'The upstream has seen as many refused attempts as digest.attemptsWhenRefused allows in a minute. Wait a minute.',
  ],
  'reload-refused': [422, 'The new configuration is refused, and the one before stays in use.'],
  'reload-impossible': [409, 'The gateway cannot read its configuration again.'],
  'too-many-deployments': [409, 'There are too many deployments to examine at once. Name one.'],
  'gateway-draining': [409, 'The gateway is shutting down.'],
  'action-failed': [500, 'The action failed for an unexpected reason, which the log describes.'],
} as const satisfies Record<string, ErrorRow>;

export type ControlErrorCode = keyof typeof ERRORS;

/** An action, or a question of the console, that is refused. The message says why and what to do. */
export class ControlError extends Error {
  override readonly name = 'ControlError';
  readonly code: ControlErrorCode;
  readonly status: number;
  /** Headers of the response. */
  readonly headers: Readonly<Record<string, string>>;

  /** `detail`: a sentence in place of the one of the code. */
  constructor(code: ControlErrorCode, detail?: string) {
    const [status, usual, retryAfter]: ErrorRow = ERRORS[code];
    super(detail ?? usual);
    this.code = code;
    this.status = status;
    this.headers = retryAfter === undefined ? {} : { 'retry-after': String(retryAfter) };
  }
}

/** Sends a problem document with the code. */
export function sendControlError(res: Response, error: ControlErrorCode | ControlError): void {
  const { code, status, message, headers } = typeof error === 'string' ? new ControlError(error) : error;
  sendProblem(res.set(headers), status, message, { code });
}

/** Passes refusals on as problem documents, and other errors as one that says nothing of their cause. */
export function handler(onError: (error: unknown) => void, handle: RequestHandler): RequestHandler {
  return async (req, res, next) => {
    try {
      await handle(req, res, next);
    } catch (error) {
      if (!(error instanceof ControlError)) onError(error);
      if (!res.headersSent) sendControlError(res, error instanceof ControlError ? error : 'action-failed');
    }
  };
}

/** Sends problem+json (RFC 9457 §4.2.1: without a type, the title is the phrase of the status). */
export function sendProblem(res: Response, status: number, detail: string, extensions: object = {}): void {
  res
    .status(status)
    .type('application/problem+json')
    .send(`${JSON.stringify({ status, title: STATUS_CODES[status], detail, ...extensions })}\n`);
}

const parse = express.json({ limit: '16kb', type: () => true });

/**
 * Reads a body of JSON. Any other Content-Type is refused: a form of another site can send text, and a page there would
 * have to ask first. `invalid`: code of the response to a body that is not JSON.
 */
export function jsonBody(invalid: ControlErrorCode): RequestHandler {
  return (req, res, next) => {
    const type = (req.headers['content-type'] ?? '').toLowerCase();
    if (!/^application\/json(?:$|\s*;)/.test(type)) return sendControlError(res, 'json-required');
    parse(req, res, (error?: unknown) => {
      const isSyntaxError = isMapping(error) && error['status'] === 400;
      if (isSyntaxError) sendControlError(res, invalid);
      else next(error);
    });
  };
}
