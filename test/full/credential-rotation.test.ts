import { describe, expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { credentialSet, setupFor, startGateway } from '../support/gateway.ts';
import { startArrivals } from '../support/load.ts';
import { startRedis } from '../support/redis.ts';
import { redisOptions, single } from '../support/redis-store.ts';
import { authors, type RunningScene, startScene } from '../support/scene.ts';
import { startUpstream } from '../support/scripted-upstream.ts';
import { until } from '../support/until.ts';

const OLD = 'demo-api-key';
const NEW = 'another-api-key';
const NAME = 'submissions';
const PER_SECOND = 100;
/** With more, a nonce could expire on a busy machine between its challenge and the response to it. */
const UNDER_WAY_AT_MOST = 40;

/** The upstream takes these passwords from now on. */
function accept({ simulator }: RunningScene, password: string, ...otherPasswords: string[]): void {
  simulator.set(NAME, { accounts: [{ username: 'demo-user', password, otherPasswords, sites: ['demo'] }] });
}

async function offer({ gateway }: RunningScene, password: string, next?: string): Promise<void> {
  gateway.plane.offer(await credentialSet(gateway, NAME, password, next));
}

function load(pair: RunningScene) {
  const send = async (): Promise<number> => {
    const answer = await pair.get(authors);
    await answer.arrayBuffer();
    return answer.status;
  };
  return startArrivals(PER_SECOND, send, UNDER_WAY_AT_MOST);
}

const versionOf = async ({ gateway }: RunningScene, password: string) =>
  (await credentialSet(gateway, NAME, password)).current.version;

const STATES = ['in-use', 'candidate', 'waiting', 'fallback', 'refused'];

/** The one state that a version is in. */
const stateOf = async (pair: RunningScene, password: string) => {
  const labels = { deployment: NAME, credential: NAME, version: await versionOf(pair, password) };
  const values = await Promise.all(
    STATES.map((state) => pair.gateway.metric('digest_gateway_credential_state', { ...labels, state })),
  );
  const states = STATES.filter((_, index) => values[index] === 1);
  return states.length === 1 ? states[0] : states;
};

const rotations = ({ gateway }: RunningScene, result: string) =>
  gateway.metric('digest_gateway_credential_rotations_total', { result });

async function readiness({
  gateway,
}: RunningScene): Promise<{ status: string; checks: { detail: string }[] }> {
  return (await (await fetch(`${gateway.control}/readyz`)).json()) as Awaited<ReturnType<typeof readiness>>;
}

/** Lets the load run on until so many more requests have their answer. */
async function answeredMore(running: ReturnType<typeof load>, count: number): Promise<void> {
  const wanted = running.answered + count;
  await until(() => running.answered >= wanted);
}

/** Where nonces do not live long, waits until one was refused for its age. */
async function untilExpired(
  { simulator }: RunningScene,
  { nonceLifetimeMs }: BehaviourChange,
): Promise<void> {
  if (nonceLifetimeMs !== undefined) await until(() => simulator.counts(NAME).refused['nonce-expired'] > 0);
}

const upstreams: [string, BehaviourChange][] = [
  ['nonces that everyone uses', {}],
  ['counted nonces, each nc once and in order', { qop: 'auth', nc: 'rising', refusedNcKillsNonce: true }],
  ['nonces that serve once and are never called stale', { oneTimeNonces: true, staleFlag: 'never' }],
  [
    'nonces that live four seconds, and are never called stale',
    { nonceLifetimeMs: 4_000, staleFlag: 'never' },
  ],
];

/** Answers take a while and overtake each other, so that many are under way at any moment. */
const startBusy = (behaviour: BehaviourChange): Promise<RunningScene> =>
  startScene({ behaviour: { ...behaviour, faults: [{ kind: 'delay', ms: 60 }] }, relay: true });

describe.each(upstreams)('%s', (title, behaviour) => {
  test('promotes the new version after one request if the upstream accepts both', async () => {
    const pair = await startBusy(behaviour);
    accept(pair, OLD, NEW);
    const running = load(pair);
    await answeredMore(running, 40);
    await untilExpired(pair, behaviour);
    await offer(pair, NEW);
    await until(async () => (await rotations(pair, 'promoted')) === 1);
    accept(pair, NEW, OLD);
    await answeredMore(running, 40);
    accept(pair, NEW);
    await answeredMore(running, 30);
    const report = await running.stop();
    expect(report.outcomes).toEqual({ 200: report.requests });
    expect([await stateOf(pair, NEW), await rotations(pair, 'refused')]).toEqual(['in-use', 0]);
    expect((await readiness(pair)).status).toBe('ok');
    tell(`both accepted, ${title}`, report);
  });

  test('continues a request with the new version when the upstream changes', async () => {
    const pair = await startBusy(behaviour);
    await offer(pair, OLD, NEW);
    const running = load(pair);
    await until(async () => (await rotations(pair, 'waiting')) === 1);
    expect([await stateOf(pair, OLD), await stateOf(pair, NEW)]).toEqual(['in-use', 'waiting']);
    await answeredMore(running, 60);
    await untilExpired(pair, behaviour);
    accept(pair, NEW);
    await answeredMore(running, 100);
    const report = await running.stop();
    expect(report.outcomes).toEqual({ 200: report.requests });
    expect([await stateOf(pair, NEW), await rotations(pair, 'promoted')]).toEqual(['in-use', 1]);
    tell(`unannounced, ${title}`, report);
  });
});

test('tries a version again at the change if the upstream did not know it before', async () => {
  const pair = await startScene();
  expect((await pair.get(authors)).status).toBe(200);
  await offer(pair, NEW);
  await until(async () => (await rotations(pair, 'refused')) === 1);
  accept(pair, NEW);
  expect((await pair.get(authors)).status).toBe(200);
  expect(await rotations(pair, 'promoted')).toBe(1);
  accept(pair, OLD);
  expect((await pair.get(authors)).status).toBe(502);
});

test('serves with next at the start if the upstream accepts that one', async () => {
  const pair = await startScene({ behaviour: { faults: [{ kind: 'delay', ms: 20 }] }, password: 'former' });
  await offer(pair, 'former', OLD);
  const answers = await Promise.all(Array.from({ length: 50 }, () => pair.get(authors)));
  expect(answers.map(({ status }) => status)).toEqual(Array(50).fill(200));
  expect(pair.simulator.counts(NAME).refused['wrong-response']).toBe(1);
});

test('has an attempt left for next at the start in spite of a shared nonce', async () => {
  const redis = await closedAtEnd(startRedis());
  const { simulator } = await startScene();
  const { origin } = simulator.deployments.submissions;
  const start = async (credentials: Record<string, unknown>) => {
    const upstream = { [NAME]: { origin, ca: simulator.ca } };
    const gateway = await startGateway(
      upstream,
      { credentials },
      { redis: redisOptions(single(redis.port)) },
    );
    closing.push(() => gateway.close());
    return gateway;
  };
  const earlier = await start({});
  expect((await fetch(`${earlier.origin}${authors}`)).status).toBe(200);
  simulator.set(NAME, { accounts: [{ username: 'demo-user', password: NEW, sites: ['demo'] }] });
  const password = { value: OLD };
  const next = { password: { value: NEW } };
  const later = await start({ [NAME]: { username: { value: 'demo-user' }, password, next } });
  expect(await later.metric('digest_gateway_nonce_age_seconds')).toBeGreaterThan(0);
  expect((await fetch(`${later.origin}${authors}`)).status).toBe(200);
  expect(simulator.counts(NAME).refused['wrong-response']).toBe(1);
});

test('learns nothing about nonces from another password at the upstream', async () => {
  let now = 0;
  const pair = await startScene({ clock: { now: () => now } });
  expect((await pair.get(authors)).status).toBe(200);
  now = 5_000;
  accept(pair, NEW);
  expect((await pair.get(authors)).status).toBe(502);
  await offer(pair, NEW);
  // The circuit of the refused one is over.
  now = 90_000;
  expect((await pair.get(authors)).status).toBe(200);
  expect(await pair.gateway.metric('digest_gateway_nonce_lifetime_seconds')).toBe(0);
});

test('reports a wrong candidate to the operator, never to a client', async () => {
  const pair = await startScene();
  expect((await pair.get(authors)).status).toBe(200);
  await offer(pair, 'wrong');
  const answers = await Promise.all(Array.from({ length: 50 }, () => pair.get(authors)));
  expect(answers.map(({ status }) => status)).toEqual(Array(50).fill(200));
  await until(async () => (await rotations(pair, 'refused')) === 1);
  expect(pair.simulator.counts(NAME).refused['wrong-response']).toBe(1);
  expect([await stateOf(pair, OLD), await stateOf(pair, 'wrong')]).toEqual(['in-use', 'refused']);
  const { status, checks } = await readiness(pair);
  expect([status, checks.map(({ detail }) => detail).join('')]).toEqual([
    'degraded',
    expect.stringMatching(/\bcredential submissions\b/),
  ]);
  const told = pair.gateway.logged.filter(({ result }) => result === 'refused');
  expect(told).toEqual([
    expect.objectContaining({
      level: 'error',
      credential: NAME,
      from: await versionOf(pair, OLD),
      to: await versionOf(pair, 'wrong'),
    }),
  ]);
  expect(JSON.stringify(pair.gateway.logged)).not.toContain('"wrong"');

  await offer(pair, 'wrong');
  expect((await pair.get(authors)).status).toBe(200);
  expect(pair.simulator.counts(NAME).refused['wrong-response']).toBe(1);
  await offer(pair, OLD);
  expect((await readiness(pair)).status).toBe('ok');
});

test('a next version waits for its day without an alarm, and is tried again after hours', async () => {
  let now = 0;
  const pair = await startScene({ clock: { now: () => now } });
  expect((await pair.get(authors)).status).toBe(200);
  await offer(pair, OLD, NEW);
  const refused = () => pair.simulator.counts(NAME).refused['wrong-response'];
  const serve = async (): Promise<void> => {
    for (let count = 0; count < 5; count += 1) expect((await pair.get(authors)).status).toBe(200);
  };
  await serve();
  await until(async () => (await rotations(pair, 'waiting')) === 1);
  expect(refused()).toBe(1);
  expect([await stateOf(pair, OLD), await stateOf(pair, NEW)]).toEqual(['in-use', 'waiting']);
  expect((await readiness(pair)).status).toBe('ok');
  expect(pair.gateway.logged.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([]);
  expect(await rotations(pair, 'refused')).toBe(0);
  // A reload that changes nothing of it asks nothing.
  await offer(pair, OLD, NEW);
  await serve();
  expect(refused()).toBe(1);
  accept(pair, OLD, NEW);
  now += 6 * 60 * 60_000;
  await until(async () => {
    await serve();
    return (await stateOf(pair, NEW)) === 'in-use';
  });
  expect(refused()).toBe(1);
});

test('a next version that waits is tried at once when it is made the current one', async () => {
  const pair = await startScene();
  expect((await pair.get(authors)).status).toBe(200);
  await offer(pair, OLD, NEW);
  await until(async () => (await stateOf(pair, NEW)) === 'waiting');
  accept(pair, OLD, NEW);
  await offer(pair, NEW);
  await until(async () => (await stateOf(pair, NEW)) === 'in-use');
  expect((await pair.get(authors)).status).toBe(200);
});

test('tries a next version at the operation that a reload names, if the path before serves everybody', async () => {
  let now = 0;
  const asked: string[] = [];
  await using service = await startUpstream(({ method, url, headers }, res) => {
    asked.push(`${method} ${url}`);
    if (url !== '/' && headers.authorization === undefined) {
      res.writeHead(401, { 'www-authenticate': `Digest realm="r", qop="auth", nonce="${asked.length}"` });
    }
    res.end();
  });
  const settings = { tls: { allowPlaintext: true }, health: { interval: 'off' } };
  const withSettings = (others: object) => ({
    [NAME]: { origin: service.origin, settings: { ...settings, ...others } },
  });
  const password = { password: { value: OLD }, next: { password: { value: NEW } } };
  const top = { credentials: { [NAME]: { username: { value: 'demo-user' }, ...password } } };
  await using gateway = await startGateway(withSettings({}), top, { clock: { now: () => now } });
  const state = async () => {
    expect((await fetch(`${gateway.origin}/items`, { method: 'POST' })).status).toBe(200);
    const { version } = await credentialSet(gateway, NAME, NEW).then(({ current }) => current);
    return gateway.metric('digest_gateway_credential_state', { version, state: 'in-use' });
  };
  await until(async () => (await state()) === 0 && asked.some((each) => each.endsWith(' /')));
  const operations = { read: { method: 'GET', path: '/items' }, write: { method: 'POST', path: '/items' } };
  await gateway.app.reload(() => setupFor(withSettings({ operations }), top, gateway.versions));
  await until(async () => {
    now += 1_000;
    return (await state()) === 1;
  });
  expect(asked).toContain('HEAD /items');
});

test('does not promote a candidate that Digest accepts and the service refuses', async () => {
  const pair = await startScene({
    behaviour: {
      accounts: [
        { username: 'demo-user', password: OLD, sites: ['demo'] },
        { username: 'demo-user-2', password: NEW, sites: ['other'] },
      ],
    },
  });
  expect((await pair.get(authors)).status).toBe(200);
  const set = await credentialSet(pair.gateway, NAME, OLD, NEW);
  if (set.next === undefined) throw new Error('no next');
  pair.gateway.plane.offer({ ...set, next: { ...set.next, username: 'demo-user-2' } });
  await until(async () => {
    const answer = await pair.get(authors);
    expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining('Lindqvist')]);
    return (await rotations(pair, 'waiting')) === 1;
  });
  expect(await stateOf(pair, OLD)).toBe('in-use');
});

