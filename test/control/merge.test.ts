import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { mergeReports, type WorkerReport } from '../../src/control/merge.ts';
import {
  type AddressCheck,
  type Check,
  conditionWith,
  deploymentCheck,
  detailOf,
  type PauseCheck,
  type Readiness,
  readinessText,
  simpleCheck,
} from '../../src/control/readiness.ts';
import type { DeploymentFacts } from '../../src/control/snapshot.ts';
import type { AuditView, ErrorView } from '../../src/control/view.ts';
import { healthyDeployment, recentError } from './console-source.ts';

const NAME = 'submissions';
const well: AddressCheck = { address: 'u:443', health: 'healthy', age: 42, circuit: 'closed', reason: '' };
const intact: AuditView = {
  records: 3,
  failures: 0,
  chain: { state: 'intact', detail: 'verified at the start.' },
};

interface Change {
  readonly status?: Readiness['status'];
  readonly checks?: readonly Check[];
  readonly facts?: Partial<DeploymentFacts>;
  readonly errors?: readonly ErrorView[];
  readonly audit?: AuditView | null;
  readonly storeUp?: boolean | null;
}

/** The report of a worker with nothing wrong but what a test changes. */
function reportOf(
  worker: number,
  { status = 'ready', checks = [], facts = {}, errors = [], audit = intact, storeUp = null }: Change = {},
): WorkerReport {
  const readiness = { status, checks };
  const deployments = [{ ...healthyDeployment(NAME), ...facts }];
  return { worker, readiness, condition: conditionWith(readiness, deployments), errors, audit, storeUp };
}

const merge = (...changes: Change[]) => mergeReports(changes.map((change, index) => reportOf(index, change)));
const factsOf = (...facts: Partial<DeploymentFacts>[]) =>
  merge(...facts.map((each) => ({ facts: each }))).condition.deployments[0];

const address = (change: Partial<AddressCheck>) =>
  deploymentCheck(NAME, [], { egressPresent: true, addresses: [{ ...well, ...change }], pauses: [] });
const pause = (change: Partial<PauseCheck>) =>
  deploymentCheck(NAME, [], {
    egressPresent: true,
    addresses: [],
    pauses: [{ credential: '', outcome: 'throttled', until: 0, ...change }],
  });

