import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { finding } from '../../src/audit/findings.ts';
import { readiness, readinessText } from '../../src/control/readiness.ts';
import {
  type AuditState,
  addFormer,
  type DeploymentState,
  EGRESS,
  mergeAudits,
  mergeStates,
  NO_FORMER,
  type PauseState,
  type WorkerState,
} from '../../src/control/state.ts';
import type { AddressView } from '../../src/control/view.ts';
import type { EgressState } from '../../src/upstream/egress-addresses.ts';
import { healthyDeployment, recentError, WELL } from './console-source.ts';

const NAME = 'submissions';
const well: AddressView = {
  address: 'u:443',
  health: 'healthy',
  age: 42,
  circuit: 'closed',
  reason: '',
  exchanges: 5,
};
const intact: AuditState = {
  records: 3,
  failures: 0,
  failing: [],
  retentionHeld: [],
  integrityErrors: [],
};

interface Change extends Partial<Omit<WorkerState, 'deployments'>> {
  readonly deployment?: Partial<DeploymentState>;
}

/** The state of a worker with nothing wrong but what a test changes. */
function stateOf(worker: number, { deployment = {}, ...change }: Change = {}): WorkerState {
  const { workers: _, configuration: __, sinks: ___, ...plane } = WELL;
  const deployments = [{ ...healthyDeployment(NAME), ...deployment }];
  return { ...plane, worker, audit: intact, deployments, ...change };
}

const merge = (...changes: Change[]) => mergeStates(changes.map((change, index) => stateOf(index, change)));
const deploymentOf = (...changes: Partial<DeploymentState>[]) =>
  merge(...changes.map((deployment) => ({ deployment }))).deployments[0];
const readinessOf = (...changes: Change[]) => readiness({ ...WELL, ...merge(...changes) });
/** What readiness says of the deployment. */
const checkOf = (...changes: Partial<DeploymentState>[]) =>
  readinessOf(...changes.map((deployment) => ({ deployment }))).checks.at(-1);

const address = (change: Partial<AddressView>) => ({ addresses: [{ ...well, ...change }] });
const pause = (change: Partial<PauseState>) => ({
  pauses: [{ credential: '', outcome: 'throttled', until: 0, ...change }],
});

const OK: Change = {};
const DEGRADED: Change = { storeUp: false };
const DOWN: Change = { serves: false, stage: 'draining' };

test('readiness sends to the runbook if a witness has cosigned another log, not if a receiver is away', () => {
  const nextOf = (rejected: boolean) =>
    readiness({ ...WELL, sinks: [{ name: 'witness', failing: 'its end is gone', rejected }] }).checks.find(
      ({ name }) => name === 'audit-sink-witness',
    )?.next;
  expect(nextOf(true)).toMatch(/DigestGatewayAuditWitnessConflict/);
  expect(nextOf(false)).toMatch(/check the receiver/);
});