test('no client notices that a trial meets errors, and it is repeated a second later', async () => {
  let now = 0;
  const pair = await startScene({ clock: { now: () => now } });
  expect((await pair.get(authors)).status).toBe(200);
  accept(pair, OLD, NEW);
  pair.simulator.set(NAME, { faults: [{ kind: 'status', status: 503, when: 'authenticated', times: 1 }] });
  await offer(pair, NEW);
  await until(async () => (await pair.gateway.metric('digest_gateway_upstream_attempts_total')) >= 4);
  expect([(await pair.get(authors)).status, await stateOf(pair, NEW)]).toEqual([200, 'candidate']);
  now += 1_000;
  await until(async () => {
    expect((await pair.get(authors)).status).toBe(200);
    return (await stateOf(pair, NEW)) === 'in-use';
  });
  expect(await stateOf(pair, OLD)).toBe('fallback');
});

function tell(
  what: string,
  { requests, outcomes, seconds, slowestMs }: Awaited<ReturnType<ReturnType<typeof load>['stop']>>,
): void {
  const failed = requests - (outcomes['200'] ?? 0);
  process.stdout.write(
    `${what}: ${requests} requests in ${seconds.toFixed(1)} s, ${failed} failed, slowest ${slowestMs.toFixed(0)} ms\n`,
  );
}
