import type { Turn } from '../handshake/send-authenticated.ts';

export const IN_USE: Turn = { ownNonce: false, attempts: 2 };
/** The version in use, for a request whose trial of a candidate failed and which has one attempt left. */
export const AFTER_TRIAL: Turn = { ...IN_USE, ownNonce: true };
/** A candidate: the other attempt is for the version in use. */
export const TRIAL: Turn = { ...AFTER_TRIAL, attempts: 1 };
/** The response to a candidate is a failure from this status on. */
export const FAILURE = 400;
