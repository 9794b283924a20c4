import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, test } from '@jest/globals';
import { discardResponse, type ResponseHandler } from '../../src/handshake/response-handler.ts';
import { type OutcomeOptions, Outcomes } from '../../src/upstream/outcomes.ts';

const ORIGIN = { deployment: 'd', origins: ['https://a.example'] };
const DEPS = { clock: { now: () => 0 }, onPause: () => {} };
/** How far a body is looked at. */
const LOOKED_AT = 16 * 1024;

function outcomesOf(outcomes: readonly OutcomeOptions[]): Outcomes {
  const found = Outcomes.of({ ...ORIGIN, outcomes }, DEPS, undefined);
  if (found === undefined) throw new Error('there are no outcomes');
  return found;
}

/** Records what a handler is told, in order: `head`, each chunk, `outcome NAME` and `end`. */
function recording(): { events: string[]; handler: ResponseHandler } {
  const events: string[] = [];
  const handler: ResponseHandler = {
    ...discardResponse,
    head: () => void events.push('head'),
    data: (chunk) => {
      events.push(chunk.toString('latin1'));
      return true;
    },
    outcome: (name) => void events.push(`outcome ${name}`),
    end: () => void events.push('end'),
  };
  return { events, handler };
}

interface Response {
  readonly status?: number;
  readonly headers?: readonly string[];
  readonly chunks?: readonly (string | Buffer)[];
}

/** The calls that the handler gets for a response. */
function eventsOf(
  outcomes: readonly OutcomeOptions[],
  { status = 500, headers = [], chunks = [] }: Response,
): string[] {
  const { events, handler } = recording();
  const admitted = outcomesOf(outcomes).admit(handler, 'c');
  admitted.head(status, '', headers, true);
  for (const chunk of chunks) admitted.data(Buffer.from(chunk));
  admitted.end([]);
  return events;
}

/** The outcome of a response; undefined: none. */
function outcomeOf(outcomes: readonly OutcomeOptions[], response: Response): string | undefined {
  const told = eventsOf(outcomes, response).filter((event) => event.startsWith('outcome '));
  expect(told.length).toBeLessThanOrEqual(1);
  return told[0]?.slice('outcome '.length);
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
    ['br', brotliCompressSync],
  ];

  test.each(CODINGS)('is found in a body with the coding %s', (coding, compress) => {
    const bytes = compress(Buffer.from('a needle in it'));
    const headers = ['content-encoding', coding];
    expect(outcomeOf([WORD], { headers, chunks: [bytes.subarray(0, 7), bytes.subarray(7)] })).toBe('word');
    expect(outcomeOf([WORD], { headers, chunks: [compress(Buffer.from('nothing in it'))] })).toBeUndefined();
  });

  test.each(CODINGS)('is found in the first 16 KiB of a long body with the coding %s', (coding, compress) => {
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
  });

  test.each(CODINGS)(
    'is not looked for in more than 256 KiB of what the coding %s compressed',
    (coding, compress) => {
      const text = (size: number): Buffer =>
        Buffer.concat([Buffer.alloc(size - 'needle'.length), Buffer.from('needle')]);
      const headers = ['content-encoding', coding];
      expect(outcomeOf([WORD], { headers, chunks: [compress(text(256 * 1024))] })).toBe('word');
      expect(outcomeOf([WORD, ANY], { headers, chunks: [compress(text(256 * 1024 + 1))] })).toBe('any');
    },
  );

  test.each(CODINGS)('is none by a text if the body is not what the coding %s says', (coding) => {
    const headers = ['content-encoding', coding];
    expect(outcomeOf([WORD], { headers, chunks: ['a needle in it'] })).toBeUndefined();
    expect(outcomeOf([WORD, ANY], { headers, chunks: ['a needle in it'] })).toBe('any');
    expect(outcomeOf([WORD], { headers })).toBeUndefined();
  });
});

describe('a response', () => {
  test('is passed on before it is looked at, and its outcome is told as soon as it is known', () => {
    const outcomes = [WORD, ANY];
    const zstd = ['content-encoding', 'zstd'];
    const told = (response: Response): string => eventsOf(outcomes, response).join();
    expect(told({ chunks: ['xneedl', 'e', 'more'] })).toBe('head,xneedl,e,outcome word,more,end');
    expect(told({ chunks: ['a', 'b'] })).toBe('head,a,b,outcome any,end');
    expect(told({ headers: zstd, chunks: ['a', 'b'] })).toBe('head,a,outcome any,b,end');
    expect(told({ status: 503, chunks: ['a'] })).toBe('head,outcome any,a,end');
  });

  test('that breaks off has no outcome that its body would have had to decide', () => {
    const { events, handler } = recording();
    const admitted = outcomesOf([WORD, ANY]).admit(handler, 'c');
    admitted.head(500, '', [], true);
    admitted.data(Buffer.from('need'));
    expect(events).toEqual(['head', 'need']);
  });

  test('holds the upstream back as its handler says', () => {
    const admitted = outcomesOf([WORD]).admit({ ...discardResponse, data: () => false }, 'c');
    admitted.head(500, '', [], true);
    expect(admitted.data(Buffer.from('x'))).toBe(false);
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
