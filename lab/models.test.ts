import { expect, test } from '@jest/globals';
import { needPackages } from '../test/support/system-packages.ts';
import { spin } from './models/spin.ts';
import { MUTATIONS } from './simulation/mutations.ts';

interface Checked {
  /** True if every state was visited. */
  readonly isComplete: boolean;
  readonly errors: number;
  /** The assertion that does not hold, or the state in which a process is stuck; empty: there is none. */
  readonly violated: string;
}

/** Visits every state of a model, until a rule is broken. `change`: a macro that breaks one; empty: none. */
async function check(model: string, change = ''): Promise<Checked> {
  needPackages('spin', 'gcc');
  const printed = await spin(model, { macros: change === '' ? {} : { [change]: 1 } });
  const [, errors = 'NaN'] = /errors: (\d+)/.exec(printed) ?? [];
  const [, violated = ''] = /^pan:1: (?:assertion violated )?(.*) \(at depth/m.exec(printed) ?? [];
  return {
    isComplete: !/max search depth too small|Search not completed/.test(printed),
    errors: Number(errors),
    violated,
  };
}

/** Changes of each model, and what each of them violates. */
const CHANGES = {
  nonces: {
    SAME_COUNT: 'used',
    COUNT_GOES_BACK: 'used',
    OWNERSHIP_OF_PARKED: 'used',
    OWNERSHIP_OF_RUN: 'used',
    OWNERSHIP_IN_MEMORY: 'used',
    PARKED_IN_USE: 'used',
    SHARED_BEFORE_ACCEPTED: 'used',
    STALE_NONCE_KEPT: 'spoiled',
    ACCEPTED_NOT_SHARED: 'has_good',
  },
  shared: { COMPARE_AND_SET: 'next>=stored' },
  waiting: { WAITERS_FORGOTTEN: 'invalid end state', CALLS_OF_CHANNEL_PEND: 'invalid end state' },
  credential: {
    NO_PROBE: 'seen_wrong',
    UNCLEAR_PROBE_REFUSES: 'seen_wrong',
    ASKED_ONCE: 'seen_wrong',
    NO_SINGLE_FLIGHT: 'verifications',
    PROMOTED_UNTRIED: 'proven',
    REFUSED_WHILE_UNKNOWN: 'refused',
    ATTEMPT_BUDGET: 'answered',
    CREDENTIAL_CIRCUIT: 'attempts',
    CIRCUIT_WITHOUT_WINDOW: 'attempts',
    PROBE_NEVER_LANDS: 'invalid end state',
  },
};

/** Mutations of the simulation that are about something else than nonces and credentials. */
const OF_OTHER_SUBJECTS = [
  'answer-strays',
  'own-head-closes',
  'closing-forgotten',
  'connection-shared',
  'permit-not-released',
  'no-lower-share',
  'rate-not-spent',
  'heartbeat-goes-on',
  'tickets-stay',
];

test.each(Object.keys(CHANGES))('no state of the model of %s breaks a rule', async (model) => {
  expect(await check(model)).toEqual({ isComplete: true, errors: 0, violated: '' });
});

const changes = Object.entries(CHANGES).flatMap(([model, broken]) =>
  Object.entries(broken).map(([change, violated]) => [model, change, violated] as const),
);

test.each(changes)('the model of %s with %s breaks a rule', async (model, change, rule) => {
  const { errors, violated } = await check(model, change);
  expect(errors).toBe(1);
  expect(violated).toContain(rule);
});

test('each mutation of the simulation has its counterpart in a model, or is of another subject', () => {
  const modelled = changes.map(([, change]) => change.toLowerCase().replaceAll('_', '-'));
  const missing = MUTATIONS.map(({ name }) => name).filter((name) => !modelled.includes(name));
  expect(missing).toEqual(OF_OTHER_SUBJECTS);
});
