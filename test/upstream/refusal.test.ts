import { expect, test } from '@jest/globals';
import type { Nonce } from '../../src/challenges/nonce.ts';
import type { NoncePool } from '../../src/challenges/pool.ts';
import type { Refused } from '../../src/handshake/handshake.ts';
import { UpstreamResponse } from '../../src/handshake/response.ts';
import { optionsAfter } from '../../src/upstream/refusal.ts';

const challenge = { realm: 'r', nonce: 'n2' };
const inHand = new UpstreamResponse(401, '', [], true, undefined);
/** Obtained by others, and found good, since the refusal came at 1,010. */
const good = { obtainedAt: 1_020, uses: 1, challenge } as unknown as Nonce;
const pool = { policy: 'shared', reserve: () => good } as unknown as NoncePool;
const attempt = { nonce: { shareable: true, uses: 2 }, sentAt: 1_000 };
const refused = { attempt, challenge, inHand, isNamedAgain: false } as unknown as Refused;
const after = { pool, since: 1_010, now: 1_050, tests: false };

test('a challenge in hand that is fresh is answered: a nonce that others found good may be of another server', () => {
  expect(optionsAfter(refused, after)).toEqual({ freshNonce: true, challenge: inHand });
});

test.each([
  ['is old', refused, { ...after, now: 1_200 }],
  ['is of a state that other requests use', { ...refused, inHand: undefined }, after],
  ['names the nonce that was refused', { ...refused, isNamedAgain: true }, after],
])('a nonce that others found good is used where the challenge in hand %s', (_what, given, when) => {
  expect(optionsAfter(given, when)).toEqual({ nonce: good });
});
