import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { hash } from '../../src/digest/algorithms.ts';
import { checkProof, parseAuthenticationInfo } from '../../src/digest/authentication-info.ts';
import { type PreparedAnswer, prepareAnswer } from '../../src/digest/authorization.ts';
import { type Challenge, chooseChallenge, parseChallenges } from '../../src/digest/challenge.ts';
import { readAuthorization } from './authorization-reader.ts';
import { type ProofVector, readVectors, type SingleVector } from './vectors.ts';

const vectors = readVectors();

function chosenOf({ challenge }: SingleVector | ProofVector): Challenge {
  const chosen = chooseChallenge(parseChallenges(challenge), ['MD5', 'SHA-256', 'SHA-512-256']);
  if (chosen === undefined) throw new Error('no challenge chosen');
  return chosen;
}

function prepared(vector: SingleVector | ProofVector): PreparedAnswer {
  const { username, password } = vector.credentials;
  const credential = { username, password: new Secret(password) };
  return prepareAnswer(chosenOf(vector), credential, vector.client.cnonce ?? 'unused');
}

function bodyHashOf(vector: SingleVector | ProofVector, base64: string | null): string | undefined {
  if (base64 === null) return undefined;
  return hash(chosenOf(vector).algorithm.name, Buffer.from(base64, 'base64'));
}

describe('answers', () => {
  test.each(vectors.filter((vector) => vector.kind === 'single'))('$id', (vector) => {
    const answer = prepared(vector);
    const { method, uri, body_b64 } = vector.request;
    const value = answer.authorize({
      method,
      uri,
      nc: vector.client.nc ?? 0,
      bodyHash: bodyHashOf(vector, body_b64),
    });

    const sent = readAuthorization(value);
    expect(Object.fromEntries([...sent].map(([name, { wire }]) => [name, wire]))).toEqual(
      Object.fromEntries(Object.entries(vector.expect.params).map(([name, { wire }]) => [name, wire])),
    );
    expect(sent.get('response')?.value).toBe(vector.expect.response);
    expect(vector.expect.absent.filter((name) => sent.has(name))).toEqual([]);
    expect(answer.qop ?? null).toBe(vector.expect.qop);
  });
});

describe('proofs', () => {
  test.each(vectors.filter((vector) => vector.kind === 'rspauth'))('$id', (vector) => {
    const answer = prepared(vector);
    const request = {
      uri: vector.request.uri,
      nc: vector.client.nc ?? 0,
      cnonce: vector.client.cnonce ?? '',
      bodyHash: bodyHashOf(vector, vector.response_body_b64),
    };
    expect(checkProof(parseAuthenticationInfo([vector.authentication_info]), answer, request)).toBe(
      vector.expect.verdict,
    );
  });
});
