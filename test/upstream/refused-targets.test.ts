import { describe, expect, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { targetRefused } from '../../src/handshake/errors.ts';
import { RefusedTargets } from '../../src/upstream/credential-circuit.ts';

const request = { client: 'a', method: 'GET', target: '/items?q=1' };

function at(perTarget: number) {
  let now = 0;
  const targets = new RefusedTargets({ now: () => now }, perTarget);
  const refuse = (): void => targets.note(request, targetRefused(), targets.count);
  const pass = (ms: number): void => {
    now += ms;
  };
  return { targets, refuse, pass };
}

test('a target is barred for the rest of the minute after two refusals, and not after one', () => {
  const { targets, refuse, pass } = at(1);
  refuse();
  expect(targets.bars(request)).toBe(false);
  refuse();
  expect(targets.bars(request)).toBe(true);
  expect(targets.bars({ ...request, target: '/items?q=2' })).toBe(false);
  pass(60_000);
  expect(targets.bars(request)).toBe(false);
});

test('a target is barred for one client and one method', () => {
  const { targets, refuse } = at(2);
  refuse();
  refuse();
  expect(targets.bars(request)).toBe(true);
  expect(targets.bars({ ...request, client: 'b' })).toBe(false);
  expect(targets.bars({ ...request, method: 'DELETE' })).toBe(false);
  targets.accepted({ ...request, client: 'b' });
  targets.accepted({ ...request, method: 'DELETE' });
  expect(targets.bars(request)).toBe(true);
});

test('refusals of requests that were under way at the same time count once', () => {
  const { targets, refuse } = at(1);
  for (const _ of [1, 2, 3]) targets.note(request, targetRefused(), 0);
  expect(targets.bars(request)).toBe(false);
  refuse();
  expect(targets.bars(request)).toBe(true);
});

test('a response to a target takes its refusals back', () => {
  const { targets, refuse } = at(2);
  refuse();
  targets.accepted(request);
  refuse();
  expect(targets.bars(request)).toBe(false);
});

test('refusals of a known nonce bar a target only when there are as many as a path may have', () => {
  const { targets } = at(2);
  const refuse = (): void => targets.note(request, targetRefused(), targets.count, false);
  for (let count = 0; count < 4; count += 1) refuse();
  expect(targets.bars(request)).toBe(false);
  refuse();
  expect(targets.bars(request)).toBe(true);
});

test('other errors are no refusals', () => {
  const { targets } = at(2);
  for (let count = 0; count < 9; count += 1) targets.note(request, new Error('broken'), 0);
  expect(targets.bars(request)).toBe(false);
});

test('refusals of another kind of error count for nothing', () => {
  const { targets } = at(2);
  for (let count = 0; count < 9; count += 1) {
    targets.note(request, new GatewayError('upstream-timeout', 'late'), targets.count);
  }
  expect([targets.count, targets.bars(request)]).toEqual([0, false]);
});

test('a path is barred for a client after five refusals of its targets, and for no other', () => {
  const { targets } = at(9);
  const targetOf = (query: number | string) => ({ ...request, target: `/items?${query}` });
  for (let query = 0; query < 5; query += 1) {
    expect(targets.bars(targetOf('other'))).toBe(false);
    targets.note(targetOf(query), targetRefused(), targets.count);
  }
  expect(targets.count).toBe(5);
  expect(targets.bars(targetOf('other'))).toBe(true);
  expect(targets.bars({ ...targetOf('other'), client: 'b' })).toBe(false);
  expect(targets.bars({ ...request, target: '/others?other' })).toBe(false);
  targets.accepted(targetOf('another'));
  expect(targets.bars(targetOf('other'))).toBe(false);
});

describe('a client whose targets are refused at ever new paths', () => {
  /** So many requests begin, and are refused then, each at a path of its own. */
  const refuseAt = (targets: RefusedTargets, count: number, name: string): void => {
    const before = targets.count;
    for (let each = 0; each < count; each += 1)
      targets.note({ ...request, target: `/${name}/${each}` }, targetRefused(), before);
  };

  test('is barred after ten times what one target may have, but for paths that serve', () => {
    const { targets } = at(2);
    refuseAt(targets, 1, 'first');
    targets.accepted({ ...request, target: '/served?q=1' });
    for (let count = 0; count < 18; count += 1) refuseAt(targets, 1, `${count}`);
    expect(targets.bars({ ...request, target: '/new' })).toBe(false);
    refuseAt(targets, 1, 'last');
    expect(targets.bars({ ...request, target: '/new' })).toBe(true);
    expect(targets.bars({ ...request, target: '/served?q=2' })).toBe(false);
    expect(targets.bars({ ...request, target: '/new', client: 'b' })).toBe(false);
  });

  test('is barred from paths that serve, too, once another target of one is refused', () => {
    const { targets } = at(2);
    const served = { ...request, target: '/served?q=1' };
    const others = { ...served, client: 'b' };
    for (let count = 0; count < 20; count += 1) {
      refuseAt(targets, 1, `${count}`);
      for (const each of [served, others]) targets.accepted(each);
    }
    expect(targets.bars({ ...request, target: '/served?q=2' })).toBe(false);
    targets.note({ ...request, target: '/served?q=2' }, targetRefused(), targets.count);
    expect([served, others].map((each) => targets.bars(each))).toEqual([true, false]);
  });

  test('has one refusal more for all that were under way at the same time', () => {
    const { targets } = at(2);
    refuseAt(targets, 16, 'crowd');
    for (let count = 0; count < 18; count += 1) refuseAt(targets, 2, `${count}`);
    expect(targets.bars({ ...request, target: '/new' })).toBe(false);
    refuseAt(targets, 2, 'last');
    expect(targets.bars({ ...request, target: '/new' })).toBe(true);
  });

  test('is barred after one crowd, if that is large enough', () => {
    const { targets } = at(2);
    refuseAt(targets, 304, 'crowd');
    expect(targets.bars({ ...request, target: '/new' })).toBe(false);
    refuseAt(targets, 1, 'last');
    expect(targets.bars({ ...request, target: '/new' })).toBe(true);
  });

  test('is served again a minute after the last refusal', () => {
    const { targets, pass } = at(2);
    for (let count = 0; count < 20; count += 1) refuseAt(targets, 1, `${count}`);
    expect(targets.bars({ ...request, target: '/new' })).toBe(true);
    pass(60_000);
    expect(targets.bars({ ...request, target: '/new' })).toBe(false);
  });
});

test('everything is forgotten a minute after the last refusal', () => {
  const { targets, refuse, pass } = at(2);
  refuse();
  refuse();
  pass(59_999);
  expect(targets.bars(request)).toBe(true);
  refuse();
  pass(59_999);
  targets.bars(request);
  pass(1);
  targets.bars(request);
  refuse();
  expect(targets.bars(request)).toBe(false);
});

test('of a long target its first 1,024 characters count', () => {
  const { targets } = at(2);
  const long = { ...request, target: `/${'x'.repeat(1_023)}` };
  for (const end of ['1', '2']) {
    targets.note({ ...long, target: long.target + end }, targetRefused(), targets.count);
  }
  expect(targets.bars({ ...long, target: `${long.target}3` })).toBe(true);
  targets.accepted({ ...long, target: `${long.target}4` });
  expect(targets.bars({ ...long, target: `${long.target}3` })).toBe(false);
});
