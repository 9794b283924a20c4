import { expect, test } from '@jest/globals';
import { SignInTurns } from '../../src/control/login.ts';

const { signal: never } = new AbortController();

/** Turns with one place, which is taken, and what took a place since then. */
async function taken() {
  const turns = new SignInTurns(1);
  const first = await turns.take('192.0.2.1', never);
  const order: string[] = [];
  const ask = async (name: string, address: string, signal = never): Promise<void> => {
    using place = await turns.take(address, signal);
    order.push(place === undefined ? `${name} left` : name);
  };
  return { turns, order, ask, free: () => first?.[Symbol.dispose]() };
}

test('networks take turns, however many sign-ins one of them has', async () => {
  const { order, ask, free } = await taken();
  const asking = [
    ask('a1', '2001:db8:0:1::1'),
    ask('a2', '2001:db8:0:1::2'),
    ask('a3', '2001:db8:0:1:ffff::'),
    ask('b1', '2001:db8:0:2::1'),
    ask('c1', '::ffff:192.0.2.7'),
    ask('c2', '192.0.2.7'),
  ];
  free();
  await Promise.all(asking);
  expect(order).toEqual(['a1', 'b1', 'c1', 'a2', 'c2', 'a3']);
});

test('who leaves takes no turn, and no place is lost', async () => {
  const { turns, order, ask, free } = await taken();
  const leaving = new AbortController();
  const asking = [ask('a', '192.0.2.1', leaving.signal), ask('b', '192.0.2.1')];
  leaving.abort();
  free();
  await Promise.all(asking);
  expect(order).toEqual(['a left', 'b']);
  const place = await turns.take('192.0.2.1', AbortSignal.abort());
  expect(place).toBeDefined();
  expect(await turns.take('192.0.2.1', AbortSignal.abort())).toBeUndefined();
});
