import { describe, expect, test } from '@jest/globals';
import { Nonce } from '../../src/challenges/nonce.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';
import { onProvenHead } from '../../src/handshake/proof.ts';
import { answer, type Challenge, readChallenges } from '../support/digest-client.ts';
import { credential } from './scene.ts';

/** The head of a response, as a request with this qop meets it, and what was accepted of it. */
function headFor(qop: string) {
  const line = `Digest realm="r", nonce="n", qop="${qop}"`;
  const [challenge] = parseChallenges([line]);
  if (challenge === undefined) throw new Error('no challenge');
  const nonce = new Nonce({ challenge, cookies: [] }, credential, {
    ...{ cnonce: 'c', obtainedAt: 0 },
  });
  const accepted: unknown[] = [];
  const onHead = onProvenHead(nonce, { uri: '/x', nc: 2 }, (...args) => accepted.push(args));
  const proofOf = (body: string): string => {
    const [parameters = new Map<string, string>() as Challenge] = readChallenges([line]);
    const made = answer(parameters, {
      ...{ method: '', target: '/x', username: 'u', password: 'p', nc: 2, cnonce: 'c', body },
    });
    return `rspauth="${readChallenges([made])[0]?.get('response')}"`;
  };
  return { onHead, accepted, proofOf };
}

const INVALID = expect.objectContaining({
  code: 'upstream-proof-invalid',
  detail: expect.stringContaining('rspauth'),
});

describe('without auth-int', () => {
  test('a response without Authentication-Info is accepted', () => {
    const { onHead, accepted } = headFor('auth');
    expect([onHead(404, []), accepted]).toEqual([undefined, [[404, undefined]]]);
  });

  test('a right proof is accepted with the next nonce', () => {
    const { onHead, accepted, proofOf } = headFor('auth');
    expect(onHead(200, [proofOf(''), 'nextnonce="m"'])).toBeUndefined();
    expect(accepted).toEqual([[200, 'm']]);
  });

  test('a response without a proof is accepted', () => {
    const { onHead, accepted } = headFor('auth');
    expect([onHead(200, ['nextnonce="m"']), accepted]).toEqual([undefined, [[200, 'm']]]);
  });

  test('a wrong proof is not', () => {
    const { onHead, accepted } = headFor('auth');
    expect(() => onHead(200, ['rspauth="00"'])).toThrow(INVALID);
    expect(accepted).toEqual([]);
  });
});

describe('with auth-int', () => {
  test('the body is proven with its last byte', () => {
    const { onHead, accepted, proofOf } = headFor('auth-int');
    const proof = onHead(200, [`${proofOf('body')}, nextnonce="m"`]);
    proof?.update(Buffer.from('bo'));
    proof?.update(Buffer.from('dy'));
    expect(accepted).toEqual([]);
    proof?.finish();
    expect(accepted).toEqual([[200, 'm']]);
  });

  test('another body is not', () => {
    const { onHead, accepted, proofOf } = headFor('auth-int');
    const proof = onHead(200, [proofOf('body')]);
    proof?.update(Buffer.from('Body'));
    expect(() => proof?.finish()).toThrow(INVALID);
    expect(accepted).toEqual([]);
  });

  test('nothing need be read of a body without a proof', () => {
    const { onHead, accepted } = headFor('auth-int');
    expect([onHead(200, ['nextnonce="m"']), accepted]).toEqual([undefined, [[200, 'm']]]);
  });
});
