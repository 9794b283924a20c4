import { z } from 'zod';
import { parseJson } from '../../base/json.ts';
import { findAlgorithm } from '../../digest/algorithms.ts';
import { formatChallenge, parseChallenges } from '../../digest/challenge.ts';
import { cookiePairs } from '../cookies.ts';
import {
  type AgedChallenge,
  type HeldChallenge,
  type Learned,
  LONGEST_LIFE_MS,
  NONCE_POLICIES,
  type ParkedChallenge,
  SHORTEST_LIFE_MS,
} from './store.ts';

/*
 * The text of values in a store that others can write to. A challenge is stored as the header field that it came in,
 * and read by the parser of that field, so a stored one can hold nothing that an upstream could not have sent.
 * undefined: the text is not of a gateway's making.
 */

/** Bytes of a stored value: more than a challenge and its cookies can have. */
export const LONGEST_VALUE = 64 * 1024;
/** Characters of a cnonce; those of the gateway have 32. */
const CNONCE = /^[ -~]{1,64}$/;
const REALM_LENGTH = 1024;

const held = z.strictObject({ challenge: z.string(), cookies: z.array(z.string()) });

const parked = held.extend({
  cnonce: z.string().regex(CNONCE),
  // RFC 7616 §3.4: nc is eight hex digits.
  count: z.int().min(0).max(0xffffffff),
});

const learned = z.strictObject({
  realm: z.string().max(REALM_LENGTH),
  algorithm: z.string().refine((token) => findAlgorithm(token)?.token === token),
  policy: z.enum(NONCE_POLICIES),
  counted: z.boolean(),
  portable: z.boolean(),
  lifetimeMs: z.number().min(SHORTEST_LIFE_MS).max(LONGEST_LIFE_MS).optional(),
});

/** Serializes a challenge that every process may use. */
export function writeHeld(challenge: HeldChallenge): string {
  return JSON.stringify(heldForm(challenge));
}

/** A challenge without qop, which everybody may use. */
export function readHeld(text: string, ageMs: number): AgedChallenge | undefined {
  const form = read(held, text);
  const challenge = form && toHeld(form);
  return challenge?.challenge.qop.length === 0 ? { ...challenge, ageMs } : undefined;
}

/** Serializes a challenge with its count, for one other process. */
export function writeParked(challenge: ParkedChallenge): string {
  const { cnonce, count } = challenge;
  return JSON.stringify({ ...heldForm(challenge), cnonce, count });
}

/** A challenge with qop, which has one owner at a time. */
export function readParked(text: string, ageMs: number): ParkedChallenge | undefined {
  const form = read(parked, text);
  if (form === undefined) return undefined;
  const { cnonce, count, ...rest } = form;
  const challenge = toHeld(rest);
  if (challenge === undefined || challenge.challenge.qop.length === 0) return undefined;
  return { ...challenge, ageMs, cnonce, count };
}

/** Serializes learned facts. */
export function writeLearned({ ageMs: _, ...facts }: Learned): string {
  return JSON.stringify(facts);
}

/** Parses and checks learned facts; undefined: no gateway wrote the text. */
export function readLearned(text: string, ageMs: number): Learned | undefined {
  const form = read(learned, text);
  if (form === undefined) return undefined;
  const { lifetimeMs, ...facts } = form;
  return { ...facts, lifetimeMs, ageMs };
}

function heldForm({ challenge, cookies }: HeldChallenge): z.input<typeof held> {
  return { challenge: formatChallenge(challenge), cookies: [...cookies] };
}

function toHeld(form: z.output<typeof held>): HeldChallenge | undefined {
  const [challenge, ...others] = parseChallenges([form.challenge]);
  const cookies = cookiePairs(form.cookies);
  const isWhole =
    cookies.length === form.cookies.length && cookies.every((pair, at) => pair === form.cookies[at]);
  return challenge !== undefined && others.length === 0 && isWhole ? { challenge, cookies } : undefined;
}

function read<T extends z.ZodType>(schema: T, text: string): z.output<T> | undefined {
  return schema.safeParse(parseJson(text)).data;
}