describe('the readiness of workers', () => {
  test.each([
    ['ok', [OK, OK]],
    ['degraded', [OK, DEGRADED]],
    ['degraded', [OK, DOWN]],
    ['degraded', [DEGRADED, DOWN]],
    ['down', [DOWN, DOWN]],
    ['down', []],
  ] as const)('is %s of %j', (status, changes) => {
    expect(readinessOf(...changes).status).toBe(status);
    expect(merge(...changes).serves).toBe(status !== 'down');
  });

  test('has each check once, ok if it is ok in all, with each sentence once', () => {
    const full = { ...intact, failing: ['the disk is full'] };
    const gone = { ...intact, failing: ['the folder is gone'] };
    const state = {
      ...WELL,
      ...merge(
        { storeUp: true },
        { storeUp: false, storeFailing: ['WRONGPASS invalid password'], audit: full },
        { storeUp: false, storeFailing: ['WRONGPASS invalid password'], audit: gone },
        { audit: full },
      ),
      configuration: { refused: null, unreadable: null, needsRestart: ['listen.port'] },
      deployments: [],
    };
    expect(readinessText(readiness(state))).toBe(
      [
        'ok        data-plane',
        'ok        configuration',
        '          changed in the file, but a restart is needed: listen.port',
        'degraded  store: Redis is unreachable (WRONGPASS invalid password): nonces are not shared with other replicas',
        '          -> check that Redis runs, and run doctor: it tests address, TLS and password under redis; changed ones need a restart',
        'degraded  audit: the audit log cannot be written: the disk is full; the audit log cannot be written: the folder is gone',
        '          -> free space on its disk, or give the gateway the right to write there',
        'degraded\n',
      ].join('\n'),
    );
  });

  test('says how many workers serve, and what is wrong with the log of the primary', () => {
    const audit = {
      ...intact,
      failing: ['EIO'],
      retentionHeld: ['a sink is behind'],
    };
    const state = { ...WELL, workers: { serving: 1, configured: 2, audit }, deployments: [] };
    const { status, checks } = readiness(state);
    expect(status).toBe('degraded');
    expect(checks.find(({ name }) => name === 'workers')?.detail).toBe(
      '1 of 2 workers serve; ' +
        "the primary's audit log cannot be written: EIO; the primary: a sink is behind",
    );
  });

  test.each([
    [
      [{ health: 'failing', age: 841, reason: 'refused' }, { age: 900 }],
      'the address u:443 has been failing for 14 min: refused',
    ],
    [
      [
        { health: 'failing', age: 7, reason: 'refused' },
        { health: 'failing', age: 9.5, reason: 'timeout' },
      ],
      'the address u:443 has been failing for 9 s: timeout',
    ],
    [
      [
        { health: 'failing', age: 3, circuit: 'half-open', reason: 'refused' },
        { health: 'failing', age: 9.5, circuit: 'open', reason: 'timeout' },
      ],
      'the address u:443 has been failing for 9 s (circuit open): timeout',
    ],
    [[{ age: 3 }, { age: 5 }], ''],
  ] as const)('with an address as in %j says %j', (addresses, detail) => {
    const check = checkOf(...addresses.map(address));
    expect(check).toMatchObject({ detail, ok: detail === '' });
    expect(check?.addresses).toHaveLength(1);
  });

  describe('of local addresses', () => {
    const failing = address({ health: 'failing', reason: 'no such address' });
    const egress = (...statuses: EgressState['status'][]): Partial<DeploymentState> => ({
      egress: statuses.map((status, index) => ({
        address: `10.0.0.${index}`,
        status,
        outcome: status === 'refused' ? 'unregistered' : '',
      })),
    });

    test('tells of the only one that a worker does not have, not of what follows from it', () => {
      expect(checkOf(egress('in-use'), { ...egress('missing'), ...failing })).toMatchObject({
        ok: false,
        detail: 'the address of egress.localAddress is not on this host',
      });
    });

    test('fails when none of several is on this host', () => {
      expect(checkOf({ ...egress('missing', 'missing'), ...failing })).toMatchObject({
        ok: false,
        detail: 'none of the addresses of egress.localAddress is on this host',
      });
    });

    test.each([
      [['missing', 'in-use'], 'do not leave from 10.0.0.0, which is not on this host'],
      [
        ['refused', 'in-use'],
        'do not leave from 10.0.0.0, which the upstream refuses (outcome unregistered)',
      ],
      [['in-use', 'standby'], undefined],
    ] as const)('is ok, with %j of them, and warns: %s', (statuses, warning) => {
      const check = checkOf(egress(...statuses));
      expect(check).toMatchObject({ ok: true, detail: '' });
      expect(check?.warning).toBe(warning && `requests of ${NAME} ${warning}`);
    });

    test('merges the states of workers, and tells the worst of each', () => {
      const check = checkOf(egress('refused', 'in-use'), egress('in-use', 'standby'));
      expect(check?.warning).toContain('10.0.0.0');
      expect(check?.warning).not.toContain('10.0.0.1');
    });
  });

  test('tells a pause once, with the latest end', () => {
    const changes = [{ until: 5_000 }, { until: 9_000 }, { until: 7_000, credential: 'a' }];
    expect(checkOf(...changes.map(pause))?.detail).toBe(
      'paused until 1970-01-01T00:00:09.000Z, by outcome throttled; ' +
        'requests with the credential a are paused until 1970-01-01T00:00:07.000Z, by outcome throttled',
    );
  });

  test('tells once that a credential is refused, whichever worker has seen it', () => {
    const [current, next] = healthyDeployment(NAME).credentials;
    const refused = { ...current, state: 'refused', serves: false } as const;
    const rejected = { ...next, state: 'refused', rejected: true } as const;
    const detailOf = (...lists: (typeof refused | typeof rejected | typeof current)[][]) =>
      checkOf(...lists.map((credentials) => ({ credentials }) as Partial<DeploymentState>))?.detail;
    expect(detailOf([refused], [refused], [current])).toBe('the upstream refuses the credential submissions');
    expect(detailOf([current, rejected], [current, rejected])).toBe(
      'the upstream refuses the new version of the credential submissions, and the old one stays',
    );
    expect(detailOf([current], [current])).toBe('');
  });
});

