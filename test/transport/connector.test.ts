import { once } from 'node:events';
import { type AddressInfo, createServer, connect as openTcp, Socket } from 'node:net';
import { createSecureContext, createServer as createTlsServer, TLSSocket } from 'node:tls';
import { describe, expect, jest, test } from '@jest/globals';
import { monotonicClock } from '../../src/base/clock.ts';
import { errorCode } from '../../src/base/error-code.ts';
import { connector } from '../../src/transport/connector.ts';
import { closing } from '../support/closing.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { USUAL_TLS } from '../support/usual-tls.ts';

/** A server on one loopback address; the port is the same for all of a test. */
async function listen(address: string, port = 0): Promise<number> {
  const server = createServer((socket) => socket.end()).listen(port, address);
  closing.push(() => server.close());
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

type Lookup = typeof import('node:dns').lookup;

/** A lookup that finds these addresses for any name. */
function finding(addresses: readonly string[]): Lookup {
  const found = addresses.map((address) => ({ address, family: 4 }));
  return ((_name: string, _options: object, done: (error: null, found: object[]) => void) =>
    done(null, found)) as unknown as Lookup;
}

/** Connects from the local address; resolves to the address that was reached, or to the code of the error. */
async function connect(
  hostname: string,
  port: number,
  lookup: Lookup,
  localAddress = '127.0.0.1',
  timeout = 5_000,
  scheme = 'http',
): Promise<string> {
  const open = connector(
    {
      origin: `${scheme}://${hostname}:${port}`,
      timeout,
      tls: USUAL_TLS,
      egress: { localAddress: localAddress || undefined, proxy: undefined },
    },
    { clock: monotonicClock, proxyCredential: () => undefined, onTls: () => {}, lookup },
  );
  try {
    const socket = await open();
    const { remoteAddress = '' } = socket;
    socket.destroy();
    return remoteAddress;
  } catch (error) {
    return errorCode(error);
  }
}

test.each([
  ['', 'EADDRNOTAVAIL'],
  ['127.0.0.1', 'upstream-unreachable'],
])('only where one is set can a local address be missing: "%s"', async (localAddress, code) => {
  const connecting = jest.spyOn(Socket.prototype, 'connect').mockImplementation(function (this: Socket) {
    return this.destroy(Object.assign(new Error('connect'), { code: 'EADDRNOTAVAIL' }));
  });
  closing.push(() => connecting.mockRestore());
  expect(await connect('upstream.test', 80, finding(['127.0.0.3']), localAddress)).toBe(code);
});

describe('from a local address, a name with several addresses', () => {
  test.each([
    ['is reached at the first that accepts', ['127.0.0.3', '127.0.0.4', '127.0.0.5'], '127.0.0.4'],
    ['gives the error of the last one if none accepts', ['127.0.0.6', '127.0.0.7'], 'ECONNREFUSED'],
    ['is not known if it has none', [], 'ENOTFOUND'],
  ])('%s', async (_what, addresses, expected) => {
    const port = await listen('127.0.0.4');
    await listen('127.0.0.5', port);
    expect(await connect('upstream.test', port, finding(addresses))).toBe(expected);
  });

  test('is tried at 8 addresses at most', async () => {
    const port = await listen('127.0.0.4');
    const closed = Array.from({ length: 8 }, (_, index) => `127.0.1.${index + 1}`);
    expect(await connect('upstream.test', port, finding([...closed, '127.0.0.4']))).toBe('ECONNREFUSED');
    expect(await connect('upstream.test', port, finding([...closed.slice(1), '127.0.0.4']))).toBe(
      '127.0.0.4',
    );
  });
});

test.each(['127.0.0.1', ''])(
  'from local address "%s", the error says what took too long',
  async (localAddress) => {
    const silent = (() => {}) as unknown as Lookup;
    expect(await connect('upstream.test', 80, silent, localAddress, 50)).toBe('ETIMEOUT');
    const hanging = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
    closing.push(() => hanging.close());
    await once(hanging, 'listening');
    const { port } = hanging.address() as AddressInfo;
    const found = finding(['127.0.0.1']);
    expect(await connect('upstream.test', port, found, localAddress, 2_000, 'https')).toBe(
      'ERR_TLS_HANDSHAKE_TIMEOUT',
    );
    expect(await connect('127.0.0.1', port, silent, localAddress, 2_000, 'https')).toBe(
      'ERR_TLS_HANDSHAKE_TIMEOUT',
    );
  },
);

test('from a local address, a name that has addresses of the other family only is known', async () => {
  const failure = (code: string) => Object.assign(new Error('none'), { code });
  const lookingUp = (others: (done: (...args: unknown[]) => void) => void): Promise<string> => {
    const lookup = ((_name: string, { family }: { family?: number }, done: (...args: unknown[]) => void) =>
      family === 4 ? done(failure('ENOTFOUND')) : others(done)) as unknown as Lookup;
    return connect('upstream.test', 80, lookup);
  };
  expect(await lookingUp((done) => done(null, [{ address: '::1', family: 6 }]))).toBe('EAI_ADDRFAMILY');
  // The first response stands: there is no address to reach.
  expect(await lookingUp((done) => done(failure('EAI_AGAIN')))).toBe('ENOTFOUND');
  expect(await lookingUp(() => {})).toBe('ENOTFOUND');
});

test('from a local address, TLS has what is left of the time, however many addresses the name has', async () => {
  const authority = await createTestAuthority();
  const tls = createTlsServer(await authority.server());
  let opened = 0;
  const server = createServer((socket) => {
    opened += 1;
    // Longer than an eighth of the time.
    setTimeout(() => tls.emit('connection', socket), 1_000);
  }).listen(0, '0.0.0.0');
  closing.push(() => server.close());
  await once(server, 'listening');
  const open = connector(
    {
      origin: `https://localhost:${(server.address() as AddressInfo).port}`,
      timeout: 7_000,
      tls: { ...USUAL_TLS, ca: authority.ca },
      egress: { localAddress: '127.0.0.1', proxy: undefined },
    },
    {
      clock: monotonicClock,
      proxyCredential: () => undefined,
      onTls: () => {},
      lookup: finding(Array.from({ length: 8 }, (_, index) => `127.0.0.${index + 1}`)),
    },
  );
  (await open()).destroy();
  expect(opened).toBe(1);
});

test('from a local address, no address is tried once TLS of another one has used all of the time', async () => {
  let opened = 0;
  let now = 0;
  const timeout = 60_000;
  const server = createServer((socket) => {
    opened += 1;
    now += timeout;
    socket.on('error', () => {}).destroy();
  }).listen(0, '0.0.0.0');
  closing.push(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const open = connector(
    {
      origin: `https://localhost:${port}`,
      timeout,
      tls: USUAL_TLS,
      egress: { localAddress: '127.0.0.1', proxy: undefined },
    },
    {
      clock: { now: () => now },
      proxyCredential: () => undefined,
      onTls: () => {},
      lookup: finding(Array.from({ length: 8 }, (_, index) => `127.0.0.${index + 1}`)),
    },
  );
  await expect(open()).rejects.toThrow('socket');
  // Whatever was tried is accepted before this one.
  const [socket] = await Promise.all([openTcp(port, '127.0.0.1'), once(server, 'connection')]);
  socket.destroy();
  expect(opened).toBe(2);
});

test('without a local address, a name with several addresses is reached at the first that accepts', async () => {
  const port = await listen('127.0.0.4');
  const lookup = finding(['127.0.0.3', '127.0.0.4']);
  expect(await connect('upstream.test', port, lookup, '')).toBe('127.0.0.4');
});

test('an address is not looked up', async () => {
  const port = await listen('127.0.0.4');
  expect(await connect('127.0.0.4', port, finding(['127.0.0.3']))).toBe('127.0.0.4');
});

test('an upstream that renegotiates TLS 1.2 without end loses its connection, and one that does it now and then does not', async () => {
  const authority = await createTestAuthority();
  const server = createTlsServer({ ...(await authority.server()), maxVersion: 'TLSv1.2' });
  server.listen(0, '127.0.0.1');
  closing.push(() => server.close());
  await once(server, 'listening');
  const open = connector(
    {
      origin: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
      timeout: 20_000,
      tls: { ...USUAL_TLS, ca: authority.ca },
      egress: { localAddress: undefined, proxy: undefined },
    },
    { clock: monotonicClock, proxyCredential: () => undefined, onTls: () => {} },
  );
  const [[accepted], socket] = await Promise.all([once(server, 'secureConnection'), open()]);
  const closed = new Promise<string>((resolve) => {
    socket.once('error', (error) => resolve(errorCode(error)));
  });
  socket.resume();
  // Node.js counts them for a server, too.
  (accepted as TLSSocket).on('error', () => {});
  const renegotiate = () =>
    new Promise<string>((resolve) => {
      (accepted as TLSSocket).renegotiate({}, (error) => resolve(error === null ? 'done' : 'failed'));
    });
  let count = 0;
  let outcome = 'done';
  while (outcome === 'done' && count < 100) {
    outcome = await Promise.race([closed, renegotiate()]);
    count += 1;
  }
  expect(outcome).toBe('upstream-tls');
  expect(count).toBeGreaterThanOrEqual(20);
  (accepted as TLSSocket).destroy();
});

describe.each(['TLSv1.2', 'TLSv1.3'] as const)('sessions of %s', (version) => {
  const MINUTE_MS = 60_000;

  /** Connects to a server with a certificate that ends so soon; resolves to whether the session was resumed. */
  async function resuming(certificateMs: number) {
    const authority = await createTestAuthority();
    const pair = await authority.server({ notAfter: Date.now() + certificateMs });
    const server = createTlsServer({ ...pair, maxVersion: version }).listen(0, '127.0.0.1');
    closing.push(() => server.close());
    await once(server, 'listening');
    let now = 0;
    const open = connector(
      {
        origin: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
        timeout: 60_000,
        tls: { ...USUAL_TLS, ca: authority.ca },
        egress: { localAddress: undefined, proxy: undefined },
      },
      { clock: { now: () => now }, proxyCredential: () => undefined, onTls: () => {} },
    );
    return {
      pass: (ms: number) => {
        now += ms;
      },
      connect: async (): Promise<boolean> => {
        const [[accepted], socket] = await Promise.all([once(server, 'secureConnection'), open()]);
        // The tickets of TLS 1.3 come before the first byte.
        (accepted as TLSSocket).end('.');
        socket.resume();
        await once(socket, 'close');
        return (accepted as TLSSocket).isSessionReused();
      },
    };
  }

  test('are resumed for an hour, however often, and then the certificate is checked again', async () => {
    const { connect, pass } = await resuming(600 * MINUTE_MS);
    expect(await connect()).toBe(false);
    for (let minutes = 0; minutes < 50; minutes += 10) {
      pass(10 * MINUTE_MS);
      expect(await connect()).toBe(true);
    }
    pass(10 * MINUTE_MS);
    expect(await connect()).toBe(false);
    expect(await connect()).toBe(true);
  });

  test('are not resumed once the certificate has expired', async () => {
    const { connect, pass } = await resuming(20 * MINUTE_MS);
    expect([await connect(), await connect()]).toEqual([false, true]);
    pass(20 * MINUTE_MS);
    expect(await connect()).toBe(false);
  });

  test('that the upstream cannot resume cost one connection, and not each one of the next hour', async () => {
    const authority = await createTestAuthority();
    const secureContext = createSecureContext({ ...(await authority.server()), maxVersion: version });
    // OpenSSL ends a handshake with a session whose context has no name, if it asks for a certificate.
    const options = { isServer: true, secureContext, requestCert: true, rejectUnauthorized: false };
    const server = createServer((raw) => {
      const socket = new TLSSocket(raw, options);
      socket.on('error', () => raw.destroy()).on('secure', () => socket.end('.'));
    }).listen(0, '127.0.0.1');
    closing.push(() => server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    // The first address accepts nothing: that is no reason to forget the session.
    const open = connector(
      {
        origin: `https://localhost:${port}`,
        timeout: 60_000,
        tls: { ...USUAL_TLS, ca: authority.ca },
        egress: { localAddress: '127.0.0.1', proxy: undefined },
      },
      {
        clock: { now: () => 0 },
        proxyCredential: () => undefined,
        onTls: () => {},
        lookup: finding(['127.0.0.3', '127.0.0.1']),
      },
    );
    const outcomes: string[] = [];
    for (let count = 0; count < 4; count += 1) {
      const socket = await open().catch((error) => void outcomes.push(errorCode(error)));
      if (socket === undefined) continue;
      outcomes.push('open');
      socket.resume();
      await once(socket, 'close');
    }
    expect(outcomes).toEqual(['open', expect.stringContaining('_ALERT_'), 'open', 'open']);
  });
});
