import { setImmediate } from 'node:timers/promises';
import { afterEach, describe, expect, test } from '@jest/globals';
import { titleOf } from '../../src/base/errors.ts';
import { Sampler } from '../../src/control/history.ts';
import type { Problem } from '../../src/control/readiness.ts';
import { conditionOf, gatewayCondition, takeSnapshot } from '../../src/control/snapshot.ts';
import type { DeploymentState } from '../../src/control/state.ts';
import { type DeploymentInterval, readTotals } from '../../src/control/totals.ts';
import { countedMetrics, healthyDeployment, sourceWith } from './console-source.ts';

const DAY_MS = 86_400_000;

const quiet: DeploymentInterval = {
  seconds: 60,
  requests: 0,
  errors: 0,
  refused: 0,
  challenges: 0,
  awaited: 0,
  accepted: 0,
  outcomes: new Map(),
  errorCodes: [],
  refusedCodes: [],
  classes: new Map(),
  latency: undefined,
  inFlight: 0,
};

interface Rest extends Partial<Pick<DeploymentState, 'serves' | 'nonce' | 'tls'>> {
  readonly problems?: readonly Problem[];
}

const expiringAt = (expiresAt: number): Rest => ({
  tls: { protocol: 'TLSv1.3', chain: [{ subject: '', issuer: '', validFrom: 0, expiresAt }] },
});

function conditionWith(minute: Partial<DeploymentInterval>, { problems = [], ...rest }: Rest = {}) {
  const deployment = { serves: true, nonce: { policy: 'shared' }, ...rest } as const;
  const { state, reasons, next } = conditionOf(deployment, problems, { ...quiet, ...minute }, 0);
  expect(next === '').toBe(state === 'ok');
  return [state, ...reasons];
}

test.each([
  ['upstream-timeout', 'See the recent errors, and what each code means.'],
  ['', 'Ask the operator of the upstream: it sent these responses with a status of 5xx.'],
])('the next step for failed requests with the code "%s"', (code, step) => {
  const minute = { ...quiet, requests: 9, errors: 3, errorCodes: [{ code, count: 3 }] };
  const { next } = conditionOf({ serves: true, nonce: { policy: 'shared' } }, [], minute, 0);
  expect(next).toBe(step);
});

const REFUSES = [{ reason: 'refuses it', next: 'ask why' }];
const timeouts = [{ code: 'upstream-timeout', count: 3 }];

describe('a deployment is', () => {
  test.each([
    [{}, {}, ['ok', 'No errors and no requests.']],
    [{ requests: 12 }, {}, ['ok', '12 requests in the last minute: none failed.']],
    [{ requests: 1, seconds: 5 }, {}, ['ok', '1 request in the last 5 s: none failed.']],
    [
      { requests: 12, refused: 3 },
      {},
      ['ok', '12 requests in the last minute: none failed, 3 refused to clients.'],
    ],
    [
      { requests: 12, errors: 3, errorCodes: timeouts },
      {},
      ['degraded', `3 of 12 requests in the last minute failed: ${titleOf('upstream-timeout')} (3).`],
    ],
    [
      { requests: 3, errors: 3, errorCodes: timeouts },
      {},
      ['down', `Every request of the last minute failed: ${titleOf('upstream-timeout')} (3).`],
    ],
    [{}, { problems: REFUSES, serves: false }, ['down', 'Refuses it.']],
    [{}, { problems: REFUSES, serves: true }, ['degraded', 'Refuses it.']],
    [
      { requests: 12, refused: 7, refusedCodes: [{ code: 'client-forbidden', count: 7 }] },
      {},
      [
        'degraded',
        `7 of 12 requests in the last minute were refused to clients: ${titleOf('client-forbidden')} (7).`,
      ],
    ],
    [
      { requests: 9, refused: 9 },
      {},
      ['ok', '9 requests in the last minute: none failed, 9 refused to clients.'],
    ],
    [{}, expiringAt(30 * DAY_MS), ['ok', 'No errors and no requests.']],
    [
      {},
      expiringAt(29.5 * DAY_MS),
      ['degraded', "The upstream's certificate expires 1970-01-30, 29 days left."],
    ],
    [
      {},
      expiringAt(1.5 * DAY_MS),
      ['degraded', "The upstream's certificate expires 1970-01-02, 1 day left."],
    ],
    [{}, expiringAt(-1), ['degraded', "The upstream's certificate expired on 1969-12-31."]],
    [
      { requests: 10, challenges: 7, awaited: 5 },
      {},
      [
        'degraded',
        'The upstream asked for authentication again for 5 of 10 requests: its nonces expire early.',
      ],
    ],
    [
      { requests: 10, challenges: 5, awaited: 5 },
      { nonce: { policy: 'single-use' } },
      ['ok', '10 requests in the last minute: none failed.'],
    ],
    [{ requests: 9, challenges: 9, awaited: 9 }, {}, ['ok', '9 requests in the last minute: none failed.']],
    // Obtained ahead: no request waited for them.
    [
      { requests: 12, challenges: 12, awaited: 5 },
      {},
      ['ok', '12 requests in the last minute: none failed.'],
    ],
  ] as const)('with %j and %j: %j', (minute, rest, told) => {
    expect(conditionWith(minute, rest)).toEqual(told);
  });

  test('what is down is told before what is degraded', () => {
    const told = conditionWith(
      { requests: 3, errors: 3, errorCodes: timeouts },
      { problems: REFUSES, serves: true },
    );
    expect(told).toEqual(['down', expect.stringMatching(/^Every request/), 'Refuses it.']);
  });
});

