import { expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';

const gone = new GatewayError('client-closed', 'gone');
const late = new GatewayError('upstream-timeout', 'late');

/** Work that notes the reasons with which it is cancelled. */
function newWork() {
  const reasons: GatewayError[] = [];
  return { reasons, cancel: (reason: GatewayError): void => void reasons.push(reason) };
}

test('cancels all work once, with the first reason', () => {
  const cancellation = new Cancellation();
  const works = [newWork(), newWork(), newWork()];
  for (const work of works) cancellation.add(work);
  cancellation.cancel(gone);
  cancellation.cancel(late);
  expect([cancellation.reason, works.map(({ reasons }) => reasons)]).toEqual([
    gone,
    [[gone], [gone], [gone]],
  ]);
});

test.each([0, 1, 2])('cancels no work that was removed: number %d of three', (removed) => {
  const cancellation = new Cancellation();
  const works = [newWork(), newWork(), newWork()];
  for (const work of works) cancellation.add(work);
  for (const work of works.slice(removed, removed + 1)) cancellation.remove(work);
  cancellation.remove(newWork());
  cancellation.cancel(gone);
  expect(works.map(({ reasons }) => reasons.length)).toEqual(
    [0, 1, 2].map((each) => (each === removed ? 0 : 1)),
  );
});

test('work that ends late leaves the work that was added meanwhile', () => {
  const cancellation = new Cancellation();
  const [former, next] = [newWork(), newWork()];
  cancellation.add(former);
  cancellation.add(next);
  cancellation.remove(former);
  cancellation.cancel(gone);
  expect([former.reasons, next.reasons]).toEqual([[], [gone]]);
});

test('cancels work at once that is added afterwards, as another cancellation', () => {
  const cancellation = new Cancellation();
  cancellation.cancel(gone);
  const part = new Cancellation();
  cancellation.add(part);
  expect(part.reason).toBe(gone);
});

test('work that ends other work while it is cancelled leaves none of it to be cancelled', () => {
  const cancellation = new Cancellation();
  const other = newWork();
  const first = { cancel: (): void => cancellation.remove(other) };
  for (const work of [newWork(), first, other]) cancellation.add(work);
  cancellation.cancel(gone);
  expect(other.reasons).toEqual([]);
});