describe('the readiness of workers', () => {
  test.each([
    [['ready', 'ready'], 'ready'],
    [['ready', 'degraded'], 'degraded'],
    [['ready', 'unready'], 'degraded'],
    [['degraded', 'unready'], 'degraded'],
    [['unready', 'unready'], 'unready'],
    [[], 'unready'],
  ] as const)('%j is %s', (statuses, status) => {
    const { readiness, condition } = merge(...statuses.map((each) => ({ status: each })));
    expect(readiness.status).toBe(status);
    expect(condition.served).toBe(status !== 'unready');
  });

  test('has each check once, ok if it is ok in all, with each sentence once', () => {
    const store = simpleCheck('store', 'Redis is unreachable');
    const restart = { ...simpleCheck('configuration'), warnings: ['a restart is needed'] };
    const { readiness, condition } = merge(
      { status: 'ready', checks: [simpleCheck('store'), restart] },
      { status: 'degraded', checks: [store, restart, simpleCheck('audit', 'the disk is full')] },
      { status: 'degraded', checks: [store, restart, simpleCheck('audit', 'the folder is gone')] },
    );
    expect(readinessText(readiness)).toBe(
      [
        'wrong  store: Redis is unreachable',
        'ok     configuration',
        '         a restart is needed',
        'wrong  audit: the disk is full; the folder is gone',
        'degraded\n',
      ].join('\n'),
    );
    expect(condition).toMatchObject({
      failedChecks: ['Redis is unreachable', 'the disk is full; the folder is gone'],
      warnings: ['a restart is needed'],
      served: true,
    });
  });

  test.each([
    [
      [{ health: 'failing', age: 841, reason: 'refused' }, { age: 900 }],
      'u:443 has been failing for 14 min: refused',
    ],
    [
      [
        { health: 'failing', age: 7, reason: 'refused' },
        { health: 'failing', age: 9.5, reason: 'timeout' },
      ],
      'u:443 has been failing for 9 s: timeout',
    ],
    [
      [
        { health: 'failing', age: 3, circuit: 'half-open', reason: 'refused' },
        { health: 'failing', age: 9.5, circuit: 'open', reason: 'timeout' },
      ],
      'u:443 has been failing for 9 s (circuit open): timeout',
    ],
    [[{ age: 3 }, { age: 5 }], ''],
  ] as const)('with an address as in %j says %j', (addresses, detail) => {
    const { readiness, condition } = merge(...addresses.map((each) => ({ checks: [address(each)] })));
    const [check] = readiness.checks;
    expect(check && detailOf(check)).toBe(detail);
    expect(check?.ok).toBe(detail === '');
    expect(check?.upstream?.addresses).toHaveLength(1);
    expect(condition.deployments[0]?.error).toBe(detail);
  });

  test('tells of an egress address that a worker does not have, not of what follows from it', () => {
    const addresses: AddressCheck[] = [{ ...well, health: 'failing', reason: 'no such address' }];
    const missing = deploymentCheck(NAME, [], { egressPresent: false, addresses, pauses: [] });
    const { readiness } = merge({ checks: [address({})] }, { checks: [missing] });
    expect(readiness.checks.map(({ ok }) => ok)).toEqual([false]);
    expect(readiness.checks.map(detailOf)).toEqual([
      'the address of egress.localAddress is not on this host: add it to an interface',
    ]);
  });

  test('tells a pause once, with the latest end', () => {
    const changes = [{ until: 5_000 }, { until: 9_000 }, { until: 7_000, credential: 'a' }];
    const { readiness } = merge(...changes.map((change) => ({ checks: [pause(change)] })));
    expect(readiness.checks.map(detailOf)).toEqual([
      'paused until 1970-01-01T00:00:09.000Z, by outcome throttled; ' +
        'requests with the credential a are paused until 1970-01-01T00:00:07.000Z, by outcome throttled',
    ]);
  });
});