describe('the state of a deployment', () => {
  test('has the strictest policy, the youngest nonce and the shortest lifetime', () => {
    const state = deploymentOf(
      { nonce: { policy: 'exclusive', age: 3 } },
      { nonce: { policy: 'shared', age: 2, lifetime: 300 } },
      { nonce: { policy: 'single-use', lifetime: 200 } },
    );
    expect(state?.nonce).toStrictEqual({ policy: 'single-use', age: 2, lifetime: 200 });
  });

  test('serves if one worker does', () => {
    expect(deploymentOf({ serves: false }, { serves: true })?.serves).toBe(true);
    expect(deploymentOf({ serves: false }, { serves: false })?.serves).toBe(false);
  });

  test('adds up connections, and has the chain that expires first', () => {
    const chain = (expiresAt: number) =>
      [{ subject: 'CN=a', issuer: 'CN=b', validFrom: 0, expiresAt }] as const;
    const connections = { connected: 3, free: 1, running: 2, pending: 1, limit: 64 };
    const merged = deploymentOf(
      { connections, tls: { protocol: 'TLSv1.3', chain: chain(20) } },
      { connections, tls: { protocol: 'TLSv1.2', chain: chain(10) } },
    );
    expect(merged?.connections).toEqual({ connected: 6, free: 2, running: 4, pending: 2, limit: 128 });
    expect(merged?.tls).toEqual({ protocol: 'TLSv1.2', chain: chain(10) });
  });

  test('has the worst state of each credential version and address', () => {
    const inUse = {
      credential: 'c',
      version: '1',
      state: 'in-use',
      inUse: true,
      serves: true,
      rejected: false,
      changedAt: 5,
    } as const;
    const candidate = { ...inUse, version: '2', state: 'candidate', inUse: false } as const;
    const state = deploymentOf(
      { credentials: [inUse], addresses: [well] },
      {
        credentials: [{ ...inUse, state: 'refused', serves: false }, candidate],
        addresses: [
          { ...well, health: 'failing', age: 1, reason: 'refused' },
          { ...well, address: 'v:443' },
        ],
      },
    );
    expect(state?.credentials).toStrictEqual([{ ...inUse, state: 'refused', serves: false }, candidate]);
    expect(state?.addresses).toStrictEqual([
      { ...well, health: 'failing', age: 1, reason: 'refused', exchanges: 2 * well.exchanges },
      { ...well, address: 'v:443' },
    ]);
  });

  test('is of each deployment that a worker has, in their order', () => {
    const states = [stateOf(1), stateOf(0, { deployment: { name: 'abstracts' } })];
    expect(mergeStates(states).deployments.map(({ name }) => name)).toEqual(['abstracts', NAME]);
  });
});

describe('errors', () => {
  test('of one deployment and code add up, and the latest is told; the newest come first', () => {
    const older = { ...recentError, count: 2, lastAt: 1, requestId: 'older' };
    const newer = { ...recentError, count: 3, lastAt: 3, requestId: 'newer' };
    const other = { ...recentError, code: 'upstream-timeout', lastAt: 2 };
    expect(merge({ errors: [newer] }, { errors: [other, older] }).errors).toEqual([
      { ...newer, count: 5 },
      other,
    ]);
  });

  test('of clients do not displace those of the gateway', () => {
    const failure = { ...recentError, lastAt: 1 };
    const refusals = Array.from({ length: 60 }, (_, index) => ({
      ...recentError,
      deployment: `d${index}`,
      code: 'client-forbidden',
      lastAt: 100 - index,
    }));
    const merged = merge({ errors: refusals }, { errors: [failure] }).errors;
    expect(merged).toHaveLength(51);
    expect(merged.at(-1)).toEqual(failure);
  });

  test('are fifty at most, the newest', () => {
    const errors = Array.from({ length: 40 }, (_, index) => ({
      ...recentError,
      code: `code-${index}`,
      lastAt: 100 - index,
    }));
    const others = errors.map((error) => ({ ...error, deployment: 'reviews' }));
    const merged = merge({ errors }, { errors: others }).errors;
    expect(merged).toHaveLength(50);
    expect(merged.at(-1)?.code).toBe('code-24');
  });
});

test('the records of workers that have ended are counted on, but not why their logs failed', () => {
  const full = {
    ...intact,
    records: 98_000,
    failures: 19,
    failing: ['the disk is full'],
    retentionHeld: ['a sink is behind'],
  };
  const once = addFormer(NO_FORMER, [stateOf(1, { audit: full })]);
  const former = addFormer(once, [stateOf(2, { audit: null }), stateOf(3, { audit: intact })]);
  const expected = { ...intact, records: 98_006, failures: 19 };
  expect(mergeStates([stateOf(4, { audit: intact })], former).audit).toStrictEqual(expected);
});

