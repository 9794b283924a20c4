import { describe, expect, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { AttemptBudget } from '../../src/handshake/attempt-budget.ts';
import type { Lost } from '../../src/handshake/response.ts';

const loss = (change: Partial<Lost> = {}): Lost => ({
  kind: 'lost',
  error: new GatewayError('upstream-unreachable', 'gone'),
  broke: true,
  sent: true,
  reused: false,
  ...change,
});

/** Retries that are granted as long as `left` lasts, and what was taken and counted of them. */
function budgetOf(attempts: number, left = attempts, method = 'GET') {
  const calls: string[] = [];
  let free = left;
  const budget = new AttemptBudget(method, {
    attempts,
    take: (reason) => {
      calls.push(`take ${reason}`);
      free -= 1;
      return free >= 0;
    },
    count: (reason) => calls.push(`count ${reason}`),
  });
  return { budget, calls };
}

describe('attempts', () => {
  test('are two, and two more in a rotation: four in all', () => {
    const budget = new AttemptBudget('GET');
    const left = [budget.left];
    for (const answered of [1, 2, 3]) {
      budget.answered = answered;
      if (answered > 1) budget.extendForRotation();
      left.push(budget.left);
    }
    expect(left).toEqual([2, 1, 2, 1]);
    budget.answered = 4;
    budget.extendForRotation();
    expect([budget.left, budget.spent]).toEqual([0, true]);
  });

  test('are one more, twice, if none is left when a refusal names the nonce again', () => {
    const budget = new AttemptBudget('GET');
    budget.answered = 1;
    budget.extendForNonce();
    expect(budget.left).toBe(1);
    budget.answered = 2;
    budget.extendForNonce();
    expect(budget.left).toBe(1);
    budget.answered = 3;
    budget.extendForNonce();
    expect(budget.left).toBe(1);
    budget.answered = 4;
    budget.extendForNonce();
    expect([budget.left, budget.spent]).toEqual([0, true]);
  });

  test('are over once a body that is not kept was sent', () => {
    const budget = new AttemptBudget('GET');
    budget.bodySent = true;
    expect([budget.left, budget.spent]).toEqual([2, true]);
  });
});

describe('a repeat', () => {
  test('is one without a retry budget, on a new connection', () => {
    const budget = new AttemptBudget('GET');
    expect(budget.repeats > 0).toBe(false);
    expect([budget.takeRepeat(loss()), budget.repeats > 0]).toEqual([true, true]);
    expect(budget.takeRepeat(loss())).toBe(false);
  });

  test('costs a retry, as many as there are', () => {
    const { budget, calls } = budgetOf(2);
    expect([1, 2, 3].map(() => budget.takeRepeat(loss()))).toEqual([true, true, false]);
    expect(calls).toEqual(['take connection_broke', 'take connection_broke']);
    const { budget: other } = budgetOf(2, 1);
    expect([1, 2].map(() => other.takeRepeat(loss()))).toEqual([true, false]);
  });

  test('needs none of the attempts for the first connection that had been idle', () => {
    const { budget, calls } = budgetOf(0, 1);
    const reused = loss({ reused: true });
    expect([budget.takeRepeat(reused), budget.takeRepeat(reused)]).toEqual([true, false]);
    expect(calls).toEqual(['take stale_connection']);
    const { budget: other } = budgetOf(2, 0);
    expect(other.takeRepeat(reused)).toBe(false);
  });

  test.each<[string, string, Partial<Lost>, boolean]>([
    ['there was no connection', 'GET', { broke: false }, false],
    ['POST was sent', 'POST', {}, false],
    ['POST was not sent', 'POST', { sent: false }, true],
    ['PATCH was sent', 'PATCH', {}, false],
  ])('when %s', (_, method, change, repeated) => {
    expect(new AttemptBudget(method).takeRepeat(loss(change))).toBe(repeated);
  });

  test('is not possible once a body that is not kept was sent', () => {
    const budget = new AttemptBudget('GET');
    budget.bodySent = true;
    expect(budget.takeRepeat(loss({ sent: false }))).toBe(false);
  });
});

describe('another address', () => {
  test('gets a request whose exchange was lost, for a retry', () => {
    const { budget, calls } = budgetOf(0, 1);
    const last = loss();
    budget.takeRepeat(last);
    expect([budget.takeMove(last.error), budget.takeMove(last.error)]).toEqual([true, false]);
    expect(calls).toEqual(['take next_address']);
  });

  test('does not if no retry is left', () => {
    const { budget } = budgetOf(0, 0);
    const last = loss();
    budget.takeRepeat(last);
    expect(budget.takeMove(last.error)).toBe(false);
  });

  test('gets a request that was not sent for nothing', () => {
    const { budget, calls } = budgetOf(0, 0, 'POST');
    const last = loss({ broke: false, sent: false });
    budget.takeRepeat(last);
    expect(budget.takeMove(last.error)).toBe(true);
    expect(calls).toEqual(['count next_address']);
  });

  test('gets no request that ended with another error, was made up for, or was not lost at all', () => {
    const { budget } = budgetOf(1, 9);
    const last = loss();
    expect(budget.takeMove(last.error)).toBe(false);
    expect(budget.takeMove(undefined)).toBe(false);
    budget.takeRepeat(last);
    expect(budget.takeMove(last.error)).toBe(false);
    budget.takeRepeat(last);
    expect(budget.takeMove(loss().error)).toBe(false);
    expect(budget.takeMove(last.error)).toBe(true);
    const { budget: post } = budgetOf(1, 9, 'POST');
    post.takeRepeat(last);
    expect(post.takeMove(last.error)).toBe(false);
  });
});

describe('the next local address', () => {
  test('gets a request whose local address was refused, for a retry, with two more attempts', () => {
    const { budget, calls } = budgetOf(0, 1);
    budget.answered = 2;
    expect([budget.takeNextEgress(), budget.left]).toEqual([true, 2]);
    expect(budget.takeNextEgress()).toBe(false);
    expect(calls).toEqual(['take next_egress', 'take next_egress']);
  });

  test('gets none that may not be repeated', () => {
    const { budget, calls } = budgetOf(0, 1, 'POST');
    expect(budget.takeNextEgress()).toBe(false);
    const { budget: sent, calls: ofSent } = budgetOf(0, 1, 'PUT');
    sent.bodySent = true;
    expect(sent.takeNextEgress()).toBe(false);
    expect([calls, ofSent]).toEqual([[], []]);
  });

  test('gets one that was not sent for nothing', () => {
    const { budget, calls } = budgetOf(0, 0, 'POST');
    const last = loss({ broke: false, sent: false });
    budget.takeRepeat(last);
    expect(budget.takeMove(last.error, 'next_egress')).toBe(true);
    expect(calls).toEqual(['count next_egress']);
  });
});
