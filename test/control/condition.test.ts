import { describe, expect, test } from '@jest/globals';
import { conditionOf, type DeploymentEvidence, gatewayCondition } from '../../src/control/snapshot.ts';

const DAY_MS = 86_400_000;

const quiet: DeploymentEvidence['minute'] = {
  seconds: 60,
  requests: 0,
  errors: 0,
  refused: 0,
  challenges: 0,
  outcomes: new Map(),
  errorCodes: [],
  refusedCodes: [],
  classes: new Map(),
  latency: undefined,
};

function conditionWith(
  minute: Partial<DeploymentEvidence['minute']>,
  rest: Partial<DeploymentEvidence> = {},
) {
  const { state, reasons } = conditionOf({
    minute: { ...quiet, ...minute },
    error: '',
    serving: true,
    policy: 'shared',
    certificateExpiresAt: undefined,
    now: 0,
    titleOf: (code) => `title of ${code}`,
    ...rest,
  });
  return [state, ...reasons];
}

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
      ['degraded', '3 of 12 requests in the last minute failed: title of upstream-timeout (3).'],
    ],
    [
      { requests: 3, errors: 3, errorCodes: timeouts },
      {},
      ['broken', 'Every request of the last minute failed: title of upstream-timeout (3).'],
    ],
    [{}, { error: 'refuses it', serving: false }, ['broken', 'Refuses it.']],
    [{}, { error: 'refuses the new one', serving: true }, ['degraded', 'Refuses the new one.']],
    [
      { requests: 12, refused: 7, refusedCodes: [{ code: 'client-forbidden', count: 7 }] },
      {},
      [
        'degraded',
        '7 of 12 requests in the last minute were refused to clients: title of client-forbidden (7).',
      ],
    ],
    [
      { requests: 9, refused: 9 },
      {},
      ['ok', '9 requests in the last minute: none failed, 9 refused to clients.'],
    ],
    [{}, { certificateExpiresAt: 30 * DAY_MS }, ['ok', 'No errors and no requests.']],
    [
      {},
      { certificateExpiresAt: 29.5 * DAY_MS },
      ['degraded', "The upstream's certificate expires 1970-01-30, 29 days left."],
    ],
    [
      {},
      { certificateExpiresAt: 1.5 * DAY_MS },
      ['degraded', "The upstream's certificate expires 1970-01-02, 1 day left."],
    ],
    [{}, { certificateExpiresAt: -1 }, ['degraded', "The upstream's certificate expired on 1969-12-31."]],
    [
      { requests: 10, challenges: 5 },
      {},
      [
        'degraded',
        'The upstream asked for authentication again for 5 of 10 requests: its nonces expire early.',
      ],
    ],
    [
      { requests: 10, challenges: 5 },
      { policy: 'single-use' },
      ['ok', '10 requests in the last minute: none failed.'],
    ],
    [{ requests: 9, challenges: 9 }, {}, ['ok', '9 requests in the last minute: none failed.']],
  ] as const)('with %j and %j: %j', (minute, rest, told) => {
    expect(conditionWith(minute, rest)).toEqual(told);
  });

  test('what is broken is told before what is degraded', () => {
    const told = conditionWith(
      { requests: 3, errors: 3, errorCodes: timeouts },
      { error: 'refuses the new one', serving: true },
    );
    expect(told).toEqual(['broken', expect.stringMatching(/^Every request/), 'Refuses the new one.']);
  });
});

describe('the gateway is', () => {
  const ok = { name: 'a', state: 'ok', reasons: [] } as const;
  const broken = { name: 'b', state: 'broken', reasons: [] } as const;

  test.each([
    [[], true, [ok, { ...ok, name: 'b' }], ['ok', '2 deployments, nothing wrong.']],
    [[], true, [ok, broken], ['degraded', 'b is broken.']],
    [[], true, [broken], ['broken', 'b is broken.']],
    [['Redis is not there'], true, [ok], ['degraded', 'Redis is not there.']],
    [['shutting down'], false, [ok], ['broken', 'Shutting down.']],
  ] as const)('with %j, served %j and %j: %j', (problems, served, deployments, told) => {
    const { state, reasons } = gatewayCondition(problems, served, deployments, []);
    expect([state, ...reasons]).toEqual(told);
  });

  test('what needs attention comes last, and does not change the state', () => {
    const warnings = ['a restart is needed: listen.port'];
    expect(gatewayCondition([], true, [ok], warnings)).toMatchObject({
      state: 'ok',
      reasons: ['1 deployment, nothing wrong.', 'A restart is needed: listen.port.'],
    });
    expect(gatewayCondition([], true, [ok, broken], warnings)).toMatchObject({
      state: 'degraded',
      reasons: ['b is broken.', 'A restart is needed: listen.port.'],
    });
  });
});
