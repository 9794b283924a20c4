import { z } from 'zod';
import { findAlgorithm } from '../digest/algorithms.ts';
import type { Challenge } from '../digest/challenge.ts';
import {
  type AgedChallenge,
  type HeldChallenge,
  type Learned,
  NONCE_POLICIES,
  type ParkedChallenge,
} from './store.ts';

/*
 * How challenges look in a store that others can write to: JSON with its version. What cannot be read is
 * undefined: it came from a foreign hand or another version, and must not reach a request.
 */

const VERSION = z.literal(1);

/** Latin-1 without controls: another character would make an Authorization field that cannot be sent. */
const text = z.string().regex(/^[\t -~\u0080-\u00ff]*$/);

const held = z.object({
  v: VERSION,
  realm: text,
  nonce: text.min(1),
  opaque: text.optional(),
  algorithm: z.string(),
  algorithmToken: text.optional(),
  qop: z.array(z.enum(['auth', 'auth-int'])),
  stale: z.boolean(),
  userhash: z.boolean(),
  utf8: z.boolean(),
  domain: text.optional(),
  cookies: z.array(text),
});

const parked = held.extend({
  cnonce: text.min(1),
  // RFC 7616 §3.4: nc is eight hex digits.
  count: z.int().min(0).max(0xffffffff),
});

const learned = z.object({
  v: VERSION,
  realm: z.string(),
  algorithm: z.string(),
  policy: z.enum(NONCE_POLICIES),
  counted: z.boolean(),
  portable: z.boolean(),
  lifetimeMs: z.number().nonnegative().optional(),
});

export function writeHeld(challenge: HeldChallenge): string {
  return JSON.stringify(heldForm(challenge));
}

export function readHeld(stored: string, ageMs: number): AgedChallenge | undefined {
  const form = read(held, stored);
  const challenge = form && toChallenge(form);
  return challenge && { challenge, cookies: form.cookies, ageMs };
}

export function writeParked(challenge: ParkedChallenge): string {
  const { cnonce, count } = challenge;
  return JSON.stringify({ ...heldForm(challenge), cnonce, count });
}

export function readParked(stored: string, ageMs: number): ParkedChallenge | undefined {
  const form = read(parked, stored);
  const challenge = form && toChallenge(form);
  return challenge && { challenge, cookies: form.cookies, ageMs, cnonce: form.cnonce, count: form.count };
}

export function writeLearned(facts: Learned): string {
  return JSON.stringify({ v: VERSION.value, ...facts });
}

export function readLearned(stored: string): Learned | undefined {
  const form = read(learned, stored);
  if (form === undefined) return undefined;
  const { realm, algorithm, policy, counted, portable, lifetimeMs } = form;
  return { realm, algorithm, policy, counted, portable, lifetimeMs };
}

function heldForm({ challenge, cookies }: HeldChallenge): z.input<typeof held> {
  const { realm, nonce, opaque, algorithm, algorithmToken, qop, stale, userhash, utf8, domain } = challenge;
  return {
    v: VERSION.value,
    realm,
    nonce,
    opaque,
    algorithm: algorithm.token,
    algorithmToken,
    qop: [...qop],
    stale,
    userhash,
    utf8,
    domain,
    cookies: [...cookies],
  };
}

function toChallenge(form: z.output<typeof held>): Challenge | undefined {
  const { realm, nonce, opaque, algorithmToken, qop, stale, userhash, utf8, domain } = form;
  const algorithm = findAlgorithm(form.algorithm);
  return algorithm && { realm, nonce, opaque, algorithm, algorithmToken, qop, stale, userhash, utf8, domain };
}

function read<T extends z.ZodType>(schema: T, stored: string): z.output<T> | undefined {
  try {
    return schema.safeParse(JSON.parse(stored)).data;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
