import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { AttemptBudget } from '../../src/handshake/attempt-budget.ts';
import { UpstreamResponse } from '../../src/handshake/response.ts';
import type { InHand, Reply } from '../../src/upstream/credential-version.ts';
import { type Evidence, type Sending, verify, Waiting } from '../../src/upstream/verification.ts';

const inHandOf = (name: string): InHand => ({
  response: new UpstreamResponse(401, name, [], true, undefined),
  method: 'HEAD',
  target: '/neutral',
});
const refusal = (attempt: number, name?: string): Evidence => ({
  kind: 'refused',
  attempt,
  attempts: 1,
  inHand: name === undefined ? undefined : inHandOf(name),
});
const accepted: Reply = { kind: 'accepted', status: 200 };
const unclear: Reply = { kind: 'unclear', status: 0, isUnprotected: false };
const refused = (name?: string): Reply => refusal(9, name);
const EVIDENCE = refusal(3, 'c0');

interface Given {
  readonly others?: string[];
  readonly evidence?: Evidence;
  readonly wasAccepted?: boolean;
  /** `attemptsWhenRefused` is 1. */
  readonly once?: boolean;
  /** The minute may have no more refused attempts. */
  readonly spent?: boolean;
}

/**
 * The rules of evidence: replies to the questions in order, each `VERSION`, or `VERSION CHALLENGE` if the challenge in
 * hand is answered; then what is found.
 */
const rows: [what: string, given: Given, asked: [string, Reply][], verdict: string][] = [
  ['accepted', { others: ['2'] }, [['1', accepted]], 'accepted'],
  ['nothing is known', { others: ['2'] }, [['1', unclear]], 'unclear'],
  [
    'refused: the next version answers the challenge in hand',
    { others: ['2'] },
    [
      ['1', refused('c1')],
      ['2 c1', accepted],
    ],
    'refused 9, successor 2',
  ],
  [
    'refused with a challenge that cannot be answered: the next version asks',
    { others: ['2'] },
    [
      ['1', refused()],
      ['2', accepted],
    ],
    'refused 9, successor 2',
  ],
  [
    'all others refused or unclear: it is asked once more',
    { others: ['2', '3'] },
    [
      ['1', refused('c1')],
      ['2 c1', refused('c2')],
      ['3 c2', unclear],
      ['1', accepted],
    ],
    'accepted',
  ],
  [
    'all are refused: each once more',
    { others: ['2', '3'] },
    [
      ['1', refused('c1')],
      ['2 c1', refused('c2')],
      ['3 c2', refused('c3')],
      ['1', refused('c4')],
      ['2', refused('c5')],
      ['3 c5', refused()],
    ],
    'refused 9',
  ],
  [
    'the nonce of the next version is dropped: it is asked once more, however many attempts there were',
    { others: ['2'], evidence: EVIDENCE, wasAccepted: true, spent: true },
    [
      ['1', refused('c1')],
      ['2 c1', refused('c2')],
      ['2', accepted],
    ],
    'refused 9, successor 2',
  ],
  [
    'the other version was refused twice in one question: it is not asked again',
    { others: ['2'] },
    [
      ['1', refused('c1')],
      ['2 c1', { ...refusal(9), attempts: 2 }],
      ['1', refused()],
    ],
    'refused 9',
  ],
  [
    'accepted before, and what was refused then counts: it is asked once',
    { evidence: EVIDENCE, wasAccepted: true },
    [['1', refused('c1')]],
    'refused 9',
  ],
  ['refused twice in one question', {}, [['1', { ...refusal(9, 'c1'), attempts: 2 }]], 'refused 9'],
  [
    'refused twice',
    {},
    [
      ['1', refused('c1')],
      ['1', refused('c2')],
    ],
    'refused 9',
  ],
  [
    'refused, and nothing is known then',
    {},
    [
      ['1', refused()],
      ['1', unclear],
    ],
    'unclear',
  ],
  [
    'a minute has one attempt: each is asked once',
    { others: ['2'], once: true },
    [
      ['1', refused('c1')],
      ['2 c1', refused()],
    ],
    'refused 9',
  ],
  [
    'unknown: the evidence counts as the first question',
    { others: ['2'], evidence: EVIDENCE },
    [['2 c0', accepted]],
    'refused 3, successor 2',
  ],
  [
    'unknown, and accepted then',
    { evidence: EVIDENCE, once: true, spent: true },
    [['1', accepted]],
    'accepted',
  ],
  ['unknown, and refused then', { evidence: EVIDENCE }, [['1', refused()]], 'refused 3'],
  ['unknown, and nothing is known', { evidence: EVIDENCE }, [['1', unclear]], 'unclear'],
  [
    'unknown, and nothing is known, and the minute is used up',
    { evidence: EVIDENCE, spent: true },
    [['1', unclear]],
    'refused 3',
  ],
];