test('audit logs add up, fail if one does, and have every integrity error once', () => {
  const placed = { ...finding('batch-altered', { from: 7, to: 7 }), replica: 'a', segment: 's', line: 7 };
  const altered: AuditState = {
    records: 4,
    failures: 1,
    failing: ['the disk is full'],
    retentionHeld: ['a sink is behind'],
    integrityErrors: [placed],
  };
  const other = { ...altered, integrityErrors: [{ ...placed, line: 8 }] };
  expect(merge({}, { audit: altered }, { audit: altered }, { audit: other }).audit).toStrictEqual({
    records: 15,
    failures: 3,
    failing: ['the disk is full'],
    retentionHeld: ['a sink is behind'],
    integrityErrors: [placed, { ...placed, line: 8 }],
  });
  expect(merge({ audit: null }, { audit: null }).audit).toBeNull();
});

const name = fc.constantFrom('a', 'b', 'c');
const sentences = fc.uniqueArray(fc.constantFrom('one', 'two', 'three'), { maxLength: 3 });
const time = fc.nat({ max: 20 });
const optional = <Value>(key: string, value: fc.Arbitrary<Value>) =>
  fc.oneof(
    fc.constant({}),
    value.map((known) => ({ [key]: known })),
  );
const addresses = fc.uniqueArray(
  fc.record({
    address: name,
    health: fc.constantFrom('unknown' as const, 'healthy' as const, 'failing' as const),
    age: time,
    circuit: fc.constantFrom('closed' as const, 'open' as const, 'half-open' as const),
    reason: name,
    exchanges: fc.nat(),
  }),
  { selector: (each) => each.address, maxLength: 3 },
);
const pauses = fc.uniqueArray(fc.record({ credential: name, outcome: name, until: time }), {
  selector: ({ credential, outcome }) => `${credential} ${outcome}`,
  maxLength: 3,
});
const credentials = fc.uniqueArray(
  fc
    .tuple(
      fc.record({
        credential: name,
        version: name,
        state: fc.constantFrom('in-use' as const, 'refused' as const, 'fallback' as const),
        inUse: fc.boolean(),
        serves: fc.boolean(),
        rejected: fc.boolean(),
      }),
      optional('changedAt', time),
      optional('role', fc.constantFrom('current' as const, 'next' as const)),
    )
    .map(([state, changed, role]) => ({ ...state, ...changed, ...role })),
  { selector: (each) => `${each.credential} ${each.version}`, maxLength: 3 },
);
const nonce = fc
  .tuple(
    fc.constantFrom('shared' as const, 'exclusive' as const, 'single-use' as const),
    optional('age', time),
    optional('lifetime', time),
  )
  .map(([policy, age, lifetime]) => ({ policy, ...age, ...lifetime }));
const certificate = fc.record({ subject: name, issuer: name, validFrom: time, expiresAt: time });
const chains = fc.tuple(certificate, certificate);
const connections = fc.record({ connected: time, free: time, running: time, pending: time, limit: time });
const egress = fc.uniqueArray(
  fc.record({
    address: name,
    status: fc.constantFrom(...EGRESS),
    outcome: fc.constantFrom('', 'unregistered'),
  }),
  { selector: ({ address: each }) => each, maxLength: 3 },
);
const deployments = fc.uniqueArray(
  fc
    .tuple(
      fc.record({
        name,
        origin: name,
        serves: fc.boolean(),
        connections,
        nonce,
        credentials,
        addresses,
        outcomes: sentences,
        pauses,
        egress,
      }),
      optional('tls', fc.record({ protocol: name, chain: chains })),
    )
    .map(([own, tls]) => ({ ...own, ...tls })),
  { selector: (each) => each.name, maxLength: 3 },
);
const errors = fc
  .uniqueArray(fc.record({ deployment: name, code: name, requestId: name, count: time }), {
    selector: ({ deployment, code }) => `${deployment} ${code}`,
    maxLength: 5,
  })
  .map((list) =>
    // The newest first, each at a time of its own.
    list.map((error, index) => ({ ...error, detail: '', lastAt: 100 - index })),
  );
