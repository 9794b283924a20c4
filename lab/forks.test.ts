import { expect, test } from '@jest/globals';
import { runForks } from './forks/run.ts';

test('the witness finds what the keys of a gateway forge, and cosigns none of it', async () => {
  const { tries, found, foundWithout, cosigned, histories, findings } = await runForks({
    seed: 1,
    tries: 25,
  });
  expect(findings).toEqual([]);
  expect({ tries, found, foundWithout, cosigned, histories }).toEqual({
    tries: 25,
    found: 25,
    foundWithout: 0,
    cosigned: 0,
    histories: 1,
  });
});
