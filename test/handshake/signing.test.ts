import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { Nonce } from '../../src/challenges/nonce.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';
import { challengeRequest, signed, unsigned } from '../../src/handshake/account.ts';
import { AttemptBudget } from '../../src/handshake/attempt-budget.ts';
import { NO_BODY, type RequestBody, type UpstreamRequest } from '../../src/handshake/exchange.ts';
import { answer, readChallenges } from '../support/digest-client.ts';
import { credential } from './scene.ts';

const bytes = Buffer.from('body');
async function* chunks(): AsyncGenerator<Buffer> {
  yield bytes;
}
const iterable = chunks();
const kept: RequestBody = { kind: 'kept', content: bytes };
const streamed = (spilled: boolean): RequestBody => ({ kind: 'streamed', content: iterable, spilled });

function requestWith(body: RequestBody): UpstreamRequest {
  const headers = ['x-a', '1', 'Content-Length', '4', 'x-b', '2'];
  const own = { client: '', cancellation: new Cancellation(), budget: new AttemptBudget('GET') };
  return { ...own, method: 'PUT', target: '/x', headers, body };
}

function nonceOf(qop: string, cookies: readonly string[] = []): Nonce {
  const [challenge] = parseChallenges([`Digest realm="r", nonce="n", algorithm=SHA-256, qop="${qop}"`]);
  if (challenge === undefined) throw new Error('no challenge');
  return new Nonce({ challenge, cookies }, credential, { cnonce: 'c', obtainedAt: 0 });
}

function codeOf(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    if (error instanceof GatewayError) return `${error.code}: ${error.detail}`;
    throw error;
  }
  return 'nothing was thrown';
}

describe('a request without an answer', () => {
  test.each([
    ['none', NO_BODY, null],
    ['kept', kept, bytes],
    ['streamed', streamed(false), iterable],
  ])('has the body, %s', (_, body, payload) => {
    const request = requestWith(body);
    const { headers } = request;
    const message = { request, method: 'PUT', target: '/x', headers, body: payload };
    expect(unsigned(request)).toEqual({ ...message, freshConnection: false });
  });

  test('goes out on a new connection if that is asked for, or another one was lost', () => {
    const request = requestWith(kept);
    expect(unsigned(request, true).freshConnection).toBe(true);
    request.budget.repeats = 1;
    const answers = { nonce: nonceOf('auth'), nc: 1 };
    const all = [unsigned(request), challengeRequest(request, 'HEAD'), signed(request, answers)];
    expect(all.map(({ freshConnection }) => freshConnection)).toEqual([true, true, true]);
  });

  test('that only asks for a challenge has no effects and no body', () => {
    const interim = { information: () => {} };
    const request = { ...requestWith(kept), interim };
    expect(challengeRequest(request, 'HEAD')).toEqual({
      request: { ...request, interim: undefined },
      method: 'HEAD',
      target: '/x',
      headers: ['x-a', '1', 'x-b', '2'],
      body: null,
      freshConnection: false,
    });
  });
});

describe('a signed request', () => {
  test('has the answer behind its headers, in the field for an upstream or for a proxy', () => {
    const nonce = nonceOf('auth');
    const answers = { nonce, nc: 3 };
    const request = requestWith(kept);
    const refusal = () => undefined;
    const { headers, body, ...rest } = signed(request, answers, 'authorization', refusal);
    const message = { request, method: 'PUT', target: '/x', answers, refusal, freshConnection: false };
    expect([rest, body]).toEqual([message, bytes]);
    expect(headers.slice(0, -1)).toEqual([...requestWith(kept).headers, 'authorization']);
    expect(headers.at(-1)).toContain('nc=00000003');
    expect(signed(requestWith(kept), answers, 'proxy-authorization').headers.at(-2)).toBe(
      'proxy-authorization',
    );
  });

  test('has the cookies of the challenge in one field', () => {
    const { headers } = signed(requestWith(NO_BODY), { nonce: nonceOf('auth', ['a=b', 'c=d']), nc: 1 });
    expect(headers.slice(-2)).toEqual(['cookie', 'a=b; c=d']);
  });

  test.each([
    ['a kept body', kept, 'body'],
    ['no body', NO_BODY, ''],
  ])('covers %s if the upstream wants auth-int', (_, body, text) => {
    const nonce = nonceOf('auth-int');
    const sent = signed(requestWith(body), { nonce, nc: 1 }).headers.at(-1) ?? '';
    const [challenge] = readChallenges([sent]);
    const expected = answer(challenge ?? new Map(), {
      ...{ method: 'PUT', target: '/x', username: 'u', password: 'p', cnonce: 'c', body: text },
    });
    expect(readChallenges([expected])[0]?.get('response')).toBe(challenge?.get('response'));
  });

  test('with auth needs no body in memory; with auth-int it does', () => {
    expect(signed(requestWith(streamed(true)), { nonce: nonceOf('auth'), nc: 1 }).body).toBe(iterable);
    const nonce = nonceOf('auth-int');
    expect(codeOf(() => signed(requestWith(streamed(true)), { nonce, nc: 1 }))).toMatch(
      /^overloaded: .*listen\.limits\.bodyMemory/,
    );
    expect(codeOf(() => signed(requestWith(streamed(false)), { nonce, nc: 1 }))).toMatch(
      /^body-too-large: .*auth-int.*body\.replayUpTo/,
    );
  });
});