const audit = fc.option(
  fc.record({
    records: time,
    failures: time,
    failing: sentences,
    retentionHeld: sentences,
    integrityErrors: fc.uniqueArray(time, { maxLength: 3 }).map((lines) =>
      lines.map((line) => ({
        ...finding('batch-altered', { from: 7, to: 7 }),
        replica: 'a',
        segment: 's',
        line,
      })),
    ),
  }),
);
const listeners = fc.uniqueArray(
  fc
    .tuple(
      fc.record({
        address: name,
        connections: time,
        tls: fc.constantFrom('none' as const, 'server' as const, 'mutual' as const),
      }),
      optional('certificateExpiresAt', time),
    )
    .map(([own, expires]) => ({ ...own, ...expires })),
  { selector: ({ address }) => address, maxLength: 3 },
);
const ofWorker: fc.Arbitrary<Omit<WorkerState, 'worker'>> = fc
  .record({
    stage: fc.constantFrom('starting' as const, 'serving' as const, 'draining' as const),
    serves: fc.boolean(),
    storeUp: fc.option(fc.boolean()),
    storeFailing: fc.array(fc.constantFrom('OOM', 'WRONGPASS'), { maxLength: 1 }),
    audit,
    processes: fc.constant([]),
    listeners,
    deployments,
    errors,
  })
  // fast-check makes objects without a prototype, too.
  .map((state) => structuredClone(state));
const states = fc
  .array(ofWorker, { minLength: 1, maxLength: 5 })
  .map((list) => list.map((each, worker) => ({ worker, ...each })));

test('a listener has the connections of all workers, and the certificate that expires first', () => {
  const of = (connections: number, certificateExpiresAt: number) => ({
    listeners: [
      { address: 'unix:/a', connections: 1, tls: 'none' as const },
      { address: '10.0.0.1:8443', connections, tls: 'mutual' as const, certificateExpiresAt },
    ],
  });
  expect(merge(of(2, 9), of(3, 8)).listeners).toEqual([
    { address: 'unix:/a', connections: 2, tls: 'none' },
    { address: '10.0.0.1:8443', connections: 5, tls: 'mutual', certificateExpiresAt: 8 },
  ]);
});

test('Redis is reachable if it is for every worker, and null without it', () => {
  const storeUps = (...all: (boolean | null)[]) => merge(...all.map((storeUp) => ({ storeUp }))).storeUp;
  expect(storeUps(true, true)).toBe(true);
  expect(storeUps(true, false)).toBe(false);
  expect(storeUps(null, null)).toBeNull();
});

/** The state of a deployment that three workers tell alike. */
function threefold(state: DeploymentState): DeploymentState {
  const counts = Object.entries(state.connections).map(([key, count]) => [key, 3 * count] as const);
  return {
    ...state,
    connections: Object.fromEntries(counts) as unknown as DeploymentState['connections'],
    addresses: state.addresses.map((each) => ({ ...each, exchanges: 3 * each.exchanges })),
  };
}

describe('of any states', () => {
  test('one merged is itself', () => {
    fc.assert(
      fc.property(ofWorker, (each) => {
        const state = { worker: 1, ...each };
        expect(mergeStates([state])).toStrictEqual(state);
        expect(each.audit && mergeAudits([each.audit])).toStrictEqual(each.audit);
      }),
    );
  });

  test('the order does not matter, and nothing of them changes', () => {
    fc.assert(
      fc.property(
        states.chain((list) =>
          fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length })),
        ),
        ([list, shuffled]) => {
          const before = structuredClone(list);
          expect(mergeStates(shuffled)).toStrictEqual(mergeStates(list));
          expect(list).toStrictEqual(before);
        },
      ),
    );
  });

  test('a state twice changes counts only', () => {
    fc.assert(
      fc.property(ofWorker, (each) => {
        const merged = mergeStates([1, 2, 3].map((worker) => ({ worker, ...each })));
        const { audit: _, errors: __, ...rest } = each;
        expect(merged).toMatchObject({
          ...rest,
          listeners: each.listeners.map((one) => ({ ...one, connections: 3 * one.connections })),
          deployments: each.deployments.map(threefold),
        });
        expect(merged.deployments).toStrictEqual(each.deployments.map(threefold));
        expect(readiness({ ...WELL, ...merged })).toStrictEqual(readiness({ ...WELL, worker: 0, ...each }));
      }),
    );
  });

  test('they and their merged state come unchanged over a channel of JSON or structured clones', () => {
    fc.assert(
      fc.property(states, (list) => {
        const merged = mergeStates(list);
        expect(JSON.parse(JSON.stringify(merged))).toStrictEqual(merged);
        expect(mergeStates(JSON.parse(JSON.stringify(list)))).toStrictEqual(merged);
        expect(mergeStates(structuredClone(list))).toStrictEqual(merged);
      }),
    );
  });
});
