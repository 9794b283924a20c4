import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { readCorpus } from './guided/corpus.ts';
import { runGuided } from './guided/run.ts';
import type { Check } from './guided/search.ts';
import { targets } from './guided/targets.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'lab-guided-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function replay(check: Check, input: Buffer): Promise<string | undefined> {
  try {
    await check(input, folder);
    return undefined;
  } catch (error) {
    return `${error}: ${JSON.stringify(input.toString('latin1'))}`;
  }
}

describe.each(targets.map(({ name }) => name))('%s', (name) => {
  test('has its properties with every input that is kept', async () => {
    const { check }: { readonly check: Check } = await import(`./guided/${name}.ts`);
    const failures: string[] = [];
    const corpus = await readCorpus(name);
    for (const input of corpus) {
      const failure = await replay(check, input);
      if (failure !== undefined) failures.push(failure);
    }
    expect(failures).toEqual([]);
    expect(corpus.length).toBeGreaterThan(10);
  });
});

const job = { seed: 1, limitMs: Number.POSITIVE_INFINITY };

test('goes on from inputs that reach something new, the same for the same seed', async () => {
  const corpus = [Buffer.from('Digest realm="r", nonce="n"')];
  const search = { ...job, target: 'digest', corpus, runs: 500 };
  const [one, other] = [await runGuided(search), await runGuided(search)];
  expect(one.failure).toBeUndefined();
  expect(one.figures).toEqual(other.figures);
  const alone = await runGuided({ ...search, runs: 0 });
  expect(one.figures.reached).toBeGreaterThan(alone.figures.reached);
});

test.each([
  ['digest', 'challenges-unbounded'],
  ['policy', 'second-value'],
  ['audit', 'content-unchecked'],
])('%s finds the mutation %s', async (name, mutated) => {
  const target = targets.find((each) => each.name === name);
  const mutation = target?.mutations.find((each) => each.name === mutated);
  if (mutation === undefined) throw new RangeError(`no mutation ${mutated}`);
  const corpus = await readCorpus(name);
  const { failure } = await runGuided({ ...job, target: name, corpus, runs: 20_000, mutation });
  expect(failure).toBeDefined();
});
