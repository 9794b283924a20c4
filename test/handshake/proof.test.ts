import { describe, expect, test } from '@jest/globals';
import { Nonce } from '../../src/challenges/nonce.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';
import { proveResponse } from '../../src/handshake/account.ts';
import { UpstreamResponse } from '../../src/handshake/response.ts';
import { answer, type Challenge, readChallenges } from '../support/digest-client.ts';
import { credential, ScriptedSource } from './scene.ts';

/** The proof of a response to a request with this qop, and what was accepted of it. */
function headFor(qop: string) {
  const line = `Digest realm="r", nonce="n", qop="${qop}"`;
  const [challenge] = parseChallenges([line]);
  if (challenge === undefined) throw new Error('no challenge');
  const nonce = new Nonce({ challenge, cookies: [] }, credential, {
    ...{ cnonce: 'c', obtainedAt: 0 },
  });
  const accepted: unknown[] = [];
  const source = new ScriptedSource();
  const prove = (status: number, lines: readonly string[]): UpstreamResponse => {
    const headers = lines.flatMap((value) => ['Authentication-Info', value]);
    const response = new UpstreamResponse(status, '', headers, true, source);
    proveResponse(response, 'authentication-info', nonce, { uri: '/x', nc: 2 }, (next) =>
      accepted.push(next),
    );
    return response;
  };
  const proofOf = (body: string): string => {
    const [parameters = new Map<string, string>() as Challenge] = readChallenges([line]);
    const made = answer(parameters, {
      ...{ method: '', target: '/x', username: 'u', password: 'p', nc: 2, cnonce: 'c', body },
    });
    return `rspauth="${readChallenges([made])[0]?.get('response')}"`;
  };
  return { prove, accepted, proofOf, source };
}

const INVALID = expect.objectContaining({
  code: 'upstream-proof-invalid',
  detail: expect.stringContaining('rspauth'),
});

describe('without auth-int', () => {
  test('a response without Authentication-Info is accepted', () => {
    const { prove, accepted } = headFor('auth');
    prove(404, []);
    expect(accepted).toEqual([undefined]);
  });

  test('a right proof is accepted with the next nonce', () => {
    const { prove, accepted, proofOf } = headFor('auth');
    prove(200, [proofOf(''), 'nextnonce="m"']);
    expect(accepted).toEqual(['m']);
  });

  test('a response without a proof is accepted', () => {
    const { prove, accepted } = headFor('auth');
    prove(200, ['nextnonce="m"']);
    expect(accepted).toEqual(['m']);
  });

  test('a wrong proof is not, and nothing more of the response is read', () => {
    const { prove, accepted, source } = headFor('auth');
    expect(() => prove(200, ['rspauth="00"'])).toThrow(INVALID);
    expect([accepted, source.calls]).toEqual([[], ['abandon']]);
  });
});

describe('with auth-int', () => {
  test('the body is proven with its last byte, and its last piece withheld until then', () => {
    const { prove, accepted, proofOf } = headFor('auth-int');
    const response = prove(200, [`${proofOf('body')}, nextnonce="m"`]);
    response.push(Buffer.from('bo'));
    expect([response.hasPieces, response.take()]).toEqual([false, []]);
    response.push(Buffer.from('dy'));
    expect([response.take().join(), accepted]).toEqual(['bo', []]);
    response.end([]);
    expect([response.isWhole, response.take().join(), accepted]).toEqual([true, 'dy', ['m']]);
  });

  test('another body is not', async () => {
    const { prove, accepted, proofOf } = headFor('auth-int');
    const response = prove(200, [proofOf('body')]);
    response.push(Buffer.from('Body'));
    const waiting = response.more();
    response.end([]);
    await expect(waiting).rejects.toEqual(INVALID);
    expect([response.isWhole, accepted]).toEqual([false, []]);
  });

  test('nothing need be read of a body without a proof', () => {
    const { prove, accepted } = headFor('auth-int');
    const response = prove(200, ['nextnonce="m"']);
    response.push(Buffer.from('x'));
    expect([accepted, response.take().join()]).toEqual([['m'], 'x']);
  });
});

describe('with auth-int, of a response that was whole before', () => {
  /** A whole response with this body and proof. */
  function whole(proof: string): UpstreamResponse {
    const response = new UpstreamResponse(
      ...([200, '', ['Authentication-Info', proof], true, new ScriptedSource()] as const),
    );
    response.push(Buffer.from('body'));
    response.end([]);
    return response;
  }

  test('the proof is checked at once', () => {
    const line = 'Digest realm="r", nonce="n", qop="auth-int"';
    const [challenge] = parseChallenges([line]);
    if (challenge === undefined) throw new Error('no challenge');
    const nonce = new Nonce({ challenge, cookies: [] }, credential, {
      ...{ cnonce: 'c', obtainedAt: 0, hintMs: undefined },
    });
    const { proofOf } = headFor('auth-int');
    const accepted: unknown[] = [];
    const prove = (response: UpstreamResponse): void =>
      proveResponse(response, 'authentication-info', nonce, { uri: '/x', nc: 2 }, () => accepted.push(1));
    const right = whole(proofOf('body'));
    prove(right);
    expect([right.take().join(), accepted]).toEqual(['body', [1]]);
    expect(() => prove(whole(proofOf('Body')))).toThrow(INVALID);
    expect(accepted).toEqual([1]);
  });
});