describe('the gateway is', () => {
  const ok = { name: 'a', state: 'ok', reasons: [], next: '' } as const;
  const down = { name: 'b', state: 'down', reasons: ['Gone.'], next: 'Ask why.' } as const;

  test.each([
    [[], true, [ok, { ...ok, name: 'b' }], ['ok']],
    [[], true, [ok, down], ['degraded', 'Gone.']],
    [[], true, [down], ['down', 'Gone.']],
    [['Redis is not there'], true, [ok], ['degraded', 'Redis is not there.']],
    [['shutting down'], false, [ok], ['down', 'Shutting down.']],
    // With `readiness: all-upstreams`.
    [[], false, [ok, down], ['down', 'Gone.']],
  ] as const)('with %j, served %j and %j: %j', (reasons, served, deployments, told) => {
    const problems = reasons.map((reason) => ({ reason, next: 'see the log' }));
    const condition = gatewayCondition(problems, served, deployments, []);
    expect([condition.state, ...condition.problems.map(({ text }) => text)]).toEqual(told);
  });

  test('not ok for reasons that each have a next step, in sentences', () => {
    const { problems } = gatewayCondition(
      [{ reason: 'the log is full', next: 'free space' }],
      true,
      [ok, down],
      [],
    );
    expect(problems).toEqual([
      { state: 'down', text: 'Gone.', next: 'Ask why.', deployment: 'b' },
      { state: 'degraded', text: 'The log is full.', next: 'Free space.' },
    ]);
  });

  test('what needs attention comes last, and does not change the state', () => {
    const warnings = ['a restart is needed: listen.port'];
    const attention = { state: 'ok', text: 'A restart is needed: listen.port.', next: '' };
    expect(gatewayCondition([], true, [ok], warnings)).toEqual({ state: 'ok', problems: [attention] });
    expect(gatewayCondition([], true, [ok, down], warnings)).toEqual({
      state: 'degraded',
      problems: [{ state: 'down', text: 'Gone.', next: 'Ask why.', deployment: 'b' }, attention],
    });
  });
});

describe('requests that fail before they have a deployment', () => {
  let sampler: Sampler | undefined;
  afterEach(() => sampler?.close());

  test.each([
    [
      'identity-unavailable',
      '503',
      [
        'degraded',
        {
          state: 'degraded',
          text: `4 requests in the last 10 s failed before a deployment was found: ${titleOf('identity-unavailable')} (4).`,
          next: 'See the recent errors, and what each code means.',
        },
      ],
    ],
    ['not-implemented', '501', ['ok']],
    ['client-unknown', '401', ['ok']],
  ])('with the code %s', async (code, status, expected) => {
    const { metrics, values } = countedMetrics();
    const onError = (error: unknown) => {
      throw error;
    };
    const countedAt = (at: number, requests: number) => {
      metrics.requests.inc({ deployment: '', operation: '', client: '', status, code }, requests);
      return readTotals(values, at);
    };
    const before = await countedAt(0, 7);
    const samples = [before, await countedAt(10_000, 4)];
    sampler = new Sampler(async () => samples.shift() ?? before, 60_000, onError);
    // The first sample is there after the pending promises.
    await setImmediate();
    const state = () => ({ deployments: [healthyDeployment('submissions')] });
    const { gateway } = await takeSnapshot(sourceWith({ values, state }), sampler);
    expect([gateway.state, ...gateway.problems]).toEqual(expected);
  });
});
