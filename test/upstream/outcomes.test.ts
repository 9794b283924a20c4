import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { UpstreamResponse } from '../../src/handshake/response.ts';
import { type OutcomeOptions, Outcomes } from '../../src/upstream/outcomes.ts';

const ORIGIN = { deployment: 'd', origins: ['https://a.example'] };
const DEPS = { clock: { now: () => 0 }, onPause: () => {} };
const SOURCE = { pause() {}, resume() {}, abandon() {} };
/** How far a body is looked at. */
const LOOKED_AT = 16 * 1024;

function outcomesOf(outcomes: readonly OutcomeOptions[]): Outcomes {
  const found = Outcomes.of({ ...ORIGIN, outcomes }, DEPS, undefined);
  if (found === undefined) throw new Error('there are no outcomes');
  return found;
}

interface Response {
  readonly status?: number;
  readonly headers?: readonly string[];
  readonly chunks?: readonly (string | Buffer)[];
}

/** Returns the outcome of a response after its head, after each chunk, and at its end. */
function outcomesAlong(
  outcomes: readonly OutcomeOptions[],
  { status = 500, headers = [], chunks = [] }: Response,
): string[] {
  const response = new UpstreamResponse(status, '', headers, true, SOURCE);
  outcomesOf(outcomes).classify(response, 'c');
  const along = [response.outcome];
  for (const chunk of chunks) {
    response.push(Buffer.from(chunk));
    along.push(response.outcome);
  }
  response.end([]);
  return [...along, response.outcome];
}

/** The outcome of a response, however much of it had come before; undefined: none. */
function outcomeOf(outcomes: readonly OutcomeOptions[], response: Response): string | undefined {
  const along = outcomesAlong(outcomes, response);
  // It is settled once.
  expect(new Set(along.filter((name) => name !== '')).size).toBeLessThanOrEqual(1);
  const { status = 500, headers = [], chunks = [] } = response;
  const whole = new UpstreamResponse(status, '', headers, true, SOURCE);
  for (const chunk of chunks) whole.push(Buffer.from(chunk));
  whole.end([]);
  outcomesOf(outcomes).classify(whole, 'c');
  expect(whole.outcome).toBe(along.at(-1));
  return along.at(-1) || undefined;
}

const WORD: OutcomeOptions = { name: 'word', status: [500], bodyContains: 'needle' };
const ANY: OutcomeOptions = { name: 'any', status: [500, 503] };