describe('the facts of a deployment', () => {
  test('have the strictest policy, the youngest nonce and the shortest lifetime', () => {
    const facts = factsOf(
      { nonce: { policy: 'exclusive', age: 3 } },
      { nonce: { policy: 'shared', age: 2, lifetime: 300 } },
      { nonce: { policy: 'single-use', lifetime: 200 } },
    );
    expect(facts?.nonce).toStrictEqual({ policy: 'single-use', age: 2, lifetime: 200 });
  });

  test('serve if one worker does, with the certificate that expires first', () => {
    expect(factsOf({ serving: false }, { serving: true })?.serving).toBe(true);
    expect(factsOf({ serving: false }, { serving: false })?.serving).toBe(false);
    const dates = factsOf({ certificateExpiresAt: 7 }, { certificateExpiresAt: 5 });
    expect(dates?.certificateExpiresAt).toBe(5);
  });

  test('add up connections, and have the chain that expires first', () => {
    const chain = (expiresAt: number) => [{ subject: 'CN=a', issuer: 'CN=b', validFrom: 0, expiresAt }];
    const ofOne = { open: 3, busy: 2, queued: 1, limit: 64 };
    const merged = factsOf(
      { connections: ofOne, tls: { protocol: 'TLSv1.3', chain: chain(20) } },
      { connections: ofOne, tls: { protocol: 'TLSv1.2', chain: chain(10) } },
    );
    expect(merged?.connections).toEqual({ open: 6, busy: 4, queued: 2, limit: 128 });
    expect(merged?.tls).toEqual({ protocol: 'TLSv1.2', chain: chain(10) });
  });

  test('have the worst state of each credential version and address', () => {
    const inUse = { name: 'c', version: '1', state: 'in use', refused: false, changedAt: 5 } as const;
    const { reason: _, ...healthy } = well;
    const facts = factsOf(
      { credentials: [inUse], addresses: [healthy] },
      {
        credentials: [
          { ...inUse, state: 'refused', refused: true },
          { ...inUse, version: '2', state: 'waits to be tried' },
        ],
        addresses: [
          { ...healthy, health: 'failing', age: 1 },
          { ...healthy, address: 'v:443' },
        ],
      },
    );
    expect(facts?.credentials).toStrictEqual([
      { ...inUse, state: 'refused', refused: true },
      { ...inUse, version: '2', state: 'waits to be tried' },
    ]);
    expect(facts?.addresses).toStrictEqual([
      { ...healthy, health: 'failing', age: 1 },
      { ...healthy, address: 'v:443' },
    ]);
  });

  test('are of each deployment that a worker has, in their order', () => {
    const reports = [reportOf(1), reportOf(0, { facts: { name: 'abstracts' } })];
    expect(mergeReports(reports).condition.deployments.map(({ name }) => name)).toEqual(['abstracts', NAME]);
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

describe('audit logs', () => {
  test('add up, fail if one does, and have the worst chain', () => {
    const altered: AuditView = {
      records: 4,
      failures: 1,
      failing: 'the disk is full',
      chain: { state: 'altered', detail: 'line 7 was altered.', checkedAt: 9 },
    };
    expect(
      merge({}, { audit: altered }, { audit: { ...altered, chain: { ...altered.chain, checkedAt: 8 } } })
        .audit,
    ).toStrictEqual({
      records: 11,
      failures: 2,
      failing: 'the disk is full',
      chain: { state: 'altered', detail: 'line 7 was altered.', checkedAt: 8 },
    });
    expect(merge({ audit: null }, { audit: null }).audit).toBeNull();
  });
});

const name = fc.constantFrom('a', 'b', 'c');
const sentences = fc.uniqueArray(fc.constantFrom('one', 'two', 'three'), { maxLength: 3 });
const time = fc.nat({ max: 20 });
const optional = <Value>(key: string, value: fc.Arbitrary<Value>) =>
  fc.oneof(
    fc.constant({}),
    value.map((known) => ({ [key]: known })),
  );
const addressChecks = fc.uniqueArray(
  fc.record({
    address: name,
    health: fc.constantFrom('unknown' as const, 'healthy' as const, 'failing' as const),
    age: time,
    circuit: fc.constantFrom('closed' as const, 'open' as const, 'half-open' as const),
    reason: name,
  }),
  { selector: (each) => each.address, maxLength: 3 },
);
const pauses = fc.uniqueArray(fc.record({ credential: name, outcome: name, until: time }), {
  selector: ({ credential, outcome }) => `${credential} ${outcome}`,
  maxLength: 3,
});
const checks: fc.Arbitrary<Check[]> = fc.uniqueArray(
  fc.oneof(
    fc.tuple(name, sentences).map(([own, warnings]) => ({ ...simpleCheck(own), warnings })),
    fc
      .tuple(name, sentences)
      .map(([own, errors]) => ({ ...simpleCheck(own), ok: errors.length === 0, errors })),
    fc
      .tuple(name, sentences, fc.boolean(), addressChecks, pauses)
      .map(([own, errors, egressPresent, addresses, paused]) =>
        deploymentCheck(own, errors, { egressPresent, addresses, pauses: paused }),
      ),
  ),
  { selector: (check) => check.name, maxLength: 5 },
);
const credentials = fc.uniqueArray(
  fc
    .tuple(
      fc.record({
        name,
        version: name,
        state: fc.constantFrom('in use' as const, 'refused' as const, 'kept as fallback' as const),
        refused: fc.boolean(),
      }),
      optional('changedAt', time),
      optional('role', fc.constantFrom('current' as const, 'next' as const)),
    )
    .map(([view, changed, role]) => ({ ...view, ...changed, ...role })),
  { selector: (each) => `${each.name} ${each.version}`, maxLength: 3 },
);
const nonce = fc
  .tuple(
    fc.constantFrom('shared' as const, 'exclusive' as const, 'single-use' as const),
    optional('age', time),
    optional('lifetime', time),
  )
  .map(([policy, age, lifetime]) => ({ policy, ...age, ...lifetime }));
const certificate = fc.record({ subject: name, issuer: name, validFrom: time, expiresAt: time });
const facts = fc.uniqueArray(
  fc
    .tuple(
      fc.record({
        name,
        origin: name,
        serving: fc.boolean(),
        connections: fc.record({ open: time, busy: time, queued: time, limit: time }),
        nonce,
        credentials,
        outcomes: sentences,
      }),
      addressChecks,
      optional('certificateExpiresAt', time),
      optional('tls', fc.record({ protocol: name, chain: fc.array(certificate, { maxLength: 2 }) })),
    )
    .map(([own, addresses, expires, tls]) => ({
      ...own,
      ...tls,
      addresses: addresses.map(({ reason: _, ...view }) => view),
      ...expires,
    })),
  { selector: (each) => each.name, maxLength: 3 },
);
const errors = fc
  .uniqueArray(fc.record({ deployment: name, code: name, requestId: name, count: time }), {
    selector: ({ deployment, code }) => `${deployment} ${code}`,
    maxLength: 5,
  })
  .map((list) =>
    // The newest first, each at a time of its own.
    list.map((error, index) => ({ ...error, title: error.code, advice: '', lastAt: 100 - index })),
  );
const audit = fc.option(
  fc
    .tuple(
      fc.record({ records: time, failures: time }),
      optional('failing', name),
      fc.record({
        state: fc.constantFrom('intact' as const, 'altered' as const, 'checking' as const),
        detail: name,
      }),
      optional('checkedAt', time),
    )
    .map(([counts, failing, chain, checked]) => ({ ...counts, ...failing, chain: { ...chain, ...checked } })),
);
const report: fc.Arbitrary<Omit<WorkerReport, 'worker'>> = fc
  .tuple(
    fc.constantFrom('ready' as const, 'degraded' as const, 'unready' as const),
    checks,
    facts,
    errors,
    audit,
    fc.option(fc.boolean()),
  )
  .map(([status, ofWorker, deployments, recent, view, storeUp]) => {
    const readiness = { status, checks: ofWorker };
    const condition = conditionWith(readiness, deployments);
    // fast-check makes objects without a prototype, too.
    return structuredClone({ readiness, condition, errors: recent, audit: view, storeUp });
  });
const reports = fc
  .array(report, { minLength: 1, maxLength: 5 })
  .map((list) => list.map((each, worker) => ({ worker, ...each })));

test('Redis is reachable if it is for every worker, and null without it', () => {
  const storeUps = (...all: (boolean | null)[]) => merge(...all.map((storeUp) => ({ storeUp }))).storeUp;
  expect(storeUps(true, true)).toBe(true);
  expect(storeUps(true, false)).toBe(false);
  expect(storeUps(null, null)).toBeNull();
});

/** The facts of a deployment that three workers tell alike. */
function threefold(facts: DeploymentFacts): DeploymentFacts {
  const { open, busy, queued, limit } = facts.connections;
  return { ...facts, connections: { open: 3 * open, busy: 3 * busy, queued: 3 * queued, limit: 3 * limit } };
}

describe('of any reports', () => {
  test('one merged is itself', () => {
    fc.assert(
      fc.property(report, (each) => expect(mergeReports([{ worker: 1, ...each }])).toStrictEqual(each)),
    );
  });

  test('the order does not matter, and nothing of them changes', () => {
    fc.assert(
      fc.property(
        reports.chain((list) =>
          fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length })),
        ),
        ([list, shuffled]) => {
          const before = structuredClone(list);
          expect(mergeReports(shuffled)).toStrictEqual(mergeReports(list));
          expect(list).toStrictEqual(before);
        },
      ),
    );
  });

  test('a report twice changes counts only', () => {
    fc.assert(
      fc.property(report, (each) => {
        const { readiness, condition } = mergeReports([1, 2, 3].map((worker) => ({ worker, ...each })));
        expect({ readiness, condition }).toStrictEqual({
          readiness: each.readiness,
          condition: { ...each.condition, deployments: each.condition.deployments.map(threefold) },
        });
      }),
    );
  });

  test('they and their merged report come unchanged over a channel of JSON or structured clones', () => {
    fc.assert(
      fc.property(reports, (list) => {
        const merged = mergeReports(list);
        expect(JSON.parse(JSON.stringify(merged))).toStrictEqual(merged);
        expect(mergeReports(JSON.parse(JSON.stringify(list)))).toStrictEqual(merged);
        expect(mergeReports(structuredClone(list))).toStrictEqual(merged);
      }),
    );
  });
});
