import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, describe, expect, test } from '@jest/globals';
import { algorithmNames, type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { type RunningGateway, startGateway, type TestDeployment } from '../support/gateway.ts';
import { echoOf, type RealServer, startApache, startLighttpd } from '../support/real-server.ts';
import { repository } from '../support/repository.ts';
import { type ServerScene, startServerScene } from '../support/server-scene.ts';
import { startSimulator } from '../support/simulator.ts';
import { proxyAccount, startSquid } from '../support/squid.ts';
import { until } from '../support/until.ts';
import {
  type ExpiredRow,
  interoperabilityPage,
  type Observed,
  type ProxyRow,
  type ServerRow,
  type SimulatedRow,
} from './interoperability-page.ts';
import { startCivetWeb, startMicrohttpd } from './servers/c-servers.ts';
import { startGo } from './servers/go.ts';
import { startJetty } from './servers/jetty.ts';
import {
  startCherryPy,
  startFlask,
  startLibsoup,
  startPaste,
  startTwisted,
} from './servers/python-servers.ts';
import { startRack, startRails, startWebrick } from './servers/ruby-servers.ts';
import { startSabre } from './servers/sabre.ts';
import { startSquidAccelerator } from './servers/squid-accelerator.ts';
import { startTomcat } from './servers/tomcat.ts';

/** Behaviours of servers as the simulator has them, but for algorithm and qop. */
const serverProfiles: Readonly<Record<string, BehaviourChange>> = {
  'Spring Security': { staleFlag: 'after-digest' },
  Tomcat: {
    opaque: true,
    requireMatchingOpaque: true,
    bindNonceToAddress: true,
    nc: 'window',
    staleFlag: 'after-digest',
  },
  Jetty: { nc: 'window', staleFlag: 'always' },
  'Apache httpd': {
    requireMatchingOpaque: true,
    uriMismatchStatus: 400,
    rspauth: 'right',
    staleFlag: 'after-digest',
  },
  'Apache httpd, one-time nonces': {
    requireMatchingOpaque: true,
    oneTimeNonces: true,
    nextnonce: 'always',
    rspauth: 'right',
  },
  lighttpd: { uriMismatchStatus: 400, staleFlag: 'always' },
  'nginx module': { maxNonceUses: 20, nc: 'window', rspauth: 'right' },
  Squid: { nc: 'rising', refusedNcKillsNonce: true, maxNonceUses: 50 },
  'Flask-HTTPAuth': { opaque: true, requireMatchingOpaque: true, requireCookie: true, staleFlag: 'never' },
  'one-time nonces, next not named': { oneTimeNonces: true },
};

const FILE = join(repository, 'docs/security/interoperability.md');
/** Set by "npm run docs:interop": the page is written, and not compared. */
const writes = process.env['INTEROPERABILITY'] === 'write';
const page = writes ? '' : readFileSync(FILE, 'utf8');
/** Rows by their test: one that runs again replaces its own. */
const servers = new Map<string, ServerRow>();
const expired = new Map<string, ExpiredRow>();
const proxies = new Map<string, ProxyRow>();
const simulated = new Map<string, SimulatedRow[]>();

const observedPage = (): string =>
  interoperabilityPage({
    servers: [...servers.values()],
    expired: [...expired.values()],
    proxies: [...proxies.values()],
    simulated: [...simulated.values()].flat(),
  });

const sortedLines = (text: string): string[] => text.split('\n').toSorted();

afterAll(() => {
  if (writes) writeFileSync(FILE, observedPage());
  // The page has no other rows. Tests may have run in any order.
  else expect(sortedLines(page)).toEqual(sortedLines(observedPage()));
});

/** Compares rows with the page: the whole line of each must be there. */
function expectOnPage(rows: Partial<Observed>): void {
  if (writes) return;
  const lines = interoperabilityPage({ servers: [], expired: [], proxies: [], simulated: [], ...rows }).split(
    '\n',
  );
  const known = new Set(page.split('\n'));
  expect(lines.filter((line) => line.startsWith('| ') && !known.has(line))).toEqual([]);
}

/** The reuse policies that a gateway has come to, by deployment. */
async function policiesOf(gateway: RunningGateway): Promise<Map<string, string>> {
  const text = await (await fetch(`${gateway.control}/metrics`)).text();
  const current = text.matchAll(/^digest_gateway_nonce_policy\{deployment="([^"]*)",policy="([^"]*)"\} 1$/gm);
  return new Map(Array.from(current, ([, name = '', policy = '']) => [name, policy]));
}

/** Requests of a gateway that a deployment responded to, by the gateway's own metric. */
async function requestsOf(gateway: RunningGateway, deployment: string): Promise<number> {
  const name = 'digest_gateway_upstream_attempts_total';
  return (await gateway.metric(name, { deployment })) - (await lostOf(gateway, deployment));
}

/** Those without a response: after a restart, old connections break. */
function lostOf(gateway: RunningGateway, deployment: string): Promise<number> {
  return gateway.metric('digest_gateway_upstream_attempts_total', { deployment, result: 'error' });
}

/** The range as text if the count is in it, else the count. */
function within(count: number, [least, most]: readonly [number, number] = [count, count]): string {
  return least < most && count >= least && count <= most ? `${least} to ${most}` : `${count}`;
}

/** Three client requests with a wrong password: attempts, and what the clients got. */
async function wrongPassword(
  deployment: TestDeployment,
  nonceChanges: Kind['nonceChanges'],
): Promise<{ text: string; gateway: RunningGateway }> {
  const gateway = await closedAtEnd(startGateway({ wrong: { ...deployment, password: 'wrong' } }));
  const codes = new Set<string>();
  for (let index = 0; index < 3; index += 1) {
    const response = await fetch(`${gateway.origin}/api/wrong`);
    codes.add(`${response.status} ${((await response.json()) as { code: string }).code}`);
  }
  const refused = { deployment: 'wrong', result: 'refused' };
  const attempts = await gateway.metric('digest_gateway_upstream_attempts_total', refused);
  const range = within(attempts, nonceChanges === 'each second' ? [2, 4] : undefined);
  return { gateway, text: `${range} attempts, ${[...codes].join(', ')}` };
}

/** HEAD, POST and odd targets: how many of the latter were served, and what the others got. */
async function formsOf(ask: ServerScene['ask']): Promise<string> {
  expect(await ask('/api/head?n=1', { method: 'HEAD' })).toMatchObject({ status: 200, body: '' });
  const body = Buffer.alloc(100_000, 'ids=1&');
  const posted = await ask('/api/batch', { method: 'POST', body });
  expect(posted).toMatchObject({ status: 200, body: echoOf('POST', '/api/batch', body) });
  const others = new Set<string>();
  let served = 0;
  for (const target of ODD_TARGETS) {
    const { status } = await ask(target);
    if (status === 200) served += 1;
    else others.add(`${status}`);
    // The credential is good for other targets.
    expect((await ask('/api/plain')).status).toBe(200);
  }
  return [`${served} of ${ODD_TARGETS.length}`, ...others].join(', ');
}

interface Kind {
  readonly server: string;
  readonly setting: string;
  start(): Promise<RealServer>;
  /** False if the number that is served at once depends on timing. */
  readonly atOnce?: false;
  /** A refusal that names the refused nonce once more proves nothing, so attempts depend on when a second ends. */
  readonly nonceChanges?: 'each second';
  /** The least and the most requests for 20 in turn: of one that is refused, the gateway may ask at another target. */
  readonly inTurn?: readonly [number, number];
  /** Its nonces are good after a restart, too; one whose response was lost is not used again. */
  readonly keepsNonces?: true;
}

const KINDS: readonly Kind[] = [
  {
    server: 'Apache httpd',
    setting: '',
    start: startApache,
  },
  { server: 'Apache httpd', setting: 'AuthDigestNcCheck', start: () => startApache({ checkCount: true }) },
  { server: 'Apache httpd', setting: 'one-time nonces', start: () => startApache({ nonceLifetime: 0 }) },
  {
    server: 'lighttpd',
    setting: 'MD5',
    start: () => startLighttpd({ algorithms: ['MD5'] }),
    keepsNonces: true,
  },
  {
    server: 'lighttpd',
    setting: 'SHA-256 and MD5',
    start: () => startLighttpd({ algorithms: ['SHA-256', 'MD5'] }),
    keepsNonces: true,
  },
  {
    server: 'lighttpd',
    setting: 'userhash',
    start: () => startLighttpd({ algorithms: ['SHA-256'], userhash: true }),
    keepsNonces: true,
  },
  { server: 'Tomcat', setting: '', start: startTomcat },
  { server: 'WEBrick', setting: '', start: startWebrick, nonceChanges: 'each second' },
  {
    server: 'WEBrick',
    setting: 'UseNextNonce',
    start: () => startWebrick({ nextNonce: true }),
    atOnce: false,
    nonceChanges: 'each second',
  },
  { server: 'CherryPy', setting: '', start: startCherryPy, nonceChanges: 'each second', keepsNonces: true },
  { server: 'Twisted', setting: '', start: startTwisted },
  { server: 'Flask-HTTPAuth', setting: '', start: startFlask, keepsNonces: true },
  { server: 'Paste', setting: '', start: startPaste, keepsNonces: true },
  { server: 'Rack', setting: '', start: startRack, nonceChanges: 'each second', keepsNonces: true },
  { server: 'Rails', setting: '', start: startRails, nonceChanges: 'each second', keepsNonces: true },
  { server: 'Jetty', setting: '', start: startJetty },
  {
    server: 'libmicrohttpd',
    setting: 'MD5',
    start: () => startMicrohttpd({ algorithm: 'MD5' }),
    inTurn: [21, 24],
    atOnce: false,
    nonceChanges: 'each second',
  },
  {
    server: 'libmicrohttpd',
    setting: 'SHA-256',
    start: () => startMicrohttpd({ algorithm: 'SHA-256' }),
    inTurn: [21, 24],
    atOnce: false,
    nonceChanges: 'each second',
  },
  { server: 'libsoup', setting: '', start: startLibsoup, nonceChanges: 'each second', keepsNonces: true },
  { server: 'CivetWeb', setting: '', start: startCivetWeb },
  { server: 'go-http-auth', setting: '', start: startGo },
  { server: 'sabre/dav on PHP', setting: '', start: startSabre, keepsNonces: true },
  { server: 'Squid as a reverse proxy', setting: '', start: startSquidAccelerator },
];

/** Targets whose bytes some servers read in ways of their own. */
const ODD_TARGETS = [
  '/api/submissionids?ids=%27DEMO-1%27&site_name=demo',
  "/api/submissionids?ids='DEMO-1'&site_name=demo",
  '/api/a%20b;c=1?x=%2F%3F&y=%22quoted%22&z=%5C',
  '/api/list?ids=1,2,3&a=b=c',
  '/api/?',
  '/api/%7euser/x?a=%2f&b=%C3%A9',
];

/** Long enough for a challenge and its answer on a slow machine, in seconds. */
const LIFETIME_S = 4;
const EXPIRING: Readonly<Record<string, () => Promise<RealServer>>> = {
  'Apache httpd': () => startApache({ nonceLifetime: LIFETIME_S }),
  WEBrick: () => startWebrick({ nonceLifetime: LIFETIME_S }),
  Twisted: () => startTwisted(LIFETIME_S),
  Jetty: () => startJetty(LIFETIME_S),
  libmicrohttpd: () => startMicrohttpd({ algorithm: 'SHA-256', nonceLifetime: LIFETIME_S }),
};

const titled = KINDS.map((kind) => [`${kind.server} ${kind.setting}`.trim(), kind] as const);

describe('in front of', () => {
  test.each(titled)('%s: requests, retries and policy are those of the page', async (_title, kind) => {
    const { gateway, server, ask, stop } = await startServerScene(kind.start());
    const isServed = async (target: string): Promise<boolean> => {
      const seen = await ask(target);
      return seen.status === 200 && seen.body === echoOf('GET', target);
    };
    expect(await isServed('/api/first?ids=1')).toBe(true);
    const first = await requestsOf(gateway, 'real');
    for (let index = 0; index < 20; index += 1) expect(await isServed(`/api/turn?n=${index}`)).toBe(true);
    const inTurn = within((await requestsOf(gateway, 'real')) - first, kind.inTurn);
    const policy = (await policiesOf(gateway)).get('real') ?? '';
    const crowd = Array.from({ length: 8 }, (_, index) => isServed(`/api/once/${index}`));
    const served = (await Promise.all(crowd)).filter(Boolean).length;
    const targets = await formsOf(ask);
    const { text: wrong, gateway: refusedOne } = await wrongPassword(server.deployment, kind.nonceChanges);
    const before = await requestsOf(gateway, 'real');
    await server.restart();
    expect(await isServed('/api/restarted')).toBe(true);
    const afterwards = (await requestsOf(gateway, 'real')) - before;
    // A first response that takes long may mean that the credential was refused, which the gateway finds out.
    const restart = within(afterwards, kind.keepsNonces ? [1, 5] : [2, 5]);
    // Counted at the end, since a gateway may verify a credential or renew a nonce on its own.
    let attempts = 0;
    let lost = 0;
    for (const each of [gateway, refusedOne]) {
      await each.close();
      attempts += await each.lastMetric('digest_gateway_upstream_attempts_total');
      lost += await each.lastMetric('digest_gateway_upstream_attempts_total', { result: 'error' });
    }
    const logged = (await stop()).filter(({ method }) => /^[A-Z]+$/.test(method));
    expect(logged.length).toBeGreaterThanOrEqual(attempts - lost);
    expect(logged.length).toBeLessThanOrEqual(attempts);
    const { server: name, setting } = kind;
    const atOnce = kind.atOnce === false ? undefined : served;
    const row = { server: name, setting, first, inTurn, atOnce, targets, restart, wrong, policy };
    servers.set(`${name} ${setting}`, row);
    expectOnPage({ servers: [row] });
  });

  test('WEBrick CheckNc: requests in turn are served', async () => {
    const { ask, attempts } = await startServerScene(startWebrick({ checkCount: true }));
    // Its nonce changes with the second, and one that is new to the gateway is refused until the gateway counts as it
    // does.
    for (let index = 0; index < 20 || (await attempts())['stale'] === undefined; index += 1) {
      const target = `/api/turn?n=${index}`;
      expect(await ask(target)).toMatchObject({ status: 200, body: echoOf('GET', target) });
    }
  });

  test('servers whose nonces have expired: requests are those of the page', async () => {
    const scenes = await Promise.all(
      Object.entries(EXPIRING).map(async ([name, start]) => ({ name, ...(await startServerScene(start())) })),
    );
    const statuses = (target: string) =>
      Promise.all(scenes.map(async ({ ask }) => (await ask(target)).status));
    const counts = () => Promise.all(scenes.map(({ gateway }) => requestsOf(gateway, 'real')));
    expect(await statuses('/api/fresh')).toEqual(scenes.map(() => 200));
    const before = await counts();
    await delay(LIFETIME_S * 1000 + 2_000);
    expect(await statuses('/api/expired')).toEqual(scenes.map(() => 200));
    const after = await counts();
    for (const [index, { name }] of scenes.entries()) {
      expired.set(name, { server: name, requests: (after[index] ?? 0) - (before[index] ?? 0) });
    }
    expectOnPage({ expired: [...expired.values()] });
  });
});

describe('behind the gateway', () => {
  test.each(['digest', 'basic'] as const)(
    'Squid asks for %s: tunnels are those of the page',
    async (auth) => {
      const [squid, simulator] = await Promise.all([startSquid({ auth }), startSimulator(defaultSettings())]);
      closing.push(
        () => squid.close(),
        () => simulator.close(),
      );
      const { origin } = simulator.deployments.submissions;
      const through = (password: string) =>
        startGateway(
          {
            upstream: {
              origin,
              ca: simulator.ca,
              settings: {
                egress: { proxy: { url: squid.url, credential: 'proxy' } },
                health: { interval: 'off' },
              },
            },
          },
          {
            credentials: {
              proxy: { username: { value: proxyAccount.username }, password: { value: password } },
            },
          },
        );
      const gateway = await closedAtEnd(through(proxyAccount.password));
      /** The statuses that Squid has logged, once every tunnel has ended. */
      const statuses = async (running: RunningGateway, count: number): Promise<number[]> => {
        await running.close();
        await until(async () => (await squid.log()).length >= count);
        return (await squid.log()).map(({ status }) => status);
      };
      const target = `${gateway.origin}/api/manuscripts/v2/`;
      for (let index = 0; index < 21; index += 1) expect((await fetch(target)).status).toBe(404);
      const all = await statuses(gateway, 2);
      const wrong = await closedAtEnd(through('wrong'));
      for (let index = 0; index < 3; index += 1)
        expect((await fetch(`${wrong.origin}/api/`)).status).toBe(502);
      const refused = (await statuses(wrong, all.length + 1)).slice(all.length);
      const [first, inTurn] = [all.slice(0, 2).join(', '), all.length - 2];
      const row = { proxy: `Squid, ${auth}`, first, inTurn, wrong: refused.join(', ') };
      proxies.set(auth, row);
      expectOnPage({ proxies: [row] });
    },
  );
});

describe('behaviours, algorithms and qop', () => {
  const QOPS = ['none', 'auth', 'auth-int', 'both'] as const;
  type OneAlgorithm = Omit<SimulatedRow, 'algorithms'> & { readonly algorithm: string };

  test.each(Object.entries(serverProfiles))('%s: is served as the page says', async (profile, behaviour) => {
    const cases = QOPS.flatMap((qop) => algorithmNames.map((algorithm) => ({ qop, algorithm })));
    const { submissions } = defaultSettings().deployments;
    const simulator = await startSimulator({
      deployments: { submissions: { ...submissions, ...behaviour, plaintext: true, testPaths: true } },
    });
    closing.push(() => simulator.close());
    const { origin } = simulator.deployments.submissions;
    const deployments = cases.map((_, index) => {
      const [name, prefix] = [`d${index}`, `/d${index}`];
      const routing = { match: { pathPrefix: `${prefix}/` }, rewrite: { stripPrefix: prefix } };
      const settings = { tls: { allowPlaintext: true }, health: { interval: 'off' }, ...routing };
      return [name, { origin, settings }] as const;
    });
    const gateway = await closedAtEnd(startGateway(Object.fromEntries(deployments)));
    const codes = cases.map(() => new Set<string>());
    const isServed = async (index: number): Promise<boolean> => {
      const response = await fetch(`${gateway.origin}/d${index}/echo?ids=%27A%27`);
      const { code = 'served' } = (await response.json()) as { code?: string };
      codes[index]?.add(code);
      return response.status === 200;
    };
    const choose = (index: number): void => {
      const { qop = 'none', algorithm = 'MD5' } = cases[index] ?? {};
      simulator.set('submissions', { qop, algorithms: [algorithm] });
      simulator.reset('submissions');
    };
    const counts: { first: number; inTurn: number }[] = [];
    for (const index of cases.keys()) {
      choose(index);
      await isServed(index);
      const first = simulator.counts('submissions').requests;
      for (let turn = 0; turn < 10; turn += 1) await isServed(index);
      counts.push({ first, inTurn: simulator.counts('submissions').requests - first });
    }
    // Requests at once may teach more, depending on their order.
    const policies = await policiesOf(gateway);
    const rows: OneAlgorithm[] = [];
    for (const [index, { qop, algorithm }] of cases.entries()) {
      choose(index);
      const atOnce = (await Promise.all([1, 2, 3, 4].map(() => isServed(index)))).filter(Boolean).length;
      const { first = 0, inTurn = 0 } = counts[index] ?? {};
      // How soon refused nonces make the policy stricter depends on timing.
      const policy = inTurn > 10 ? undefined : policies.get(`d${index}`);
      const result = [...(codes[index] ?? [])].join(', ');
      rows.push({ profile, qop, algorithm, first, inTurn, atOnce, policy, result });
    }
    simulated.set(profile, grouped(rows));
    expectOnPage({ simulated: grouped(rows) });
  });

  /** One row for all algorithms that behave alike. */
  function grouped(rows: readonly OneAlgorithm[]): SimulatedRow[] {
    const alike = Map.groupBy(rows, ({ algorithm: _, ...row }) => JSON.stringify(row));
    return Array.from(alike.values(), (group) => {
      const names = group.map(({ algorithm }) => algorithm);
      const [{ algorithm: _, ...row }] = group as [OneAlgorithm];
      return { ...row, algorithms: names.length === algorithmNames.length ? 'all six' : names.join(', ') };
    });
  }
});
