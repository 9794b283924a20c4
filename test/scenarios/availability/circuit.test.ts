import { describe, expect, test } from '@jest/globals';
import { call } from '../../support/client-call.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { startGateway } from '../../support/gateway.ts';
import { outcomeOf } from '../../support/scene.ts';
import { startConnections, startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';
import { codeOf, connect } from '../../support/wire.ts';
import { startAvailability } from './availability-scene.ts';

const CIRCUIT = { minimum: 4, open: '5s' };
const OPENED = 'circuit opened: most exchanges with the upstream fail';
const CLOSED = 'circuit closed: the upstream responds again';

describe('an upstream whose connections fail', () => {
  test('gets no requests for a while: 503 with Retry-After, and another deployment is served', async () => {
    const scene = await startAvailability({ modes: ['refusing'], settings: { circuit: CIRCUIT } });
    const { gateway, relays, addresses, outcomes, get } = scene;
    expect(await outcomes(4)).toEqual(Array(4).fill('502 upstream-unreachable'));
    await relays[0]?.set('open');
    const refused = await get();
    expect([refused.headers.get('retry-after'), await outcomeOf(refused)]).toEqual([
      '5',
      '503 upstream-circuit-open',
    ]);
    expect(relays[0]?.connections).toBe(0);
    expect(
      await gateway.metric('digest_gateway_circuit_state', {
        deployment: 'submissions',
        circuit: addresses[0] ?? '',
      }),
    ).toBe(1);
    expect(scene.messages()).toContain(OPENED);
    expect(await scene.check()).toMatchObject({ status: 200, ok: false });
    expect(
      (await get('/api/abstracts/v3/abstracts/full/abstractsbyid?site_name=demo&ids=%27A-1001%27')).status,
    ).toBe(200);
  });

  test('gets one request after that, whose response lets all others through', async () => {
    const scene = await startAvailability({
      modes: ['silent'],
      settings: { circuit: CIRCUIT, timeouts: { connect: '500ms' } },
    });
    const { relays, advance, outcomes, get, gateway, addresses } = scene;
    expect(await outcomes(4)).toEqual(Array(4).fill('504 upstream-timeout'));
    expect(await outcomes(1)).toEqual(['503 upstream-circuit-open']);
    advance(5_000);
    const before = relays[0]?.connections ?? 0;
    const trial = get();
    await until(() => (relays[0]?.connections ?? 0) > before);
    expect(await outcomes(3)).toEqual(Array(3).fill('503 upstream-circuit-open'));
    expect(await outcomeOf(await trial)).toBe('504 upstream-timeout');
    advance(5_000);
    await relays[0]?.set('open');
    expect(await outcomes(3)).toEqual(['200', '200', '200']);
    expect(scene.messages()).toContain(CLOSED);
    expect(
      await gateway.metric('digest_gateway_circuit_state', {
        deployment: 'submissions',
        circuit: addresses[0] ?? '',
      }),
    ).toBe(0);
  });

  test('gets the next request if the client of the first one leaves without a result', async () => {
    const scene = await startAvailability({ modes: ['refusing'], settings: { circuit: CIRCUIT } });
    const { relays, advance, outcomes, get } = scene;
    await outcomes(4);
    await relays[0]?.set('silent');
    advance(5_000);
    const leaving = new AbortController();
    const trial = get('/echo', { signal: leaving.signal }).catch(() => undefined);
    await until(() => (relays[0]?.connections ?? 0) > 0);
    leaving.abort();
    await trial;
    await relays[0]?.set('open');
    await until(async () => (await outcomeOf(await get())) === '200');
  });
});

test('a client that opens it by what it sends is refused alone, and others are served', async () => {
  const upstream = await startUpstream((req, res) => {
    if (req.url === '/poison') req.socket.destroy();
    else res.end('ok');
  });
  closing.push(() => upstream.close());
  const settings = { tls: { allowPlaintext: true }, health: { interval: 'off' }, circuit: CIRCUIT };
  const clients = ['127.0.0.2', '127.0.0.3'].map((address) => ({
    id: address,
    identify: { addresses: [address] },
    allow: [{ deployment: 'up' }],
  }));
  const gateway = await startGateway(
    { up: { origin: upstream.origin, settings } },
    { anonymous: false, clients },
  );
  closing.push(() => gateway.close());
  const ask = async (from: string, target: string) => (await call(gateway, { from, target })).status;
  // Each is sent twice.
  for (let count = 0; count < 2; count += 1) expect(await ask('127.0.0.2', '/poison')).toBe(502);
  expect(await ask('127.0.0.2', '/')).toBe(503);
  const served = await Promise.all(Array.from({ length: 4 }, () => ask('127.0.0.3', '/')));
  expect(served).toEqual(Array(4).fill(200));
});

test('it stays closed when the upstream breaks off uploads, and opens when it breaks off other requests', async () => {
  const upstream = await startConnections(async (connection) => {
    const head = await connection.request();
    if (head?.startsWith('HEAD ') === true)
      await connection.write(
        'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Digest realm="r", nonce="n", qop="auth"\r\n\r\n',
      );
    else {
      if (head?.startsWith('POST ') === true) await connection.through('begin');
      connection.reset();
    }
  });
  closing.push(() => upstream.close());
  const settings = {
    tls: { allowPlaintext: true },
    health: { interval: 'off' },
    circuit: { ...CIRCUIT, minimum: 8 },
  };
  const gateway = await closedAtEnd(startGateway({ up: { origin: upstream.origin, settings } }));
  const upload = async (): Promise<string> => {
    const client = await connect(gateway.port);
    await client.send('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\nbegin');
    const answer = await client.answer();
    return `${answer.status} ${codeOf(answer)} ${answer.body.includes('body of the request')}`;
  };
  // The challenge of each is a response without a failure.
  const uploads: string[] = [];
  while (uploads.length < 20) uploads.push(await upload());
  expect(new Set(uploads)).toEqual(new Set(['502 upstream-unreachable true']));
  const others: string[] = [];
  const open = '503 upstream-circuit-open';
  while (others.at(-1) !== open && others.length < 50) {
    const { status, code } = await call(gateway, { target: '/' });
    others.push(`${status} ${code}`);
  }
  expect(others.at(-1)).toBe(open);
});

describe('responses of an upstream', () => {
  test('open no circuit, whatever their status', async () => {
    const { outcomes } = await startAvailability({ settings: { circuit: CIRCUIT } });
    expect(await outcomes(8, '/status/503')).toEqual(Array(8).fill('503'));
  });

  test('open it with a status that the configuration lists', async () => {
    const { outcomes, messages, check } = await startAvailability({
      settings: { circuit: { ...CIRCUIT, minimum: 3, statuses: [503] } },
    });
    // The challenge of the first one is a response without a failure.
    expect(await outcomes(3, '/status/503')).toEqual(['503', '503', '503 upstream-circuit-open']);
    expect(messages()).toContain(OPENED);
    expect((await check()).detail).toMatch(/failing for .* \(circuit open\): .*503/);
  });
});

test('a check shows without any request that the address is back, and the next request closes the circuit', async () => {
  const { outcomes, relays, messages, advance, check } = await startAvailability({
    modes: ['refusing'],
    settings: { circuit: CIRCUIT, health: { interval: '50ms' } },
  });
  expect(await outcomes(4)).toEqual(Array(4).fill('502 upstream-unreachable'));
  const [relay] = relays;
  await relay?.set('open');
  await until(() => (relay?.connections ?? 0) >= 3);
  expect((await check()).detail).toContain('circuit open');
  advance(5_000);
  await until(async () => (await check()).ok);
  expect(messages()).not.toContain(CLOSED);
  expect(await outcomes(1)).toEqual(['200']);
  expect(messages()).toContain(CLOSED);
});

test('requests that wait for a connection are refused when it opens, or go to another address', async () => {
  const settings = { circuit: { ...CIRCUIT, minimum: 3 }, connections: 1, timeouts: { connect: '500ms' } };
  for (const [modes, outcome] of [
    [['open'], '503 upstream-circuit-open'],
    [['open', 'open'], '200'],
  ] as const) {
    const { relays, outcomes, get } = await startAvailability({ modes, settings });
    expect(await outcomes(1)).toEqual(['200']);
    await relays[0]?.set('refusing');
    await relays[0]?.set('silent');
    // Two exchanges had responses. The second connection that is not made opens the circuit.
    const ended = await Promise.all(Array.from({ length: 8 }, () => get().then(outcomeOf)));
    const timeouts = modes.length === 1 ? 2 : 0;
    expect(ended.toSorted()).toEqual(
      [...Array(8 - timeouts).fill(outcome), ...Array(timeouts).fill('504 upstream-timeout')].toSorted(),
    );
  }
});

test('timeouts of the response open it', async () => {
  const { relays, outcomes } = await startAvailability({
    settings: { circuit: CIRCUIT, timeouts: { response: '500ms' } },
  });
  expect(await outcomes(1)).toEqual(['200']);
  await relays[0]?.set('silent');
  // Two exchanges of the first request had responses.
  expect(await outcomes(3)).toEqual([...Array(2).fill('504 upstream-timeout'), '503 upstream-circuit-open']);
});
