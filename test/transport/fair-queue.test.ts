import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { FairQueue, type Queued } from '../../src/transport/fair-queue.ts';

interface Item extends Queued<Item> {
  readonly number: number;
}

function item(client: string, number: number): Item {
  return { client, number, previous: undefined, next: undefined };
}

/** Adds an item for each letter, which is its client, and returns the items. */
function fill(queue: FairQueue<Item>, clients: string): Item[] {
  const items = Array.from(clients, (client, index) => item(client, index + 1));
  for (const each of items) queue.add(each);
  return items;
}

/** Empties a queue; returns clients and numbers in their order. */
function drain(queue: FairQueue<Item>): string {
  const taken: string[] = [];
  for (let next = queue.take(); next !== undefined; next = queue.take())
    taken.push(`${next.client}${next.number}`);
  return taken.join(' ');
}

describe('a fair queue', () => {
  test.each([
    ['aaa', 'a1 a2 a3'],
    ['aaab', 'a1 b4 a2 a3'],
    ['aabbcc', 'a1 b3 c5 a2 b4 c6'],
    ['abaca', 'a1 b2 c4 a3 a5'],
  ])('takes %s in turn', (clients, wanted) => {
    const queue = new FairQueue<Item>();
    fill(queue, clients);
    expect(drain(queue)).toBe(wanted);
    expect([queue.size, queue.take()]).toEqual([0, undefined]);
  });

  test('takes the first item of a client after at most one of each other client', () => {
    const queue = new FairQueue<Item>();
    fill(queue, 'a'.repeat(1000));
    expect(queue.take()?.number).toBe(1);
    queue.add(item('b', 1));
    expect([queue.take(), queue.take()].map((each) => each?.client)).toContain('b');
  });

  test('keeps the turn of a client whose next item is removed', () => {
    const queue = new FairQueue<Item>();
    const [first] = fill(queue, 'aab');
    queue.remove(first ?? item('', 0));
    expect(drain(queue)).toBe('a2 b3');
  });

  test('removes an item once, and none that is not in it', () => {
    const queue = new FairQueue<Item>();
    const [, second = item('', 0)] = fill(queue, 'aab');
    queue.remove(second);
    queue.remove(second);
    queue.remove(item('a', 9));
    queue.remove(item('unknown', 9));
    expect([queue.size, drain(queue)]).toEqual([2, 'a1 b3']);
  });

  test('removes the oldest items of each client', () => {
    const queue = new FairQueue<Item>();
    fill(queue, 'ababcb');
    const removed = queue.removeOldest(({ number }) => number !== 3 && number !== 4);
    expect(removed.map(({ number }) => number)).toEqual([1, 2, 5]);
    expect([queue.size, drain(queue)]).toEqual([3, 'a3 b4 b6']);
  });

  test.each([
    ['', 'a', 0],
    ['aaaa', 'a', 4],
    ['aaaa', 'b', 1],
    ['aaaabbb', 'b', 7],
    ['aaaabbcd', 'c', 8],
    ['aaaabbcd', 'e', 4],
  ])('with %s knows how many items are ahead of %s', (clients, client, ahead) => {
    const queue = new FairQueue<Item>();
    fill(queue, clients);
    expect(queue.aheadOf(client)).toBe(ahead);
  });
});

/** The same, as slow and simple as can be: turns and the items of each client are arrays. */
class Model {
  readonly turns: string[] = [];
  readonly items = new Map<string, number[]>();

  of(client: string): number[] {
    const known = this.items.get(client) ?? [];
    this.items.set(client, known);
    return known;
  }

  add(client: string, number: number): void {
    if (this.of(client).push(number) === 1) this.turns.push(client);
  }

  take(): number | undefined {
    const client = this.turns.shift();
    if (client === undefined) return undefined;
    const [number, ...rest] = this.of(client);
    this.items.set(client, rest);
    if (rest.length > 0) this.turns.push(client);
    return number;
  }

  remove(client: string, number: number): void {
    const left = this.of(client).filter((each) => each !== number);
    this.items.set(client, left);
    if (left.length === 0 && this.turns.includes(client)) this.turns.splice(this.turns.indexOf(client), 1);
  }

  get size(): number {
    return Array.from(this.items.values(), ({ length }) => length).reduce((sum, length) => sum + length, 0);
  }
}

const step = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('add' as const), client: fc.constantFrom('a', 'b', 'c', 'd') }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('take' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('remove' as const), which: fc.nat() }) },
);

test('any sequence of steps has the result of a simple model', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const queue = new FairQueue<Item>();
      const model = new Model();
      const items: Item[] = [];
      for (const each of steps) {
        if (each.kind === 'add') {
          const added = item(each.client, items.length);
          items.push(added);
          queue.add(added);
          model.add(added.client, added.number);
        } else if (each.kind === 'take') {
          expect(queue.take()?.number).toBe(model.take());
        } else {
          const removed = items[each.which % Math.max(items.length, 1)];
          if (removed === undefined) continue;
          queue.remove(removed);
          model.remove(removed.client, removed.number);
        }
        expect(queue.size).toBe(model.size);
      }
    }),
  );
});

test('no client with nothing in the queue waits for more items than it was told, whatever the others do', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), fc.array(step, { maxLength: 100 }), (before, after) => {
      const queue = new FairQueue<Item>();
      const run = (each: (typeof before)[number]): Item | undefined => {
        if (each.kind === 'add') queue.add(item(each.client, 0));
        return each.kind === 'take' ? queue.take() : undefined;
      };
      before.forEach(run);
      let ahead = queue.aheadOf('first');
      const first = item('first', 1);
      queue.add(first);
      for (const each of [
        ...after,
        ...Array.from({ length: ahead + 1 }, () => ({ kind: 'take' }) as const),
      ]) {
        const taken = run(each);
        if (taken === first) return;
        if (taken !== undefined) ahead -= 1;
      }
      expect(ahead).toBeGreaterThanOrEqual(0);
    }),
  );
});
