import { describe, expect, test } from '@jest/globals';
import { MUTATIONS as OF_CLIENTS } from './clients/mutations.ts';
import { runClients } from './clients/run.ts';
import type { Mutation } from './simulation/mutations.ts';
import { MUTATIONS as OF_UPSTREAMS } from './upstreams/mutations.ts';
import { runUpstreams } from './upstreams/run.ts';
import { findMutation } from './wire/wire-part.ts';

const job = { first: 1, messages: Number.MAX_SAFE_INTEGER, limitMs: Number.POSITIVE_INFINITY };

function named(mutations: readonly Mutation[], name: string): Mutation {
  const found = mutations.find((each) => each.name === name);
  if (found === undefined) throw new RangeError(`no mutation ${name}`);
  return found;
}

describe('messages of clients', () => {
  test('get their own responses, and none reaches the upstream that was not judged', async () => {
    const { messages, violations } = await runClients({ ...job, seeds: 200 });
    expect(violations).toEqual([]);
    expect(messages).toBeGreaterThan(1_000);
  });

  test('find a mutation that reads an ambiguous coding', async () => {
    const { what } = await findMutation({ run: runClients }, named(OF_CLIENTS, 'ambiguous-coding'));
    expect(what).toBeDefined();
  });
});

describe('answers of an upstream', () => {
  test('reach the client that asked, whole or broken off, without what is for the gateway', async () => {
    const { messages, violations } = await runUpstreams({ ...job, seeds: 600 });
    expect(violations).toEqual([]);
    expect(messages).toBeGreaterThan(600);
  });

  test('whose changed bytes make the marker of another seed are no finding', async () => {
    const { violations } = await runUpstreams({ ...job, first: 157_162, seeds: 1 });
    expect(violations).toEqual([]);
  });

  test('find a mutation that passes off a short response as whole', async () => {
    const { what } = await findMutation({ run: runUpstreams }, named(OF_UPSTREAMS, 'short-body'));
    expect(what).toBeDefined();
  });
});