describe('the outcome of a response', () => {
  test.each<[string, readonly OutcomeOptions[], Response, string | undefined]>([
    ['by status alone', [ANY], { status: 503 }, 'any'],
    ['with another status', [ANY, WORD], { status: 502, chunks: ['needle'] }, undefined],
    ['by a text', [WORD], { chunks: ['a needle in it'] }, 'word'],
    ['without the text', [WORD], { chunks: ['a needl', 'in it'] }, undefined],
    ['without a body', [WORD], {}, undefined],
    ['with the text across three chunks', [WORD], { chunks: ['a ne', 'ed', 'le'] }, 'word'],
    ['with the text byte by byte', [WORD], { chunks: [...'nneedle'] }, 'word'],
    ['with an empty chunk within the text', [WORD], { chunks: ['need', '', 'le'] }, 'word'],
    [
      'with a text of several bytes for a letter, cut within one',
      [{ ...WORD, bodyContains: 'früh' }],
      { chunks: [Buffer.from('fr\xc3', 'latin1'), Buffer.from('\xbch', 'latin1')] },
      'word',
    ],
    [
      'with the text in another encoding',
      [{ ...WORD, bodyContains: 'früh' }],
      { chunks: [Buffer.from('früh', 'latin1')] },
      undefined,
    ],
    [
      'with a coding that is not known',
      [WORD],
      { headers: ['content-encoding', 'zstd'], chunks: ['needle'] },
      undefined,
    ],
    [
      'with two codings',
      [WORD],
      { headers: ['Content-Encoding', 'gzip', 'content-encoding', 'br'], chunks: ['needle'] },
      undefined,
    ],
    [
      'with the coding identity',
      [WORD],
      { headers: ['content-encoding', 'identity'], chunks: ['needle'] },
      'word',
    ],
    ['with the text, before one of the same status', [WORD, ANY], { chunks: ['needle'] }, 'word'],
    ['without the text, before one of the same status', [WORD, ANY], { chunks: ['nothing'] }, 'any'],
    ['behind one of the same status', [ANY, WORD], { chunks: ['needle'] }, 'any'],
    [
      'with the texts of two',
      [WORD, { ...WORD, name: 'other', bodyContains: 'other' }],
      { chunks: ['other', ' needle'] },
      'word',
    ],
    [
      'with the text of the second',
      [WORD, { ...WORD, name: 'other', bodyContains: 'other' }],
      { chunks: ['other', ' word'] },
      'other',
    ],
  ])('%s', (_title, outcomes, response, expected) => {
    expect(outcomeOf(outcomes, response)).toBe(expected);
  });

  test('depends on the first 16 KiB only', () => {
    const filler = 'x'.repeat(LOOKED_AT - 'needle'.length);
    expect(outcomeOf([WORD], { chunks: [filler, 'needle', 'more'] })).toBe('word');
    expect(outcomeOf([WORD], { chunks: [`${filler}needle`] })).toBe('word');
    expect(outcomeOf([WORD], { chunks: [`${filler}x`, 'needle'] })).toBeUndefined();
    expect(outcomeOf([WORD], { chunks: [`${filler}xneedle`] })).toBeUndefined();
    expect(outcomeOf([WORD, ANY], { chunks: [`${filler}x`, 'needle'] })).toBe('any');
  });

  const CODINGS: [string, (bytes: Buffer) => Buffer][] = [
    ['gzip', gzipSync],
    ['x-gzip', gzipSync],
    ['GZIP', gzipSync],
    ['deflate', deflateSync],
    ['deflate', deflateRawSync],
    ['br', brotliCompressSync],
  ];

  test.each(CODINGS)('is found in a body with the coding %s, by %p', (coding, compress) => {
    const bytes = compress(Buffer.from('a needle in it'));
    const headers = ['content-encoding', coding];
    expect(outcomeOf([WORD], { headers, chunks: [bytes.subarray(0, 7), bytes.subarray(7)] })).toBe('word');
    expect(outcomeOf([WORD], { headers, chunks: [compress(Buffer.from('nothing in it'))] })).toBeUndefined();
  });

  test.each(CODINGS)(
    'is found in the first 16 KiB of a long body with the coding %s, by %p',
    (coding, compress) => {
      // Digits of a sequence that compresses badly, the same in each run.
      let state = 1;
      const noise = Buffer.from(
        Array.from({ length: 3 * LOOKED_AT }, () => {
          state = (state * 48_271) % 2_147_483_647;
          return 65 + (state % 61);
        }),
      );
      const headers = ['content-encoding', coding];
      const begins = compress(Buffer.concat([Buffer.from('needle'), noise]));
      const ends = compress(Buffer.concat([noise, Buffer.from('needle')]));
      expect(Math.min(begins.length, ends.length)).toBeGreaterThan(LOOKED_AT);
      expect(outcomeOf([WORD], { headers, chunks: [begins] })).toBe('word');
      expect(outcomeOf([WORD], { headers, chunks: [ends] })).toBeUndefined();
    },
  );

  test.each(CODINGS)(
    'is not looked for in more than 256 KiB of what the coding %s compressed, by %p',
    (coding, compress) => {
      const text = (size: number): Buffer =>
        Buffer.concat([Buffer.alloc(size - 'needle'.length), Buffer.from('needle')]);
      const headers = ['content-encoding', coding];
      expect(outcomeOf([WORD], { headers, chunks: [compress(text(256 * 1024))] })).toBe('word');
      expect(outcomeOf([WORD, ANY], { headers, chunks: [compress(text(256 * 1024 + 1))] })).toBe('any');
    },
  );

  test.each(CODINGS)('is none by a text if the body is not what the coding %s says, by %p', (coding) => {
    const headers = ['content-encoding', coding];
    expect(outcomeOf([WORD], { headers, chunks: ['a needle in it'] })).toBeUndefined();
    expect(outcomeOf([WORD, ANY], { headers, chunks: ['a needle in it'] })).toBe('any');
    expect(outcomeOf([WORD], { headers })).toBeUndefined();
  });
});

