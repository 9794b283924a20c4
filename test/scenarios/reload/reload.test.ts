import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { describe, expect, jest, test } from '@jest/globals';
import type { Readiness } from '../../../src/control/readiness.ts';
import { activateIn } from '../../../src/fleet/activation.ts';
import { credentialSet, setupFor } from '../../support/gateway.ts';
import { authors, problemOf, type RunningScene, type SceneOptions, startScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

describe('a reload', () => {
  test('takes over a new credential while requests are under way', async () => {
    const { simulator, gateway, get } = await startScene({
      behaviour: {
        accounts: [
          { username: 'demo-user', password: 'demo-api-key', sites: ['demo'] },
          { username: 'demo-user-2', password: 'another', sites: ['demo'] },
        ],
        faults: [{ kind: 'delay', ms: 30 }],
      },
    });
    const { origin } = simulator.deployments.submissions;
    const upstream = { origin, ca: simulator.ca, username: 'demo-user-2', password: 'another' };
    const under = Array.from({ length: 10 }, () => get(authors));
    await gateway.app.reload(async () => setupFor({ submissions: upstream }, {}, gateway.versions));
    const after = Array.from({ length: 10 }, () => get(authors));
    const statuses = (await Promise.all([...under, ...after])).map(({ status }) => status);
    expect(statuses).toEqual(Array(20).fill(200));
    expect(await gateway.metric('digest_gateway_config_reloads_total', { result: 'success' })).toBe(1);
  });

  test('keeps connections and nonces of unchanged deployments, and nonces of changed ones', async () => {
    // A health check connects, too.
    const health = { interval: 'off' };
    const { simulator, gateway, get } = await startScene({
      behaviour: { qop: 'auth', nc: 'window' },
      settings: { health },
    });
    const { origin } = simulator.deployments.submissions;
    expect((await get(authors)).status).toBe(200);
    const reloadWith = (changed: Record<string, unknown>) => {
      const settings = { health, ...changed };
      return gateway.app.reload(async () =>
        setupFor({ submissions: { origin, ca: simulator.ca, settings } }, {}, gateway.versions),
      );
    };
    const opened = simulator.counts('submissions').connections;
    const grown: number[] = [];
    for (const settings of [{}, { match: { pathPrefix: '/api/' } }, { connections: 7 }]) {
      await reloadWith(settings);
      expect((await get(authors)).status).toBe(200);
      grown.push(simulator.counts('submissions').connections - opened);
    }
    expect([grown, simulator.counts('submissions').challenges]).toEqual([[0, 0, 1], 1]);
  });

  test('that changes how nonces are used goes on with one that the upstream issues again', async () => {
    const scene = await startScene({ behaviour: { qop: 'auth', sharedNonceMs: 600_000 } });
    const { simulator, gateway, get } = scene;
    const { origin } = simulator.deployments.submissions;
    expect((await get(authors)).status).toBe(200);
    for (const renewAhead of [false, true]) {
      const upstream = { origin, ca: simulator.ca, settings: { digest: { renewAhead } } };
      const setup = await setupFor({ submissions: upstream }, {}, gateway.versions);
      await gateway.app.reload(() => Promise.resolve(setup));
      expect((await get(authors)).status).toBe(200);
    }
    expect(simulator.counts('submissions').refused.nc).toBe(0);
  });

  test('keeps the configuration if the new one cannot be read', async () => {
    const { gateway, get } = await startScene();
    await gateway.app.reload(() => Promise.reject(new Error('broken.yaml:1:1 nothing there')));
    expect((await get(authors)).status).toBe(200);
    expect(await gateway.metric('digest_gateway_config_reloads_total', { result: 'failure' })).toBe(1);
    expect(gateway.logged.at(-1)).toMatchObject({ level: 'error', reason: 'broken.yaml:1:1 nothing there' });
  });

  test('while no worker serves says that it has to be repeated, also in /readyz, until it is', async () => {
    const { gateway, get } = await startScene();
    const next = async () => gateway.setup;
    const activate = jest.spyOn(gateway.plane, 'activate');
    activate.mockImplementationOnce((setup) => activateIn([], setup, () => true));
    const readyz = async () => (await (await fetch(`${gateway.control}/readyz`)).json()) as Readiness;
    const reason = 'no worker serves at the moment: reload again when one does';
    expect(await gateway.app.reload(next)).toEqual({ result: 'failure', status: 409, reason, issues: [] });
    expect((await readyz()).checks).toContainEqual(
      expect.objectContaining({ name: 'configuration', ok: false, detail: expect.stringContaining(reason) }),
    );
    expect(await gateway.app.reload(next)).toMatchObject({ result: 'success' });
    expect((await readyz()).checks).toContainEqual({ name: 'configuration', ok: true, detail: '' });
    expect((await get(authors)).status).toBe(200);
  });

  test('refuses unknown clients once anonymous is off', async () => {
    const { simulator, gateway, get } = await startScene();
    const { origin } = simulator.deployments.submissions;
    const clients = [{ id: 'elsewhere', identify: { addresses: ['192.0.2.1'] } }];
    const known = await setupFor(
      { submissions: { origin, ca: simulator.ca } },
      { anonymous: false, clients },
      gateway.versions,
    );
    await gateway.app.reload(() => Promise.resolve(known));
    const answer = await get(authors);
    expect([answer.status, answer.headers.has('www-authenticate')]).toEqual([401, true]);
    expect(simulator.counts('submissions').requests).toBe(0);
  });
});

describe('a reload that removes a credential', () => {
  const target = '/echo?site_name=other';
  const sites = { demo: { credential: 'submissions' }, other: { credential: 'second' } };
  const user = { username: { value: 'demo-user' }, password: { value: 'demo-api-key' } };

  /** A gateway with a credential for each of two sites, and a reload that leaves it these. */
  const start = async () => {
    const behaviour = {
      testPaths: true,
      accounts: [{ username: 'demo-user', password: 'demo-api-key', sites: ['demo', 'other'] }],
    };
    const settings = { credential: undefined, siteParameter: 'site_name' };
    const top = { credentials: { second: user } };
    const scene = await startScene({ behaviour, settings: { ...settings, sites }, top });
    const { simulator, gateway } = scene;
    const { origin } = simulator.deployments.submissions;
    const reload = async (left: Record<string, unknown>): Promise<void> => {
      const upstream = { origin, ca: simulator.ca, settings: { ...settings, sites: left } };
      const setup = await setupFor({ submissions: upstream }, top, gateway.versions);
      await gateway.app.reload(() => Promise.resolve(setup));
    };
    return { ...scene, reload };
  };

  test('serves a request with it whose body arrives later', async () => {
    const { gateway, get, reload } = await start();
    const upload = request(`${gateway.origin}${target}`, {
      method: 'POST',
      headers: { 'content-length': '10' },
    });
    const response = once(upload, 'response');
    upload.write('01234');
    await until(async () => (await gateway.metric('digest_gateway_requests_in_flight')) === 1);
    await reload({ demo: sites.demo });
    expect((await problemOf(await get(target))).code).toBe('site-unknown');
    upload.end('56789');
    const [{ statusCode }] = (await response) as [IncomingMessage];
    expect(statusCode).toBe(200);
  });

  test('serves requests with it again after the next reload brings it back', async () => {
    const { simulator, get, reload } = await start();
    simulator.set('submissions', { faults: [{ kind: 'hang', when: 'authenticated', times: 1 }] });
    const { accepted } = simulator.counts('submissions');
    const leaving = new AbortController();
    const slow = get(target, { signal: leaving.signal });
    await until(() => simulator.counts('submissions').accepted > accepted);
    await reload({ demo: sites.demo });
    await reload(sites);
    leaving.abort();
    await expect(slow).rejects.toThrow();
    for (const _ of [1, 2]) expect((await get(target)).status).toBe(200);
  });
});

describe('a reload and credentials:', () => {
  const NAME = 'submissions';
  const RELOADS = 20;
  const CROWD = 10;

  /** Each makes a new upstream; the second one also a pool of nonces of its own. */
  const CHANGES: [string, (round: number) => Record<string, unknown>][] = [
    ['connections', (round) => ({ connections: 20 + round })],
    ['the use of nonces', (round) => ({ digest: { noncePolicy: round % 2 === 0 ? 'exclusive' : 'shared' } })],
  ];

  type Reload = Pick<SceneOptions, 'password' | 'settings'> & {
    readonly next?: string;
    /** The deployment of the simulator. */
    readonly to?: 'submissions' | 'abstracts';
  };

  async function reload(
    { simulator, gateway }: RunningScene,
    { password, next, settings = {}, to = NAME }: Reload,
  ): Promise<void> {
    const { origin } = simulator.deployments[to];
    const upstream = { origin, ca: simulator.ca, settings, ...(password !== undefined && { password }) };
    const setup = await setupFor({ [NAME]: upstream }, {}, gateway.versions);
    const set = await credentialSet(gateway, NAME, password ?? 'demo-api-key', next);
    await gateway.app.reload(() => Promise.resolve({ ...setup, credentials: new Map([[NAME, set]]) }));
  }

  async function crowd({ get }: RunningScene): Promise<number[]> {
    const responses = await Promise.all(Array.from({ length: CROWD }, () => get(authors)));
    await Promise.all(responses.map((response) => response.arrayBuffer()));
    return responses.map(({ status }) => status);
  }

  const wrong = ({ simulator }: RunningScene) => simulator.counts(NAME).refused['wrong-response'];

  describe.each(CHANGES)('a reload that changes %s', (_, settingsOf) => {
    test('adds no attempt to those that a minute allows with a refused credential', async () => {
      let now = 0;
      const pair = await startScene({
        behaviour: { lockout: { failures: 3, durationMs: 60_000 } },
        password: 'wrong',
        clock: { now: () => now },
      });
      const { gateway, simulator } = pair;
      expect(await crowd(pair)).toEqual(Array(CROWD).fill(502));
      for (let round = 1; round <= RELOADS; round += 1) {
        now = round * 2_900;
        await reload(pair, { password: 'wrong', settings: settingsOf(round) });
        expect(await gateway.metric('digest_gateway_circuit_state', { deployment: NAME })).toBe(1);
        expect([round, ...(await crowd(pair))]).toEqual([round, ...Array(CROWD).fill(502)]);
      }
      expect([wrong(pair), simulator.counts(NAME).lockedOut]).toEqual([2, 0]);
      expect(gateway.logged.filter(({ msg }) => msg === 'configuration reloaded')).toHaveLength(RELOADS);
    });

    test('leaves the version in use that was promoted', async () => {
      const pair = await startScene();
      const { simulator, gateway } = pair;
      expect((await pair.get(authors)).status).toBe(200);
      gateway.plane.offer(await credentialSet(gateway, NAME, 'demo-api-key', 'later'));
      simulator.set(NAME, { accounts: [{ username: 'demo-user', password: 'later', sites: ['demo'] }] });
      expect((await pair.get(authors)).status).toBe(200);
      const before = wrong(pair);
      for (let round = 1; round <= RELOADS; round += 1) {
        await reload(pair, { next: 'later', settings: settingsOf(round) });
        expect((await pair.get(authors)).status).toBe(200);
      }
      const promoted = await gateway.metric('digest_gateway_credential_rotations_total', {
        result: 'promoted',
      });
      expect([wrong(pair), promoted]).toEqual([before, 1]);
    });
  });

  describe.each<[string, Record<string, unknown>]>([
    ['trusts other servers', { tls: { minVersion: 'TLSv1.3' } }],
    ['leaves from another address', { egress: { localAddress: '127.0.0.1' } }],
  ])('a reload after which the gateway %s', (_, settings) => {
    const account = { username: 'demo-user', password: 'demo-api-key', sites: ['demo'] };

    test('leaves the version in use that was promoted', async () => {
      const pair = await startScene({ behaviour: { accounts: [{ ...account, otherPasswords: ['later'] }] } });
      const { simulator, gateway, get } = pair;
      expect((await get(authors)).status).toBe(200);
      gateway.plane.offer(await credentialSet(gateway, NAME, 'demo-api-key', 'later'));
      await gateway.plane.promote([{ deployment: NAME, credential: NAME, version: '2' }]);
      simulator.set(NAME, { accounts: [{ ...account, password: 'later' }] });
      await reload(pair, { next: 'later', settings });
      expect((await get(authors)).status).toBe(200);
      expect(wrong(pair)).toBe(0);
    });

    test('tries no version again that was rejected', async () => {
      const pair = await startScene({ behaviour: { accounts: [account] } });
      const { gateway, get } = pair;
      expect((await get(authors)).status).toBe(200);
      await reload(pair, { password: 'wrong' });
      expect((await get(authors)).status).toBe(200);
      const states = async () => (await gateway.plane.state()).deployments[0]?.credentials;
      await until(async () => (await states())?.[1]?.rejected === true);
      const [before, known] = [wrong(pair), await states()];
      await reload(pair, { password: 'wrong', settings });
      expect((await get(authors)).status).toBe(200);
      expect([wrong(pair), await states()]).toEqual([before, known]);
    });

    test('begins with a password that it brings itself', async () => {
      const pair = await startScene({ behaviour: { accounts: [account] } });
      const { simulator, get } = pair;
      expect((await get(authors)).status).toBe(200);
      simulator.set(NAME, { accounts: [{ ...account, password: 'later' }] });
      await reload(pair, { password: 'later', settings });
      expect((await get(authors)).status).toBe(200);
      expect(wrong(pair)).toBe(0);
    });
  });

  test('a reload after which the gateway asks another server begins with the password of its sources', async () => {
    const pair = await startScene();
    const { simulator, gateway, get } = pair;
    expect((await get(authors)).status).toBe(200);
    gateway.plane.offer(await credentialSet(gateway, NAME, 'demo-api-key', 'later'));
    simulator.set(NAME, { accounts: [{ username: 'demo-user', password: 'later', sites: ['demo'] }] });
    expect((await get(authors)).status).toBe(200);
    await reload(pair, { next: 'later', to: 'abstracts' });
    await get(authors);
    expect(simulator.counts('abstracts')).toMatchObject({ accepted: 1, refused: { 'wrong-response': 0 } });
  });

  test('a credential that was accepted before is refused only after a probe', async () => {
    const pair = await startScene({ behaviour: { staleFlag: 'never' } });
    const { simulator, gateway } = pair;
    expect((await pair.get(authors)).status).toBe(200);
    await reload(pair, { settings: { connections: 20 } });
    // The nonce in use, and the one that this request obtains.
    simulator.set(NAME, { faults: [{ kind: 'endless-401', when: 'authenticated', times: 2 }] });
    // The probe shows that the credential is good, so it was this target.
    expect((await problemOf(await pair.get(authors))).code).toBe('upstream-target-refused');
    expect(await crowd(pair)).toEqual(Array(CROWD).fill(200));
    expect(
      await gateway.metric('digest_gateway_credential_state', { deployment: NAME, state: 'in-use' }),
    ).toBe(1);
  });

  test('requests after it wait for the probe that began before it', async () => {
    const pair = await startScene({ behaviour: { qop: 'auth', nc: 'window' } });
    const { simulator, gateway } = pair;
    expect(await crowd(pair)).toEqual(Array(CROWD).fill(200));
    gateway.plane.offer(await credentialSet(gateway, NAME, 'demo-api-key', 'later'));
    expect(await crowd(pair)).toEqual(Array(CROWD).fill(200));
    simulator.set(NAME, {
      accounts: [{ username: 'demo-user', password: 'later', sites: ['demo'] }],
      faults: [{ kind: 'delay', ms: 200, when: 'unauthenticated' }],
    });
    const before = wrong(pair);
    const { unauthenticated } = simulator.counts(NAME);
    const first = pair.get(authors);
    await until(() => simulator.counts(NAME).unauthenticated > unauthenticated);
    await reload(pair, { next: 'later', settings: { connections: 20 } });
    expect(await crowd(pair)).toEqual(Array(CROWD).fill(200));
    expect((await first).status).toBe(200);
    // The request, and the probe.
    expect(wrong(pair)).toBe(before + 2);
  });

  test('it does not wait for requests under way', async () => {
    const pair = await startScene({ behaviour: { testPaths: true } });
    const { simulator } = pair;
    expect((await pair.get(authors)).status).toBe(200);
    simulator.set(NAME, { faults: [{ kind: 'hang', when: 'authenticated', times: 1 }] });
    const { accepted } = simulator.counts(NAME);
    const leaving = new AbortController();
    const slow = pair.get(authors, { signal: leaving.signal });
    await until(() => simulator.counts(NAME).accepted > accepted);
    for (const round of [1, 2]) await reload(pair, { settings: { connections: 20 + round } });
    expect((await pair.get(authors)).status).toBe(200);
    leaving.abort();
    await expect(slow).rejects.toThrow();
  });
});

/** Reads of the next version while a configuration is prepared: which are in use, and what changed. */
const READS_TO_PREPARE = 2;

describe('a failure', () => {
  test('in the preparation changes nothing, and counts as one failure', async () => {
    const { simulator, gateway, get } = await startScene();
    const { origin } = simulator.deployments.submissions;
    const setup = await setupFor(
      {
        submissions: { origin, ca: simulator.ca },
        other: { origin, ca: simulator.ca, settings: { match: { pathPrefix: '/other' } } },
      },
      {},
      gateway.versions,
    );
    // A credential is missing that a deployment needs: the last deployment cannot be built.
    const credentials = new Map([...setup.credentials].filter(([name]) => name !== 'other'));
    await gateway.app.reload(async () => ({ ...setup, credentials }));
    expect((await get('/echo')).status).toBe(200);
    const reloads = (result: string) => gateway.metric('digest_gateway_config_reloads_total', { result });
    expect([await reloads('success'), await reloads('failure')]).toEqual([0, 1]);
    expect(gateway.logged.at(-1)).toMatchObject({
      level: 'error',
      msg: 'configuration refused; keeping the current one',
    });
  });

  test('after the commit is reported as that, and counts as a success', async () => {
    const { simulator, gateway, get } = await startScene();
    const { origin } = simulator.deployments.submissions;
    const upstream = { origin, ca: simulator.ca, settings: { match: { pathPrefix: '/api' } } };
    const setup = await setupFor({ submissions: upstream }, {}, gateway.versions);
    // Complete while it is prepared, and not any more when credentials are handed out.
    let reads = 0;
    const credentials = new Map(
      Array.from(setup.credentials, ([name, set]) => {
        const broken = Object.defineProperty({ ...set }, 'next', {
          get() {
            reads += 1;
            if (reads > READS_TO_PREPARE) throw new Error('the next version is gone');
            return undefined;
          },
        });
        return [name, broken] as const;
      }),
    );
    await gateway.app.reload(async () => ({ ...setup, credentials }));
    expect((await get('/echo')).status).toBe(404);
    const reloads = (result: string) => gateway.metric('digest_gateway_config_reloads_total', { result });
    expect([await reloads('success'), await reloads('failure')]).toEqual([1, 0]);
    expect(gateway.logged.at(-1)).toMatchObject({
      level: 'error',
      reason: 'the next version is gone',
    });
  });
});
