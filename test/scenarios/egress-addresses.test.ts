import { describe, expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import { auditOptions, recordsIn, useFolders } from '../support/audit-log.ts';
import { setupFor, startGateway } from '../support/gateway.ts';
import { outcomeOf, startScene } from '../support/scene.ts';
import { startUpstream } from '../support/scripted-upstream.ts';

const FIRST = '127.0.0.2';
const SECOND = '127.0.0.3';
/** Of a network for documentation (RFC 5737): nobody's. */
const ELSEWHERE = '192.0.2.1';
const FAILBACK_MS = 60_000;
const POST = { method: 'POST', body: 'x' };

const newFolder = useFolders();

interface Options {
  readonly behaviour?: BehaviourChange;
  readonly localAddress?: readonly string[];
  /** Of the outcome that refuses the local address. */
  readonly outcome?: Record<string, unknown>;
  readonly directory?: string;
}

/** A gateway with several local addresses, before a service that knows some of them. */
async function startEgress({ behaviour = {}, localAddress = [FIRST, SECOND], outcome, directory }: Options) {
  let ahead = 0;
  const settings = {
    health: { interval: 'off' },
    egress: { localAddress, failback: `${FAILBACK_MS}ms` },
    outcomes: [{ name: 'unregistered', status: 403, egress: 'next', ...outcome }],
  };
  const scene = await startScene({
    behaviour: { bindNonceToAddress: true, ...behaviour },
    clock: { now: () => performance.now() + ahead },
    settings,
    ...(directory !== undefined && { audit: auditOptions(directory) }),
  });
  const { gateway, simulator } = scene;
  return {
    ...scene,
    outcome: async (init?: RequestInit) => outcomeOf(await scene.get('/echo', init)),
    advance: (milliseconds: number) => {
      ahead += milliseconds;
    },
    register: (...allowedAddresses: string[]) => simulator.set('submissions', { allowedAddresses }),
    /** `address state` for each local address. */
    async states() {
      const text = await (await fetch(`${gateway.control}/metrics`)).text();
      const series = /egress_address_state\{deployment="submissions",egress="([^"]+)",state="([^"]+)"\} 1/g;
      return Array.from(text.matchAll(series), ([, address, state]) => `${address} ${state}`);
    },
    async readiness() {
      const response = await fetch(`${gateway.control}/readyz`);
      const { status, checks } = (await response.json()) as {
        status: string;
        checks: { name: string; warning?: string }[];
      };
      const { warning } = checks.find(({ name }) => name === 'deployment:submissions') ?? {};
      return { http: response.status, status, warning };
    },
    /** Reloads the gateway with one more setting of the deployment. */
    async reload(setting: Record<string, unknown>) {
      const submissions = { ...scene.deployment, settings: { ...settings, ...setting } };
      const setup = await setupFor({ submissions }, {}, gateway.versions);
      await gateway.app.reload(() => Promise.resolve(setup));
    },
    messages: () => gateway.logged.map(({ msg }) => String(msg)),
  };
}

describe('a local address that the upstream does not know', () => {
  const behaviour = { allowedAddresses: [SECOND] };

  test('is passed over for the next one, after one request that is repeated', async () => {
    const directory = await newFolder();
    const scene = await startEgress({ behaviour, directory });
    const { outcome, gateway, simulator } = scene;
    expect([await outcome(), await outcome(), await outcome(POST)]).toEqual(['200', '200', '200']);
    // The challenge and the refusal at the first one, then a challenge for all that follows.
    expect(simulator.counts('submissions').challenges).toBe(2);
    expect(await scene.states()).toEqual([`${FIRST} refused`, `${SECOND} in-use`]);
    expect(await scene.readiness()).toEqual({
      http: 200,
      status: 'ok',
      warning: `requests of submissions do not leave from ${FIRST}, which the upstream refuses (outcome unregistered)`,
    });
    const refused = 'egress address refused by the upstream; passing it over';
    expect(gateway.logged).toContainEqual(
      expect.objectContaining({ deployment: 'submissions', egress: FIRST, msg: refused }),
    );
    const retries = { deployment: 'submissions', reason: 'next_egress' };
    expect(await gateway.metric('digest_gateway_retries_total', retries)).toBe(1);
    await gateway.close();
    const served = (await recordsIn(directory)).filter(({ kind }) => kind === 'access');
    expect(served.map(({ upstream }) => upstream)).toEqual([
      expect.objectContaining({ status: 200, attempts: 4, egress: SECOND }),
      expect.objectContaining({ status: 200, attempts: 1, egress: SECOND }),
      expect.objectContaining({ status: 200, attempts: 1, egress: SECOND }),
    ]);
  });

  test('is recognised by a text in the body, of which the client gets nothing', async () => {
    const { get } = await startEgress({ behaviour, outcome: { bodyContains: 'not registered' } });
    const response = await get('/echo');
    expect(response.status).toBe(200);
    expect(await response.text()).not.toContain('registered');
  });

  test('is not passed over for a refusal with another text, which the client gets', async () => {
    const scene = await startEgress({ behaviour, outcome: { bodyContains: 'no such text' } });
    const response = await scene.get('/echo');
    expect([response.status, await response.text()]).toEqual([
      403,
      expect.stringContaining('The address is not registered.'),
    ]);
    expect(await scene.states()).toEqual([`${FIRST} in-use`, `${SECOND} standby`]);
  });

  test('refuses a POST, which is not sent again, and which shows it for the next request', async () => {
    const { outcome, simulator } = await startEgress({ behaviour });
    expect(await outcome(POST)).toBe('403');
    expect(await outcome(POST)).toBe('200');
    expect(simulator.counts('submissions').accepted).toBe(2);
  });

  test('is tried by one GET per failback, and used again when that is served', async () => {
    const { outcome, register, advance, states, simulator, messages } = await startEgress({ behaviour });
    await outcome();
    advance(FAILBACK_MS);
    // Not by a POST; and the GET is served all the same.
    expect([await outcome(POST), await outcome()]).toEqual(['200', '200']);
    const tried = simulator.counts('submissions').requests;
    expect(await outcome()).toBe('200');
    expect(simulator.counts('submissions').requests).toBe(tried + 1);
    expect(await states()).toEqual([`${FIRST} refused`, `${SECOND} in-use`]);
    register(FIRST);
    advance(FAILBACK_MS);
    expect(await outcome()).toBe('200');
    expect(await states()).toEqual([`${FIRST} in-use`, `${SECOND} standby`]);
    expect(messages()).toContain('egress address usable again');
    expect(await outcome(POST)).toBe('200');
  });

  test('gives its refusal to the client if no other is known either', async () => {
    const { outcome, register, states, readiness } = await startEgress({ behaviour });
    register('127.0.0.9');
    expect([await outcome(), await outcome()]).toEqual(['403', '403']);
    expect(await states()).toEqual([`${FIRST} refused`, `${SECOND} refused`]);
    expect((await readiness()).http).toBe(200);
    register(SECOND, FIRST);
    expect([await outcome(), await outcome()]).toEqual(['200', '200']);
  });

  test('and cuts off later costs no client its response when it is tried', async () => {
    let [ahead, nonces, cut] = [0, 0, 0];
    await using service = await startUpstream((req, res) => {
      const isFirst = req.socket.remoteAddress === FIRST;
      if (isFirst && ahead > 0) {
        cut += 1;
        req.socket.destroy();
        return;
      }
      nonces += 1;
      if (req.headers.authorization === undefined)
        res.writeHead(401, { 'www-authenticate': `Digest realm="r", qop="auth", nonce="${nonces}"` });
      else res.writeHead(isFirst ? 403 : 200);
      res.end();
    });
    const settings = {
      tls: { allowPlaintext: true },
      health: { interval: 'off' },
      egress: { localAddress: [FIRST, SECOND], failback: `${FAILBACK_MS}ms` },
      outcomes: [{ name: 'unregistered', status: 403, egress: 'next' }],
    };
    await using gateway = await startGateway(
      { service: { origin: service.origin, settings } },
      {},
      { clock: { now: () => performance.now() + ahead } },
    );
    const ask = async (): Promise<string> => outcomeOf(await fetch(gateway.origin));
    expect(await ask()).toBe('200');
    // Then also while the circuit of the first one is open.
    for (let count = 1; count <= 10; count += 1) {
      ahead += FAILBACK_MS;
      expect(await ask()).toBe('200');
    }
    expect(cut).toBeGreaterThan(0);
  });

  test('is remembered when a reload changes something else', async () => {
    const { outcome, reload, states } = await startEgress({ behaviour });
    await outcome();
    await reload({ connections: 7 });
    expect(await states()).toEqual([`${FIRST} refused`, `${SECOND} in-use`]);
  });
});

describe('a local address that is not on this host', () => {
  test('is passed over, also by a POST, while readiness stays', async () => {
    const scene = await startEgress({ localAddress: [ELSEWHERE, SECOND] });
    expect([await scene.outcome(POST), await scene.outcome()]).toEqual(['200', '200']);
    expect(await scene.states()).toEqual([`${SECOND} in-use`, `${ELSEWHERE} missing`].toSorted().reverse());
    expect(await scene.readiness()).toEqual({
      http: 200,
      status: 'ok',
      warning: `requests of submissions do not leave from ${ELSEWHERE}, which is not on this host`,
    });
    const present = await scene.gateway.metric('digest_gateway_egress_address_present', {
      deployment: 'submissions',
    });
    expect(present).toBe(1);
    expect(scene.messages()).toContain('egress address not on this host; passing it over');
  });

  test('leaves nothing to send from if it is the same with the others', async () => {
    const scene = await startEgress({ localAddress: [ELSEWHERE, '198.51.100.1'] });
    expect(await scene.outcome()).toBe('502 upstream-unreachable');
    expect((await scene.readiness()).http).toBe(503);
  });
});