describe('a response', () => {
  test('has its outcome as soon as it is known', () => {
    const outcomes = [WORD, ANY];
    const zstd = ['content-encoding', 'zstd'];
    expect(outcomesAlong(outcomes, { chunks: ['xneedl', 'e', 'more'] })).toEqual([
      ...['', '', 'word', 'word', 'word'],
    ]);
    expect(outcomesAlong(outcomes, { chunks: ['a', 'b'] })).toEqual(['', '', '', 'any']);
    expect(outcomesAlong(outcomes, { headers: zstd, chunks: ['a', 'b'] })).toEqual(['', 'any', 'any', 'any']);
    expect(outcomesAlong(outcomes, { status: 503, chunks: ['a'] })).toEqual(['any', 'any', 'any']);
  });

  test('can be read while its outcome is looked for', () => {
    const response = new UpstreamResponse(500, '', [], true, SOURCE);
    outcomesOf([WORD]).classify(response, 'c');
    response.push(Buffer.from('need'));
    expect(response.take().join()).toBe('need');
    response.push(Buffer.from('le'));
    expect([response.take().join(), response.outcome]).toEqual(['le', 'word']);
  });

  test('that breaks off has no outcome that its body would have had to decide', () => {
    const response = new UpstreamResponse(500, '', [], true, SOURCE);
    outcomesOf([WORD, ANY]).classify(response, 'c');
    response.push(Buffer.from('need'));
    response.fail(new GatewayError('upstream-unreachable', 'broken'));
    expect(response.outcome).toBe('');
  });
});

describe('the outcomes of a deployment', () => {
  test('are none without configuration, so that no response is looked at', () => {
    expect(Outcomes.of({ ...ORIGIN, outcomes: [] }, DEPS, outcomesOf([ANY]))).toBeUndefined();
  });

  test('stay over a reload that does not change them', () => {
    const before = outcomesOf([ANY, WORD]);
    const same = { ...ORIGIN, outcomes: [{ ...ANY }, { ...WORD }] };
    expect(Outcomes.of(same, DEPS, before)).toBe(before);
    for (const change of [{ outcomes: [WORD, ANY] }, { origins: ['https://b.example'] }]) {
      expect(Outcomes.of({ ...same, ...change }, DEPS, before)).not.toBe(before);
    }
  });
});

