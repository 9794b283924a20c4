import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { useFolders } from '../test/support/audit-log.ts';
import { needPackages } from '../test/support/system-packages.ts';

const folder = useFolders();

interface Checked {
  /** True if every state was visited. */
  readonly isComplete: boolean;
  readonly errors: number;
  /** The assertion that does not hold; empty: all hold. */
  readonly violated: string;
}

/** Visits every state of a model, until an assertion does not hold. `change`: a macro that breaks a rule; empty: none. */
async function check(model: string, change = ''): Promise<Checked> {
  needPackages('spin', 'gcc');
  const file = fileURLToPath(new URL(`models/${model}.pml`, import.meta.url));
  const changes = change === '' ? [] : [`-D${change}`];
  // What stands before -run is for the model, what follows for the checker: a bound of the depth that no path reaches.
  const args = [...changes, '-run', '-m200000', file];
  const { stdout } = await promisify(execFile)('spin', args, { cwd: await folder(), maxBuffer: 2 ** 24 });
  const [, errors = 'NaN'] = /errors: (\d+)/.exec(stdout) ?? [];
  const [, violated = ''] = /assertion violated (.*) \(at depth/.exec(stdout) ?? [];
  return {
    isComplete: !/max search depth too small|Search not completed/.test(stdout),
    errors: Number(errors),
    violated,
  };
}

test.each(['nonces', 'credential'])('no state of the model of %s breaks a rule', async (model) => {
  expect(await check(model)).toEqual({ isComplete: true, errors: 0, violated: '' });
});

/** Each change stands for a mutation of `lab/simulation/mutations.ts`, where that is there. */
test.each([
  ['nonces', 'SAME_COUNT', 'used'],
  ['nonces', 'COUNT_GOES_BACK', 'used'],
  ['nonces', 'OWNERSHIP_OF_PARKED', 'used'],
  ['nonces', 'OWNERSHIP_OF_RUN', 'used'],
  ['nonces', 'PARKED_IN_USE', 'used'],
  ['nonces', 'SHARED_BEFORE_ACCEPTED', 'accepted'],
  ['credential', 'NO_PROBE', 'was_ever_wrong'],
  ['credential', 'NO_SINGLE_FLIGHT', 'verifications'],
  ['credential', 'PROMOTED_UNTRIED', 'proven'],
  ['credential', 'NO_CIRCUIT', 'attempts'],
])('the model of %s with %s breaks a rule', async (model, change, assertion) => {
  const { errors, violated } = await check(model, change);
  expect(errors).toBe(1);
  expect(violated).toContain(assertion);
});