test.each(rows)('%s', async (_what, given, asked, expected) => {
  const questions: string[] = [];
  const left = [...asked];
  const verdict = await verify<string>({
    version: '1',
    wasAccepted: given.wasAccepted === true,
    evidence: given.evidence,
    others: given.others ?? [],
    asksTwice: given.once !== true,
    hasRoom: () => given.spent !== true,
    ask: async (version, inHand) => {
      questions.push(inHand === undefined ? version : `${version} ${inHand.response.reason}`);
      const [, reply] = left.shift() ?? [];
      if (reply === undefined) throw new Error(`no reply to ${questions.at(-1)}`);
      return reply;
    },
    settle: () => {},
  });
  expect(questions).toEqual(asked.map(([question]) => question));
  const { kind } = verdict;
  const found =
    kind === 'refused'
      ? `refused ${verdict.attempt}${verdict.successor === undefined ? '' : `, successor ${verdict.successor}`}`
      : kind;
  expect(found).toBe(expected);
});

describe('a request waits for a verification', () => {
  beforeEach(() => {
    jest.useFakeTimers({ doNotFake: ['nextTick', 'setImmediate'] });
  });
  afterEach(() => {
    jest.useRealTimers();
  });

  /** A request that has waited so long already, at an upstream with this timeout. */
  function requestOf(response: number, waitedMs = 0) {
    const budget = new AttemptBudget('GET');
    budget.waitedMs = waitedMs;
    const call = {
      request: { cancellation: new Cancellation(), budget },
      transport: { options: { timeouts: { response } } },
    } as unknown as Sending;
    const waiting = new Waiting();
    const flight = waiting.lead();
    const end = (): void => flight.land('check');
    const ends: unknown[] = [];
    const wait = (since?: number): void => {
      void waiting.waitFor(call, since).then((how) => ends.push(how));
    };
    const ended = async (): Promise<unknown[]> => {
      await turn();
      return ends;
    };
    const pass = (ms: number): Promise<unknown[]> => {
      jest.advanceTimersByTime(ms);
      return ended();
    };
    return { budget, wait, end, ended, pass };
  }

  test.each([
    ['as long as a response may take', 4_000, 0, 0, 4_000],
    ['at most 10 s', 60_000, 0, 0, 10_000],
    ['in all, with what it has waited before', 4_000, 1_500, 0, 2_500],
    ['for all together, with what others have', 4_000, 0, 3_000, 1_000],
  ])('%s', async (_what, response, waited, since, expected) => {
    const { wait, pass } = requestOf(response, waited);
    wait(since);
    expect(await pass(expected - 1)).toEqual([]);
    expect(await pass(1)).toEqual(['late']);
  });

  test.each([
    ['it has waited that long', 4_000, 0],
    ['others have', 0, 4_000],
  ])('not at all if %s', async (_what, waited, since) => {
    const { wait, ended } = requestOf(4_000, waited);
    wait(since);
    expect(await ended()).toEqual(['late']);
  });

  test('and its time is counted', async () => {
    const { budget, wait, end, ended, pass } = requestOf(4_000, 1_000);
    await pass(100);
    wait();
    await pass(500);
    end();
    expect([await ended(), budget.waitedMs]).toEqual([['check'], 1_500]);
  });
});