describe('an outcome that pauses requests', () => {
  const THROTTLED: OutcomeOptions = { name: 'throttled', status: [429], pause: 5_000 };
  const OF_CREDENTIAL: OutcomeOptions = { ...THROTTLED, scope: 'credential' };
  const BY_TEXT: OutcomeOptions = { ...THROTTLED, bodyContains: 'slow down' };
  const WITHOUT: OutcomeOptions = { name: 'throttled', status: [429] };

  /** The Retry-After of a request with this credential; 0: it is admitted. */
  function retryAfter(outcomes: Outcomes, credential: string): number {
    try {
      outcomes.admit(credential);
      return 0;
    } catch (error) {
      return error instanceof GatewayError && error.code === 'upstream-paused'
        ? (error.retryAfter ?? -1)
        : -1;
    }
  }

  test.each<[string, OutcomeOptions, string[], [ofItsCredential: number, ofAnother: number]]>([
    ['for its time', THROTTLED, [], [5, 5]],
    ['of its credential', OF_CREDENTIAL, [], [5, 0]],
    ['as long as the upstream asks for', THROTTLED, ['Retry-After', '7'], [7, 7]],
    ['not if the upstream takes them at once', THROTTLED, ['Retry-After', '0'], [0, 0]],
    ['for its time if the upstream asks for no valid one', THROTTLED, ['Retry-After', 'soon'], [5, 5]],
    ['not if it is not to', WITHOUT, ['Retry-After', '7'], [0, 0]],
    ['once its text has come', BY_TEXT, [], [5, 5]],
  ])('%s', (_what, outcome, headers, expected) => {
    const outcomes = outcomesOf([outcome]);
    const waiting = outcomes.admit('c');
    const response = new UpstreamResponse(429, '', headers, true, SOURCE);
    outcomes.classify(response, 'c');
    if (outcome.bodyContains !== undefined) {
      expect(outcomes.pauses).toEqual([]);
      response.push(Buffer.from('slow down'));
    }
    expect(['c', 'other'].map((credential) => retryAfter(outcomes, credential))).toEqual(expected);
    // A request that waits for its connection meanwhile is refused, too.
    expect(waiting()?.retryAfter ?? 0).toBe(expected[0]);
    expect(outcomes.pauses).toEqual(
      expected[0] === 0
        ? []
        : [
            {
              credential: outcome.scope === 'credential' ? 'c' : undefined,
              outcome: 'throttled',
              remainingMs: 1_000 * expected[0],
            },
          ],
    );
  });
});

test('the names of outcomes are in the order of the configuration', () => {
  expect(outcomesOf([WORD, ANY]).names).toEqual(['word', 'any']);
});

describe('an outcome that refuses the local address', () => {
  const REFUSED: OutcomeOptions = { name: 'unregistered', status: [403], egress: 'next' };
  const BY_TEXT: OutcomeOptions = { ...REFUSED, bodyContains: 'not registered' };
  const OTHER: OutcomeOptions = { name: 'forbidden', status: [403], bodyContains: 'forbidden' };
  const head = (status = 403) => new UpstreamResponse(status, '', [], true, SOURCE);

  test.each([
    ['by status alone', [REFUSED], 403, true],
    ['not with another status', [REFUSED], 500, false],
    ['not if no outcome with the status refuses it', [OTHER], 403, false],
  ])('is known at the head: %s', async (_title, outcomes, status, expected) => {
    expect(await outcomesOf(outcomes).refusesEgress(head(status), 'c')).toBe(expected);
  });

  test.each([
    ['its text', 'the address is not registered', true],
    ['the text of another outcome', 'forbidden', false],
    ['neither', 'nothing', false],
  ])('waits for %s', async (_title, body, expected) => {
    const response = head();
    const refuses = outcomesOf([OTHER, BY_TEXT]).refusesEgress(response, 'c');
    for (const letter of body) response.push(Buffer.from(letter));
    response.end([]);
    expect(await refuses).toBe(expected);
    // The client gets all of it.
    expect(Buffer.concat(response.take()).toString()).toBe(body);
  });

  test('waits for no more than the first 16 KiB, however small the pieces are', async () => {
    let paused = false;
    const source = { ...SOURCE, pause: () => (paused = true), resume: () => (paused = false) };
    const response = new UpstreamResponse(403, '', [], true, source);
    const refuses = outcomesOf([BY_TEXT]).refusesEgress(response, 'c');
    for (let sent = 0; sent < LOOKED_AT; sent += 1) {
      if (paused) await Promise.resolve();
      expect(paused).toBe(false);
      response.push(Buffer.from('x'));
    }
    expect(await refuses).toBe(false);
  });

  test('ends with the error of a response that breaks off before', async () => {
    const response = head();
    const refuses = outcomesOf([BY_TEXT]).refusesEgress(response, 'c');
    const error = new GatewayError('upstream-protocol', 'gone');
    response.fail(error);
    await expect(refuses).rejects.toBe(error);
  });
});
