import { expect, test } from '@jest/globals';
import { type Linked, LinkedQueue } from '../../src/transport/fair-queue.ts';

interface Item extends Linked<Item> {
  readonly name: number;
}

const item = (name: number): Item => ({ name, previous: undefined, next: undefined });

/** Empties a queue; the names in their order. */
function namesIn(queue: LinkedQueue<Item>): number[] {
  const names: number[] = [];
  for (let { first } = queue; first !== undefined; { first } = queue) {
    names.push(first.name);
    queue.remove(first);
  }
  return names;
}

test('keeps the order in which items come', () => {
  const queue = new LinkedQueue<Item>();
  for (const name of [1, 2, 3]) queue.add(item(name));
  expect(queue.size).toBe(3);
  expect(namesIn(queue)).toEqual([1, 2, 3]);
  expect([queue.size, queue.first]).toEqual([0, undefined]);
});

test.each([
  [0, [2, 3]],
  [1, [1, 3]],
  [2, [1, 2]],
])('removes item %i, and only once', (at, left) => {
  const queue = new LinkedQueue<Item>();
  const items = [1, 2, 3].map(item);
  for (const each of items) queue.add(each);
  const removed = items[at] ?? item(0);
  queue.remove(removed);
  queue.remove(removed);
  expect([queue.size, removed.previous, removed.next]).toEqual([2, undefined, undefined]);
  expect(namesIn(queue)).toEqual(left);
});

test('takes an item again that was removed', () => {
  const queue = new LinkedQueue<Item>();
  const [one, two] = [item(1), item(2)];
  queue.add(one);
  queue.add(two);
  queue.remove(one);
  queue.add(one);
  expect(namesIn(queue)).toEqual([2, 1]);
});

test('removes nothing that is not in it', () => {
  const queue = new LinkedQueue<Item>();
  queue.add(item(1));
  queue.remove(item(2));
  expect([queue.size, namesIn(queue)]).toEqual([1, [1]]);
});
