import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { startGateway } from '../../support/gateway.ts';
import { outcomeOf } from '../../support/scene.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';
import { startAvailability } from './availability-scene.ts';

const newFolder = useFolders();
const POST = { method: 'POST', body: 'x' };
const MOVED = [
  'digest_gateway_retries_total',
  { deployment: 'submissions', reason: 'next_address' },
] as const;

describe('of two addresses', () => {
  test('the second serves every request while the first refuses, which is soon not asked any more', async () => {
    const directory = await newFolder();
    const scene = await startAvailability({ modes: ['refusing', 'open'], audit: auditOptions(directory) });
    const { gateway, addresses, outcomes, simulator } = scene;
    expect(await outcomes(10)).toEqual(Array(10).fill('200'));
    expect(await gateway.metric(...MOVED)).toBe(1);
    expect(simulator.counts('submissions').challenges).toBe(1);
    const [upstreamAddress] = addresses;
    const failing = gateway.logged.filter(({ msg }) => msg === 'upstream address failing');
    expect(failing).toMatchObject([{ deployment: 'submissions', upstreamAddress }]);
    expect((await scene.check()).detail).toContain(`${addresses[0]} has been failing`);
    await gateway.close();
    const served = (await recordsIn(directory)).filter(({ kind }) => kind === 'access');
    expect(served.map(({ upstream }) => (upstream as { address: string }).address)).toEqual(
      Array(10).fill(addresses[1]),
    );
  });

  test('a POST of which nothing was sent goes to the second, its body kept or streamed', async () => {
    const { get } = await startAvailability({
      modes: ['refusing', 'open'],
      settings: { body: { replayUpTo: '4B' } },
    });
    expect(await outcomeOf(await get('/echo', POST))).toBe('200');
    const { get: other } = await startAvailability({
      modes: ['refusing', 'open'],
      settings: { body: { replayUpTo: '4B' } },
    });
    expect(await outcomeOf(await other('/echo', { ...POST, body: 'longer than four' }))).toBe('200');
  });

  test('a streamed body of which nothing was sent goes to the second, after the first asked for authentication', async () => {
    const first = createServer((_req, res) => {
      // The connection for the body is refused.
      first.close();
      const challenge = 'Digest realm="r", nonce="n", algorithm=MD5';
      res.writeHead(401, { 'www-authenticate': challenge, connection: 'close' }).end();
    }).listen(0, '127.0.0.1');
    await once(first, 'listening');
    const second = await startUpstream((req, res) => req.resume().on('end', () => res.end('second')));
    closing.push(() => second.close());
    const settings = {
      baseUrl: [`http://127.0.0.1:${(first.address() as AddressInfo).port}`, second.origin],
      tls: { allowPlaintext: true },
      health: { interval: 'off' },
      body: { replayUpTo: '4B' },
    };
    const gateway = await closedAtEnd(startGateway({ submissions: { origin: '', settings } }));
    const response = await fetch(gateway.origin, { ...POST, body: 'longer than four' });
    expect([response.status, await response.text()]).toEqual([200, 'second']);
  });

  test('a GET whose connection broke goes to the second, a POST that was sent does not', async () => {
    const settings = { retry: { attempts: 0 } };
    const scene = await startAvailability({ modes: ['open', 'open'], settings });
    expect(await scene.outcomes(1)).toEqual(['200']);
    await scene.relays[0]?.set('resetting');
    expect(await outcomeOf(await scene.get('/echo', POST))).toBe('502 upstream-unreachable');
    expect(await outcomeOf(await scene.get())).toBe('200');
    expect(await scene.gateway.metric(...MOVED)).toBe(1);
  });

  test('the first is asked again when it has been healthy for failback', async () => {
    const scene = await startAvailability({
      modes: ['refusing', 'open'],
      settings: { health: { interval: '50ms', failback: '30s' } },
    });
    const { relays, outcomes, advance, gateway, addresses } = scene;
    const [first, second] = relays;
    await until(async () => !(await scene.check()).ok);
    expect(await outcomes(2)).toEqual(['200', '200']);
    await first?.set('open');
    const [address = ''] = addresses;
    const isHealthy = { deployment: 'submissions', address, state: 'healthy' };
    await until(async () => (await gateway.metric('digest_gateway_upstream_health', isHealthy)) === 1);
    const ofSecond = async (): Promise<number> => {
      const before = second?.requests ?? 0;
      expect(await outcomes(3)).toEqual(['200', '200', '200']);
      return (second?.requests ?? 0) - before;
    };
    expect(await ofSecond()).toBeGreaterThanOrEqual(3);
    advance(30_000);
    // A check of the second one can come between them.
    await until(async () => (await ofSecond()) === 0);
  });

  test('without checks, a request tries the first again after failback', async () => {
    const scene = await startAvailability({
      modes: ['refusing', 'open'],
      settings: { health: { interval: 'off', failback: '30s' } },
    });
    const { relays, outcomes, advance } = scene;
    expect(await outcomes(2)).toEqual(['200', '200']);
    await relays[0]?.set('open');
    expect(await outcomes(2)).toEqual(['200', '200']);
    expect(relays[0]?.connections).toBe(0);
    advance(30_000);
    expect(await outcomes(2)).toEqual(['200', '200']);
    expect(relays[0]?.connections).toBe(1);
  });

  test('both refuse: 502, then 503 with the time until one may be tried', async () => {
    const scene = await startAvailability({
      modes: ['refusing', 'refusing'],
      settings: { circuit: { minimum: 2, open: '5s' } },
    });
    expect(await scene.outcomes(2)).toEqual(Array(2).fill('502 upstream-unreachable'));
    const refused = await scene.get();
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await outcomeOf(refused)).toBe('503 upstream-circuit-open');
  });
});

test('a request moves once at most', async () => {
  const { outcomes, relays, get } = await startAvailability({ modes: ['refusing', 'refusing', 'open'] });
  expect(await outcomes(1)).toEqual(['502 upstream-unreachable']);
  expect(relays[2]?.connections).toBe(0);
  expect(await outcomeOf(await get())).toBe('200');
});

test('credentials are tried at each address by itself', async () => {
  const { simulator, relays, outcomes } = await startAvailability({ modes: ['open', 'open'] });
  expect(await outcomes(2)).toEqual(['200', '200']);
  await relays[0]?.set('refusing');
  expect(await outcomes(2)).toEqual(['200', '200']);
  const { challenges, distinctNonces } = simulator.counts('submissions');
  expect([challenges, distinctNonces]).toEqual([2, 2]);
});
