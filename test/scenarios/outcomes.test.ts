import { writeFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { stringify } from 'yaml';
import type { BehaviourChange, Fault } from '../../src/simulator/settings.ts';
import { Tracing } from '../../src/tracing/tracing.ts';
import { AUDIT_KEY, auditOptions, recordsIn, useFolders } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { credentialSet, type RunningGateway, setupFor, startGateway } from '../support/gateway.ts';
import { gateway as program } from '../support/program.ts';
import { recordTraces } from '../support/recorded-traces.ts';
import { authors, problemOf, type RunningScene, type SceneOptions, startScene } from '../support/scene.ts';
import { startUpstream } from '../support/scripted-upstream.ts';
import { until } from '../support/until.ts';

const folder = useFolders();

const NAME = 'submissions';
const THROTTLED = { name: 'throttled', status: [400, 429], bodyContains: 'Too many calls' };
const MAINTENANCE = { name: 'maintenance', status: 503 };
const THROTTLE: Extract<Fault, { kind: 'throttle' }> = {
  kind: 'throttle',
  status: 400,
  retryAfterSeconds: 60,
  when: 'authenticated',
};

/** A gateway whose deployment has these outcomes, before the simulator. */
function startWith(
  outcomes: readonly object[],
  behaviour: BehaviourChange = {},
  options: SceneOptions = {},
): Promise<RunningScene> {
  return startScene({ behaviour, ...options, settings: { outcomes, ...options.settings } });
}

/** A clock that a test moves. */
function manualClock() {
  const clock = { at: 0, now: () => clock.at };
  return clock;
}

/** Status, code and Retry-After of the response to one request. */
async function askOnce(
  { get }: Pick<RunningScene, 'get'>,
  target = authors,
): Promise<[number, string, string | null]> {
  const response = await get(target);
  const own = response.headers.get('content-type') === 'application/problem+json';
  const code = own ? (await problemOf(response)).code : (await response.text()) && '';
  return [response.status, code, response.headers.get('retry-after')];
}

const PAUSED = (seconds: number) => [503, 'upstream-paused', String(seconds)];
const OK = [200, '', null];

/** How many requests reached the upstream. */
const sent = ({ simulator }: RunningScene): number => simulator.counts(NAME).requests;

const paused = ({ metric }: RunningGateway): Promise<number> =>
  metric('digest_gateway_paused', { deployment: NAME });

async function checkOf({
  gateway,
}: RunningScene): Promise<{ status: string; ok: boolean; detail: string } | undefined> {
  const response = await fetch(`${gateway.control}/readyz`);
  expect(response.status).toBe(200);
  const { status, checks } = (await response.json()) as {
    status: string;
    checks: { name: string; ok: boolean; detail: string }[];
  };
  const check = checks.find(({ name }) => name === `deployment:${NAME}`);
  return check && { status, ok: check.ok, detail: check.detail };
}

describe('the outcome of a response', () => {
  test('is in metrics, log, trace and audit log, and is found by audit search', async () => {
    const directory = await folder();
    const { tracer, spans } = recordTraces();
    const pair = await startWith(
      [THROTTLED, MAINTENANCE],
      {},
      {
        audit: auditOptions(join(directory, 'log')),
        tracing: new Tracing(tracer),
        top: { log: { requests: true } },
      },
    );
    const { gateway, simulator, get } = pair;
    const count = (outcome: string) =>
      gateway.metric('digest_gateway_outcomes_total', { deployment: NAME, outcome });
    expect(await (await fetch(`${gateway.control}/metrics`)).text()).toContain(
      'digest_gateway_outcomes_total{deployment="submissions",outcome="throttled"} 0',
    );
    expect(await askOnce(pair)).toEqual(OK);
    simulator.set(NAME, { faults: [THROTTLE] });
    const response = await get(authors, { headers: { 'x-request-id': 'throttled-one' } });
    expect([response.status, await response.text()]).toEqual([
      400,
      expect.stringContaining('Too many calls'),
    ]);
    simulator.set(NAME, { faults: [{ kind: 'status', status: 502 }] });
    expect((await get(authors)).status).toBe(502);
    expect([await count('throttled'), await count('maintenance'), await paused(gateway)]).toEqual([1, 0, 0]);

    const lines = gateway.logged.filter(({ msg }) => msg === 'request');
    expect(lines.map(({ status, outcome }) => [status, outcome])).toEqual([
      [200, undefined],
      [400, 'throttled'],
      [502, undefined],
    ]);
    const requests = spans.filter(({ name }) => name === 'request');
    expect(requests.map(({ attributes }) => attributes['digest_gateway.outcome'])).toEqual([
      undefined,
      'throttled',
      undefined,
    ]);

    await gateway.close();
    const records = await recordsIn(join(directory, 'log'));
    expect(
      records.filter(({ bytes }) => bytes !== undefined).map(({ status, outcome }) => [status, outcome]),
    ).toEqual([
      [200, undefined],
      [400, 'throttled'],
      [502, undefined],
    ]);
    const found = await audit(directory, 'search', '--outcome', 'throttled', '--json');
    expect(
      found
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toMatchObject([{ requestId: 'throttled-one', outcome: { status: 400, outcome: 'throttled' } }]);
    const table = await audit(directory, 'search', '--status', '400-599');
    expect(
      table
        .trimEnd()
        .split('\n')
        .map((line) => line.split(/ +/).slice(-2)[0]),
    ).toEqual(['OUTCOME', 'throttled', '-']);
    const absent = await audited(directory, 'search', '--outcome', 'maintenance', '--json');
    expect(absent).toMatchObject({
      status: 0,
      stdout: '',
      stderr: expect.stringMatching(/^nothing found: /),
    });
    expect(await audit(directory, 'tail')).toMatch(/ access {2}400 .* \(throttled\) \d+ B in /);
  });

  /** The output of a command of `audit` that prints nothing else. */
  async function audit(directory: string, command: string, ...options: string[]): Promise<string> {
    const { status, stdout, stderr } = await audited(directory, command, ...options);
    expect([status, stderr]).toEqual([0, '']);
    return stdout;
  }

  /** Runs a command of `audit` for the log in this folder. */
  async function audited(directory: string, command: string, ...options: string[]) {
    const config = join(directory, 'gateway.yaml');
    await writeFile(join(directory, 'key'), AUDIT_KEY, { mode: 0o600 });
    const section = { directory: 'log', keyFile: 'key' };
    const credentials = { a: { username: { env: 'U' }, password: { env: 'P' } } };
    const deployments = { d: { baseUrl: 'https://a.example', match: { pathPrefix: '/' }, credential: 'a' } };
    await writeFile(config, stringify({ anonymous: true, credentials, deployments, audit: section }));
    return program(['audit', command, '--config', config, ...options]);
  }

  test('does not hold the response back: its first bytes arrive before its last ones are sent', async () => {
    let upstream: ServerResponse | undefined;
    const { origin, close } = await startUpstream((_request, response) => {
      upstream = response;
      response.writeHead(400).write('first part, ');
    });
    closing.push(close);
    const gateway = await startGateway({
      [NAME]: { origin, settings: { tls: { allowPlaintext: true }, outcomes: [THROTTLED] } },
    });
    closing.push(gateway.close);
    const response = await fetch(`${gateway.origin}/x`);
    const reader = response.body?.getReader();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('first part, ');
    upstream?.write('Too many ');
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('Too many ');
    upstream?.end('calls');
    while ((await reader?.read())?.done === false);
    await until(
      async () => (await gateway.metric('digest_gateway_outcomes_total', { outcome: 'throttled' })) === 1,
    );
  });

  test('is that of the response that the client gets, not of one that a trial of a credential withheld', async () => {
    const outcomes = [{ name: 'refused', status: [500], pause: '10s' }];
    const accounts = [
      { username: 'demo-user', password: 'demo-api-key', sites: ['demo'] },
      { username: 'demo-user-2', password: 'another', sites: ['other'] },
    ];
    const pair = await startWith(outcomes, { accounts });
    expect(await askOnce(pair)).toEqual(OK);
    const set = await credentialSet(pair.gateway, NAME, 'demo-api-key', 'another');
    if (set.next === undefined) throw new Error('no next');
    pair.gateway.plane.offer({ ...set, next: { ...set.next, username: 'demo-user-2' } });
    expect([await askOnce(pair), await askOnce(pair)]).toEqual([OK, OK]);
    const { metric } = pair.gateway;
    expect(await metric('digest_gateway_credential_rotations_total', { result: 'waiting' })).toBe(1);
    expect(await metric('digest_gateway_outcomes_total', { outcome: 'refused' })).toBe(0);
  });
});

describe('a pause', () => {
  test('answers 503 upstream-paused and sends nothing until it is over', async () => {
    const clock = manualClock();
    const pair = await startWith([{ ...THROTTLED, pause: '5s' }], {}, { clock });
    const { gateway, simulator } = pair;
    expect(await askOnce(pair)).toEqual(OK);
    expect([await checkOf(pair), await paused(gateway)]).toEqual([{ status: 'ok', ok: true, detail: '' }, 0]);
    simulator.set(NAME, { faults: [{ ...THROTTLE, times: 1 }] });
    expect(await askOnce(pair)).toEqual([400, '', null]);
    const before = sent(pair);
    for (const [at, seconds] of [
      [0, 5],
      [1, 5],
      [1000, 4],
      [4999, 1],
    ] as const) {
      clock.at = at;
      expect(await askOnce(pair)).toEqual(PAUSED(seconds));
    }
    expect([sent(pair), await paused(gateway)]).toEqual([before, 1]);
    expect(await checkOf(pair)).toEqual({
      status: 'degraded',
      ok: false,
      detail: expect.stringMatching(/^paused until \d{4}-\d\d-\d\dT[\d:.]+Z, by outcome throttled$/),
    });
    expect(gateway.logged.filter(({ outcome }) => outcome === 'throttled')).toEqual([
      expect.objectContaining({ level: 'warn', deployment: NAME, ms: 5000 }),
    ]);
    clock.at = 5000;
    expect([await askOnce(pair), sent(pair)]).toEqual([OK, before + 1]);
    expect([await checkOf(pair), await paused(gateway)]).toEqual([{ status: 'ok', ok: true, detail: '' }, 0]);
    const told = gateway.logged.filter(({ outcome }) => outcome === 'throttled');
    expect(told.map(({ level }) => level)).toEqual(['warn', 'info']);
  });

  test('refuses requests that wait for a connection when it begins', async () => {
    const held: ServerResponse[] = [];
    const upstream = await startUpstream((request, response) => {
      const challenge = { 'www-authenticate': 'Digest realm="r", nonce="n"' };
      if (request.headers.authorization === undefined) response.writeHead(401, challenge).end();
      else if (request.url === '/ok') response.end('ok');
      else held.push(response);
    });
    closing.push(upstream.close);
    const settings = {
      tls: { allowPlaintext: true },
      connections: 1,
      outcomes: [{ ...THROTTLED, pause: '1h' }],
    };
    const gateway = await startGateway({ [NAME]: { origin: upstream.origin, settings } });
    closing.push(gateway.close);
    const ask = (target = '/x') => askOnce({ get: (path) => fetch(`${gateway.origin}${path}`) }, target);
    // Else the others would wait for what the first one shows of the credential.
    expect(await ask('/ok')).toEqual(OK);
    const first = ask();
    await until(() => held.length === 1);
    const waiting = [ask(), ask(), ask()];
    const pending = { deployment: NAME, state: 'pending' };
    await until(async () => (await gateway.metric('digest_gateway_upstream_connections', pending)) === 3);
    held[0]?.writeHead(400).end('Too many calls');
    expect(await first).toEqual([400, '', null]);
    const codes = (await Promise.all(waiting)).map(([status, code]) => `${status} ${code}`);
    expect([codes, held.length]).toEqual([Array(3).fill('503 upstream-paused'), 1]);
  });

  test('takes as long as the Retry-After of the response says, if it has one', async () => {
    const clock = manualClock();
    const pair = await startWith(
      [{ ...THROTTLED, pause: '5s' }],
      { faults: [{ ...THROTTLE, status: 429, retryAfterSeconds: 60, times: 1 }] },
      { clock },
    );
    expect(await askOnce(pair)).toEqual([429, '', '60']);
    const before = sent(pair);
    clock.at = 59_001;
    expect([await askOnce(pair), sent(pair)]).toEqual([PAUSED(1), before]);
    clock.at = 60_000;
    expect(await askOnce(pair)).toEqual(OK);
  });

  test('takes one hour at most', async () => {
    const pair = await startWith(
      [{ ...THROTTLED, pause: '5s' }],
      { faults: [{ ...THROTTLE, status: 429, retryAfterSeconds: 86_400 }] },
      { clock: manualClock() },
    );
    expect(await askOnce(pair)).toEqual([429, '', '86400']);
    expect(await askOnce(pair)).toEqual(PAUSED(3600));
  });

  test('with the scope credential concerns requests with that credential only', async () => {
    const secret = { username: { value: 'demo-user' }, password: { value: 'demo-api-key' } };
    const pair = await startWith(
      [{ ...THROTTLED, pause: '5s', scope: 'credential' }],
      {
        accounts: [{ username: 'demo-user', password: 'demo-api-key', sites: ['demo', 'other'] }],
      },
      {
        clock: manualClock(),
        credentials: { one: secret, two: secret },
        settings: {
          credential: undefined,
          siteParameter: 'site_name',
          sites: { demo: { credential: 'one' }, other: { credential: 'two' } },
        },
      },
    );
    const other = authors.replace('site_name=demo', 'site_name=other');
    expect([await askOnce(pair), await askOnce(pair, other)]).toEqual([OK, OK]);
    pair.simulator.set(NAME, { faults: [{ ...THROTTLE, times: 1 }] });
    expect(await askOnce(pair)).toEqual([400, '', null]);
    const before = sent(pair);
    expect([await askOnce(pair), sent(pair)]).toEqual([PAUSED(5), before]);
    expect([await askOnce(pair, other), sent(pair)]).toEqual([OK, before + 1]);
    expect(await checkOf(pair)).toMatchObject({
      status: 'degraded',
      detail: expect.stringMatching(/\bcredential one\b.*\boutcome throttled\b/),
    });
    expect(await paused(pair.gateway)).toBe(1);
  });

  test('stays over a reload, unless it changes the outcomes of the deployment', async () => {
    const outcomes = [{ ...THROTTLED, pause: '5s' }];
    const pair = await startWith(outcomes, {}, { clock: manualClock() });
    const { gateway, simulator } = pair;
    const { origin } = simulator.deployments.submissions;
    const reload = async (settings: Record<string, unknown>): Promise<void> => {
      const setup = await setupFor({ [NAME]: { origin, ca: simulator.ca, settings } });
      await gateway.app.reload(() => Promise.resolve(setup));
    };
    expect(await askOnce(pair)).toEqual(OK);
    simulator.set(NAME, { faults: [{ ...THROTTLE, times: 1 }] });
    expect(await askOnce(pair)).toEqual([400, '', null]);
    await reload({ outcomes });
    expect(await askOnce(pair)).toEqual(PAUSED(5));
    await reload({ outcomes, connections: 7 });
    expect(await askOnce(pair)).toEqual(PAUSED(5));
    await reload({ outcomes: [THROTTLED] });
    expect(await askOnce(pair)).toEqual(OK);
  });
});
