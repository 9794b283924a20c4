import { describe, expect, test } from '@jest/globals';
import { upstreamError, whyNoTls } from '../../../src/transport/errors.ts';
import { until } from '../../support/until.ts';
import { startAvailability } from './availability-scene.ts';

const OFTEN = { interval: '50ms' };
const FAILING = 'upstream address failing';

function stateOf(deployment: string, address: string, state: string) {
  return ['digest_gateway_upstream_health', { deployment, address, state }] as const;
}

describe('an address that nobody asks', () => {
  test('is failing if nobody listens there, and healthy once somebody does, without any request', async () => {
    const scene = await startAvailability({ modes: ['refusing'], settings: { health: OFTEN } });
    const { gateway, relays, addresses, messages } = scene;
    const [address = ''] = addresses;
    await until(() => messages().includes(FAILING));
    const check = await scene.check();
    expect(check).toMatchObject({ status: 200, ok: false });
    expect(check.detail).toContain(
      upstreamError(Object.assign(new Error(), { code: 'ECONNREFUSED' })).detail,
    );
    expect(await gateway.metric(...stateOf('submissions', address, 'failing'))).toBe(1);
    const verbose = await (await fetch(`${gateway.control}/readyz?verbose`)).text();
    expect(verbose).toMatch(new RegExp(`^ +${address} failing for \\d+ s, circuit closed$`, 'm'));
    expect(verbose).toMatch(/^degraded$/m);
    await relays[0]?.set('open');
    await until(async () => (await scene.check()).ok);
    expect(await gateway.metric(...stateOf('submissions', address, 'healthy'))).toBe(1);
    expect(messages()).toContain('upstream address healthy');
  });

  test('is failing if its TLS cannot be trusted', async () => {
    const scene = await startAvailability({ behaviour: { tls: 'expired' }, settings: { health: OFTEN } });
    await until(async () => !(await scene.check()).ok);
    expect((await scene.check()).detail).toContain(whyNoTls('CERT_HAS_EXPIRED'));
  });

  test('is healthy with a challenge to a request without authentication, and no attempt is made', async () => {
    const scene = await startAvailability({ settings: { health: { ...OFTEN, path: '/status/200' } } });
    const { simulator, gateway, addresses } = scene;
    await until(() => simulator.counts('submissions').challenges >= 3);
    expect(await gateway.metric(...stateOf('submissions', addresses[0] ?? '', 'healthy'))).toBe(1);
    const { requests, unauthenticated, accepted } = simulator.counts('submissions');
    expect([requests - unauthenticated, accepted]).toEqual([0, 0]);
    expect(await gateway.metric('digest_gateway_upstream_attempts_total')).toBe(0);
    expect(await gateway.metric('digest_gateway_challenges_total')).toBe(0);
  });

  test('is failing if it answers the check with another error', async () => {
    const scene = await startAvailability({
      behaviour: { faults: [{ kind: 'status', status: 503 }] },
      settings: { health: { ...OFTEN, path: '/status/200' } },
    });
    await until(async () => !(await scene.check()).ok);
    expect((await scene.check()).detail).toMatch(/\b503\b.*health\.path/);
    scene.simulator.set('submissions', { faults: [] });
    await until(async () => (await scene.check()).ok);
  });
});

describe('an address that requests show to fail', () => {
  test('is failing without any check, and healthy with the next response', async () => {
    const scene = await startAvailability({ modes: ['refusing'] });
    expect((await scene.check()).ok).toBe(true);
    await scene.outcomes(1);
    expect((await scene.check()).ok).toBe(false);
    await scene.relays[0]?.set('open');
    await scene.outcomes(1);
    expect((await scene.check()).ok).toBe(true);
  });
});

describe('readiness', () => {
  test.each([
    ['gateway', 200],
    ['any-upstream', 200],
    ['all-upstreams', 503],
  ])('of %s is %d while one of two upstreams fails', async (readiness, status) => {
    const scene = await startAvailability({
      modes: ['refusing'],
      settings: { health: OFTEN },
      top: { readiness },
    });
    await until(async () => !(await scene.check()).ok);
    expect((await scene.check()).status).toBe(status);
    await scene.relays[0]?.set('open');
    await until(async () => (await scene.check()).status === 200);
  });

  test('of any-upstream is 503 while every upstream fails', async () => {
    const scene = await startAvailability({
      modes: ['refusing'],
      settings: { health: OFTEN },
      top: { readiness: 'any-upstream' },
    });
    await scene.simulator.close();
    await scene.get('/api/abstracts/v3/abstracts/full/abstractsbyid?site_name=demo&ids=%27A-1001%27');
    await until(async () => (await scene.check()).status === 503);
  });
});
