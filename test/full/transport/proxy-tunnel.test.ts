import { execFile } from 'node:child_process';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import { monotonicClock } from '../../../src/base/clock.ts';
import { GatewayError } from '../../../src/base/errors.ts';
import { fieldValue, type RawHeaders } from '../../../src/base/raw-headers.ts';
import { Secret } from '../../../src/base/secret.ts';
import type { AlgorithmName } from '../../../src/digest/algorithms.ts';
import type { ProxyOptions } from '../../../src/transport/egress.ts';
import type { Connect } from '../../../src/transport/proxy-connection.ts';
import {
  proxyAuthenticationError,
  proxyError,
  proxyRefuses,
  proxyTooSlow,
} from '../../../src/transport/proxy-errors.ts';
import { type ProxyAccount, ProxyAuthentication, ProxyTunnel } from '../../../src/transport/proxy-tunnel.ts';
import { closing } from '../../support/closing.ts';
import { createTestAuthority } from '../../support/issued-certificates.ts';
import {
  type ScriptedConnections,
  type ScriptedUpstream,
  startConnections,
  startRawUpstream,
  startUpstream,
  type UpstreamConnection,
} from '../../support/scripted-upstream.ts';
import { proxyAccount, type Squid, type SquidOptions, startSquid } from '../../support/squid.ts';
import { until } from '../../support/until.ts';

const named = { name: 'proxy', version: '1', changedAt: undefined };
const credential = { ...named, username: proxyAccount.username, password: new Secret(proxyAccount.password) };
const URI = 'upstream.example:443';
const ALGORITHMS: readonly AlgorithmName[] = ['SHA-512-256', 'SHA-256', 'MD5'];
const proxyDefaults = { credential: 'proxy', algorithms: ALGORITHMS, allowPlaintext: false, ca: undefined };

function tunnelThrough(
  proxy: string,
  options: Partial<ProxyOptions> & { now?: () => number } = {},
): ProxyTunnel {
  const { now = () => monotonicClock.now(), ...rest } = options;
  return new ProxyTunnel(
    {
      proxy: { ...proxyDefaults, origin: proxy, ...rest },
      origin: 'https://upstream.example',
      localAddress: undefined,
      timeout: 5000,
    },
    { clock: { now }, credential: () => credential },
  );
}

/** The error for a connection to the proxy that ended with this code. */
const failed = (code: string): GatewayError => proxyError(Object.assign(new Error(code), { code }));

/** Opens and closes a tunnel; `open`, or the sentence that the client is told. */
async function outcome(tunnel: ProxyTunnel): Promise<string> {
  try {
    (await tunnel.open()).destroy();
    return 'open';
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    expect(error.code).toBe('upstream-unreachable');
    return error.detail;
  }
}

describe('Squid', () => {
  async function throughSquid(options: SquidOptions): Promise<{ squid: Squid; tunnel: ProxyTunnel }> {
    const [squid, upstream] = await Promise.all([startSquid(options), startRawUpstream(() => '')]);
    closing.push(
      () => squid.close(),
      () => upstream.close(),
    );
    const tunnel = new ProxyTunnel(
      {
        proxy: { ...proxyDefaults, origin: squid.url, ca: squid.ca },
        origin: upstream.origin,
        localAddress: undefined,
        timeout: 5000,
      },
      { clock: monotonicClock, credential: () => credential },
    );
    return { squid, tunnel };
  }

  /** The statuses that Squid logged, each once its connection has ended. */
  async function statuses(squid: Squid, count: number): Promise<number[]> {
    await until(async () => (await squid.log()).length === count);
    return (await squid.log()).map(({ status }) => status);
  }

  test('is answered with one nonce, counted on, tunnel after tunnel', async () => {
    const { squid, tunnel } = await throughSquid({ auth: 'digest' });
    for (let index = 0; index < 4; index += 1) expect(await outcome(tunnel)).toBe('open');
    expect((await statuses(squid, 5)).filter((status) => status === 407)).toHaveLength(1);
  });

  test('that calls a nonce stale is answered with the next', async () => {
    const { squid, tunnel } = await throughSquid({ auth: 'digest', nonceUses: 2 });
    for (let index = 0; index < 6; index += 1) expect(await outcome(tunnel)).toBe('open');
    const seen = await squid.log();
    expect(seen.filter(({ status }) => status === 407).length).toBeGreaterThan(1);
  });

  test('gets Basic unasked from the second tunnel on', async () => {
    const { squid, tunnel } = await throughSquid({ auth: 'basic' });
    for (let index = 0; index < 3; index += 1) expect(await outcome(tunnel)).toBe('open');
    expect((await statuses(squid, 4)).filter((status) => status === 407)).toHaveLength(1);
  });
});

describe('a proxy that answers', () => {
  const OK = 'HTTP/1.1 200 OK\r\n\r\n';
  const asks = (...challenges: string[]): string =>
    `HTTP/1.1 407 No\r\n${challenges.map((each) => `Proxy-Authenticate: ${each}\r\n`).join('')}\r\n`;
  const DIGEST = 'Digest realm="r", nonce="n", qop="auth"';

  /** A proxy that gives these answers, the last one again and again; `heads`: what it was sent. */
  async function scripted(...answers: string[]): Promise<{ proxy: ScriptedUpstream; heads: string[] }> {
    const heads: string[] = [];
    const proxy = await startRawUpstream((head) => {
      heads.push(head);
      return answers[Math.min(heads.length, answers.length) - 1] ?? '';
    });
    closing.push(() => proxy.close());
    return { proxy, heads };
  }

  test('with 200 is told the authority of the upstream, and nothing of a credential', async () => {
    const { proxy, heads } = await scripted(OK);
    expect(await outcome(tunnelThrough(proxy.origin))).toBe('open');
    expect(heads[0]?.split('\r\n').slice(0, 2)).toEqual([`CONNECT ${URI} HTTP/1.1`, `host: ${URI}`]);
    expect(heads[0]).not.toMatch(/authorization/i);
  });

  test('with several challenges is answered with Digest, for the method and target of CONNECT', async () => {
    const { proxy, heads } = await scripted(asks('Basic realm="r"', 'NTLM', DIGEST), OK);
    expect(await outcome(tunnelThrough(proxy.origin))).toBe('open');
    expect(heads[1]).toMatch(
      /^proxy-authorization: Digest username="proxy-user".*uri="upstream.example:443".*nc=00000001/im,
    );
  });

  test('with domain and parameters that nobody knows is answered as without', async () => {
    const { proxy, heads } = await scripted(
      asks(`${DIGEST}, domain="/elsewhere http://a.example/", x="y"`),
      OK,
    );
    const tunnel = tunnelThrough(proxy.origin);
    expect([await outcome(tunnel), await outcome(tunnel)]).toEqual(['open', 'open']);
    expect(heads[1]).not.toMatch(/domain|x="y"/);
    expect(heads[2]).toMatch(/nc=00000002/);
  });

  test('with nextnonce gets that one, from 1 on', async () => {
    const { proxy, heads } = await scripted(
      asks(DIGEST),
      'HTTP/1.1 200 OK\r\nProxy-Authentication-Info: nextnonce="n2"\r\n\r\n',
    );
    const tunnel = tunnelThrough(proxy.origin);
    expect([await outcome(tunnel), await outcome(tunnel)]).toEqual(['open', 'open']);
    expect(heads).toHaveLength(3);
    expect(heads[2]).toMatch(/nonce="n2".*nc=00000001/);
  });

  test('gives each CONNECT under way a nonce of its own', async () => {
    let issued = 0;
    const sent: string[] = [];
    const proxy = await startRawUpstream((head) => {
      const [, nonce] = /nonce="(n\d+)"/.exec(head) ?? [];
      if (nonce !== undefined) {
        sent.push(`${nonce} ${/nc=\d+/.exec(head)?.[0]}`);
        return OK;
      }
      issued += 1;
      return asks(`Digest realm="r", nonce="n${issued}", qop="auth"`);
    });
    closing.push(() => proxy.close());
    const tunnel = tunnelThrough(proxy.origin);
    expect(await outcome(tunnel)).toBe('open');
    expect(await Promise.all([outcome(tunnel), outcome(tunnel)])).toEqual(['open', 'open']);
    expect(sent.sort()).toEqual(['n1 nc=00000001', 'n1 nc=00000002', 'n2 nc=00000001']);
  });

  test('that forgets its nonces and does not say stale refuses no credential', async () => {
    let issued = 0;
    let oldest = 0;
    const known = (head: string): boolean => Number(/nonce="n(\d+)"/.exec(head)?.[1] ?? -1) >= oldest;
    const proxy = await startRawUpstream((head) => {
      if (known(head)) return OK;
      issued += 1;
      return asks(`Digest realm="r", nonce="n${issued}", qop="auth"`);
    });
    closing.push(() => proxy.close());
    const tunnel = tunnelThrough(proxy.origin);
    const outcomes = () => Promise.all([outcome(tunnel), outcome(tunnel), outcome(tunnel)]);
    expect(await outcomes()).toEqual(['open', 'open', 'open']);
    // As after a restart of the proxy.
    oldest = issued + 1;
    expect(await outcomes()).toEqual(['open', 'open', 'open']);
  });

  test('with another password than before is asked once, and no more for half a minute', async () => {
    let now = 0;
    const { proxy, heads } = await scripted(asks(DIGEST), OK, asks(DIGEST.replace('"n"', '"n2"')));
    const tunnel = tunnelThrough(proxy.origin, { now: () => now });
    expect(await outcome(tunnel)).toBe('open');
    const refused = proxyAuthenticationError('credential-refused').detail;
    // The nonce that was known, then a challenge of its own.
    expect([await outcome(tunnel), await outcome(tunnel), heads.length]).toEqual([refused, refused, 4]);
    now = 30_000;
    expect([await outcome(tunnel), await outcome(tunnel), heads.length]).toEqual([refused, refused, 6]);
  });

  const stale = `${DIGEST}, stale=true`;
  const rows: [string, string[], GatewayError][] = [
    [
      '200 with a wrong rspauth',
      [asks(DIGEST), 'HTTP/1.1 200 OK\r\nProxy-Authentication-Info: rspauth="00"\r\n\r\n'],
      proxyAuthenticationError('proof-invalid'),
    ],
    ['407 without any challenge', [asks()], proxyAuthenticationError('unusable-challenge')],
    ['407 with another scheme', [asks('NTLM')], proxyAuthenticationError('unusable-challenge')],
    ['stale again and again', [asks(stale)], proxyAuthenticationError('always-stale')],
    ['403', ['HTTP/1.1 403 No\r\n\r\n'], proxyRefuses(403)],
    ['502', ['HTTP/1.1 502 No\r\n\r\n'], proxyRefuses(502)],
    ['302', ['HTTP/1.1 302 No\r\n\r\n'], proxyRefuses(302)],
    ['something that is not HTTP', ['SSH-2.0-OpenSSH_9.2\r\n'], failed('HPE_INVALID_CONSTANT')],
  ];
  test.each(rows)('%s is told as such', async (_name, answers, { detail }) => {
    const { proxy } = await scripted(...answers);
    expect(await outcome(tunnelThrough(proxy.origin))).toBe(detail);
  });

  const noQop = 'Digest realm="r", nonce="n"';
  const basic = 'Basic realm="r"';
  test.each<[string, readonly AlgorithmName[], string[]]>([
    ['Digest without qop', ALGORITHMS, [noQop]],
    ['Digest with another algorithm than digest.algorithms', ['SHA-256'], [DIGEST]],
    ['Digest without qop, and Basic', ALGORITHMS, [basic, noQop]],
    ['Digest with another algorithm, and Basic', ['SHA-256'], [DIGEST, basic]],
    [
      'Digest with an algorithm that nobody knows, and Basic',
      ALGORITHMS,
      [`${DIGEST}, algorithm=SHA-1`, basic],
    ],
  ])('with %s gets nothing of the credential', async (_name, algorithms, challenges) => {
    const { proxy, heads } = await scripted(asks(...challenges), OK);
    expect(await outcome(tunnelThrough(proxy.origin, { algorithms }))).toBe(
      proxyAuthenticationError('weak-challenge').detail,
    );
    expect(heads).toEqual([expect.not.stringMatching(/authorization/i)]);
  });

  test('with a strong challenge without qop and a weaker one with qop is answered with the second', async () => {
    const { proxy, heads } = await scripted(asks(`${noQop}, algorithm=SHA-256`, DIGEST), OK);
    expect(await outcome(tunnelThrough(proxy.origin))).toBe('open');
    expect(heads[1]).toMatch(/^proxy-authorization: Digest (?!.*SHA-256).*qop=auth/im);
  });

  describe('on another machine without TLS', () => {
    // Reaches this machine on Linux, and is no loopback address.
    const elsewhere = ({ origin }: ScriptedUpstream): string => origin.replace('127.0.0.1', '0.0.0.0');

    test.each([DIGEST, basic])(
      'gets nothing of the credential unless allowPlaintext is true: %s',
      async (challenge) => {
        const { proxy, heads } = await scripted(asks(challenge), OK);
        expect(await outcome(tunnelThrough(elsewhere(proxy)))).toContain('egress.proxy.allowPlaintext');
        expect(heads).toEqual([expect.not.stringMatching(/authorization/i)]);
        expect(await outcome(tunnelThrough(elsewhere(proxy), { allowPlaintext: true }))).toBe('open');
      },
    );

    test('makes tunnels as long as it does not ask', async () => {
      const { proxy } = await scripted(OK);
      expect(await outcome(tunnelThrough(elsewhere(proxy)))).toBe('open');
    });
  });

  test('a credential that it refused is kept back for half a minute, then tried once', async () => {
    let now = 0;
    const { proxy, heads } = await scripted(asks(DIGEST));
    const tunnel = tunnelThrough(proxy.origin, { now: () => now });
    const refused = proxyAuthenticationError('credential-refused').detail;
    expect([await outcome(tunnel), await outcome(tunnel), heads.length]).toEqual([refused, refused, 2]);
    now = 30_000;
    expect([await outcome(tunnel), await outcome(tunnel), heads.length]).toEqual([refused, refused, 4]);
  });

  test('a credential that it refused is kept back although a reload reads it again', async () => {
    const { proxy, heads } = await scripted(asks(DIGEST));
    const tunnel = new ProxyTunnel(
      {
        proxy: { ...proxyDefaults, origin: proxy.origin },
        origin: 'https://a',
        localAddress: undefined,
        timeout: 5000,
      },
      { clock: { now: () => 0 }, credential: () => ({ ...credential }) },
    );
    const refused = proxyAuthenticationError('credential-refused').detail;
    expect([await outcome(tunnel), await outcome(tunnel), heads.length]).toEqual([refused, refused, 2]);
  });

  test.each([DIGEST, basic])(
    'a wrong password reaches it once, however many tunnels begin: %s',
    async (challenge) => {
      const { proxy, heads } = await scripted(asks(challenge));
      const tunnel = tunnelThrough(proxy.origin);
      const refused = proxyAuthenticationError('credential-refused').detail;
      const outcomes = await Promise.all(Array.from({ length: 12 }, () => outcome(tunnel)));
      expect(new Set(outcomes)).toEqual(new Set([refused]));
      expect(heads.filter((head) => /proxy-authorization/i.test(head))).toHaveLength(1);
    },
  );

  test('tunnels do not wait for each other once it responds with something else than 407', async () => {
    const held: (() => void)[] = [];
    const open = new ProxyAuthentication(
      { credential, algorithms: ALGORITHMS, mayAnswer: true, authority: URI, patienceMs: 5000 },
      monotonicClock,
    );
    const reply = { kind: 'reply' as const, status: 403, headers: [], socket: new Socket() };
    const connect: Connect = () =>
      new Promise((resolve) => {
        held.push(() => resolve(reply));
      });
    const opened = Promise.allSettled([open.open(connect), open.open(connect), open.open(connect)]);
    await until(() => held.length > 0);
    expect(held).toHaveLength(1);
    held.shift()?.();
    await until(() => held.length === 2);
    for (const answer of held) answer();
    expect((await opened).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
  });

  test('a credential that is exchanged is tried at once', async () => {
    const { proxy, heads } = await scripted(asks(DIGEST), asks(DIGEST), asks(DIGEST), OK);
    let current = credential;
    const options = { ...proxyDefaults, origin: proxy.origin };
    const tunnel = new ProxyTunnel(
      { proxy: options, origin: 'https://a', localAddress: undefined, timeout: 5000 },
      { clock: monotonicClock, credential: () => current },
    );
    expect(await outcome(tunnel)).toBe(proxyAuthenticationError('credential-refused').detail);
    current = { ...named, version: '2', username: 'next-user', password: new Secret('next-word') };
    expect(await outcome(tunnel)).toBe('open');
    expect(heads[3]).toContain('username="next-user"');
  });

  test.each([undefined, '127.0.0.1'])(
    'is reached at the first address of its name that accepts, from %s',
    async (localAddress) => {
      const { proxy } = await scripted(OK);
      const found = ['127.0.0.3', '127.0.0.1'].map((address) => ({ address, family: 4 }));
      const lookup = ((_name: string, { all }: { all?: boolean }, done: (...results: unknown[]) => void) =>
        all === true ? done(null, found) : done(null, '127.0.0.3', 4)) as typeof import('node:dns').lookup;
      const origin = proxy.origin.replace('127.0.0.1', 'proxy.test');
      const tunnel = new ProxyTunnel(
        { proxy: { ...proxyDefaults, origin }, origin: 'https://a', localAddress, timeout: 5000 },
        { clock: monotonicClock, credential: () => credential, lookup },
      );
      expect(await outcome(tunnel)).toBe('open');
    },
  );

  test('nothing is told to be slow', async () => {
    const { proxy } = await scripted('');
    const options = { ...proxyDefaults, origin: proxy.origin };
    const tunnel = new ProxyTunnel(
      { proxy: options, origin: 'https://a', localAddress: undefined, timeout: 50 },
      { clock: monotonicClock, credential: () => credential },
    );
    expect(await outcome(tunnel)).toBe(proxyTooSlow().detail);
  });

  test('with plain HTTP where TLS is expected is told as such', async () => {
    const plain = await startUpstream((_request, response) => response.end());
    closing.push(() => plain.close());
    expect(await outcome(tunnelThrough(plain.origin.replace('http:', 'https:')))).toBe(
      failed('ERR_SSL_WRONG_VERSION_NUMBER').detail,
    );
  });

  test('with an untrusted certificate gets nothing, whatever NODE_TLS_REJECT_UNAUTHORIZED says', async () => {
    const heads: string[] = [];
    const authority = await createTestAuthority();
    const proxy = await startConnections(
      async (connection) => {
        const head = await connection.request();
        if (head === undefined) return;
        heads.push(String(head));
        await connection.write(OK);
      },
      await authority.server(),
    );
    closing.push(() => proxy.close());
    // Node.js reads the environment of the process, which tests share.
    const source = join(import.meta.dirname, '../../../src');
    const program = `
      import { ProxyTunnel } from '${source}/transport/proxy-tunnel.ts';
      import { monotonicClock } from '${source}/base/clock.ts';
      const proxy = { origin: '${proxy.origin}', algorithms: [], allowPlaintext: false };
      const options = { proxy, origin: 'https://a', localAddress: undefined, timeout: 20_000 };
      const tunnel = new ProxyTunnel(options, { clock: monotonicClock, credential: () => undefined });
      await tunnel.open().then(() => console.log('open'), (error) => console.log(error.detail));
      process.exit();`;
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], {
      env: { NODE_TLS_REJECT_UNAUTHORIZED: '0' },
    });
    expect([stdout.trim(), heads]).toEqual([failed('UNABLE_TO_VERIFY_LEAF_SIGNATURE').detail, []]);
  });

  test('not at all is told by its name', async () => {
    const { proxy } = await scripted(OK);
    await proxy.close();
    closing.pop();
    expect(await outcome(tunnelThrough(proxy.origin))).toBe(failed('ECONNREFUSED').detail);
    expect(await outcome(tunnelThrough('http://proxy.invalid:3128'))).toBe(failed('ENOTFOUND').detail);
  });
});

describe('a 407 is answered', () => {
  const OK = 'HTTP/1.1 200 OK\r\n\r\n';
  const DIGEST = 'Digest realm="r", nonce="n", qop="auth"';
  const EMPTY = 'Content-Length: 0\r\n\r\n';
  const asks = (challenge: string, rest = EMPTY, version = '1.1'): string =>
    `HTTP/${version} 407 No\r\nProxy-Authenticate: ${challenge}\r\n${rest}`;

  /** A proxy that responds so to each CONNECT; undefined: closes. `seen`: connection and scheme of each CONNECT. */
  async function proxying(
    respond: (head: string, connection: UpstreamConnection) => string | undefined,
  ): Promise<{ tunnel: ProxyTunnel; seen: string[]; proxy: ScriptedConnections }> {
    const seen: string[] = [];
    const proxy = await startConnections(async (connection) => {
      for (;;) {
        const head = await connection.request();
        if (head === undefined) return;
        const [, scheme = '-'] = /^proxy-authorization: (\w+)/im.exec(head) ?? [];
        seen.push(`${connection.number} ${scheme}`);
        const response = respond(head, connection);
        if (response === undefined) connection.end();
        else await connection.write(response);
      }
    });
    closing.push(() => proxy.close());
    return { tunnel: tunnelThrough(proxy.origin), seen, proxy };
  }

  test.each([2, 3])(
    'by the server of a farm that asked: %s servers with nonces of their own',
    async (servers) => {
      for (const stale of [', stale=true', '']) {
        let issued = 0;
        const known = new Map<string, number>();
        const { tunnel, proxy } = await proxying((head, { number }) => {
          const [, nonce = ''] = /nonce="(\w+)"/.exec(head) ?? [];
          if (known.get(nonce) === number % servers) return OK;
          issued += 1;
          known.set(`n${issued}`, number % servers);
          return asks(`Digest realm="r", nonce="n${issued}", qop="auth"${nonce === '' ? '' : stale}`);
        });
        for (let index = 0; index < 4; index += 1) expect(await outcome(tunnel)).toBe('open');
        expect(await Promise.all([outcome(tunnel), outcome(tunnel)])).toEqual(['open', 'open']);
        expect(proxy.count).toBe(6);
      }
    },
  );

  test.each([
    ['a length', asks(DIGEST, 'Content-Length: 5\r\n\r\nno no')],
    ['no body', asks(DIGEST)],
    ['chunks', asks(DIGEST, 'Transfer-Encoding: chunked\r\n\r\n2\r\nno\r\n3;x=y\r\n no\r\n0\r\n\r\n')],
    ['HTTP/1.0 and keep-alive', asks(DIGEST, `Proxy-Connection: keep-alive\r\n${EMPTY}`, '1.0')],
    ['64 KiB', asks(DIGEST, `Content-Length: 65536\r\n\r\n${'x'.repeat(65_536)}`)],
  ])('on the connection that brought it: with %s', async (_name, first) => {
    const { tunnel, seen } = await proxying((head) => (/authorization/i.test(head) ? OK : first));
    expect(await outcome(tunnel)).toBe('open');
    expect(seen).toEqual(['1 -', '1 Digest']);
  });

  test('on the connection that brought it, when its body has come in pieces', async () => {
    const proxy = await startConnections(async (connection) => {
      await connection.request();
      await connection.trickle(asks(DIGEST, 'Transfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n'));
      if ((await connection.request()) !== undefined) await connection.write(OK);
    });
    closing.push(() => proxy.close());
    expect(await outcome(tunnelThrough(proxy.origin))).toBe('open');
    expect(proxy.count).toBe(1);
  });

  test.each([
    ['Connection: close', asks(DIGEST, `Connection: close\r\n${EMPTY}`)],
    ['Proxy-Connection: close', asks(DIGEST, `Proxy-Connection: close\r\n${EMPTY}`)],
    ['HTTP/1.0', asks(DIGEST, EMPTY, '1.0')],
    ['no length', asks(DIGEST, '\r\nno')],
    ['a coding that is not chunked', asks(DIGEST, 'Transfer-Encoding: gzip\r\n\r\n')],
    ['a large body', asks(DIGEST, `Content-Length: 65537\r\n\r\n${'x'.repeat(65_537)}`)],
    [
      'large chunks',
      asks(DIGEST, `Transfer-Encoding: chunked\r\n\r\n10001\r\n${'x'.repeat(65_537)}\r\n0\r\n\r\n`),
    ],
    ['malformed chunks', asks(DIGEST, 'Transfer-Encoding: chunked\r\n\r\nno\r\n\r\n')],
    ['trailers', asks(DIGEST, 'Transfer-Encoding: chunked\r\n\r\n0\r\nConnection: close\r\n\r\n')],
    ['bytes behind it', asks(DIGEST, `Content-Length: 2\r\n\r\nno${OK}`)],
  ])('on a new connection: with %s', async (_name, first) => {
    const { tunnel, seen, proxy } = await proxying((head) => (/authorization/i.test(head) ? OK : first));
    expect(await outcome(tunnel)).toBe('open');
    expect([seen, proxy.count]).toEqual([['1 -', '2 Digest'], 2]);
  });

  test('on a new connection, if its body does not come', async () => {
    const first = asks(DIGEST, 'Content-Length: 5\r\n\r\nno');
    const { tunnel, seen } = await proxying((head) => (/authorization/i.test(head) ? OK : first));
    expect(await outcome(tunnel)).toBe('open');
    expect(seen).toEqual(['1 -', '2 Digest']);
  });

  test.each([DIGEST, 'Basic realm="r"'])(
    'on a new connection if the proxy has closed the old one: %s',
    async (challenge) => {
      const { tunnel } = await proxying((head, connection) => {
        if (/authorization/i.test(head)) return OK;
        void connection.write(asks(challenge)).then(() => connection.reset());
        return '';
      });
      expect([await outcome(tunnel), await outcome(tunnel)]).toEqual(['open', 'open']);
    },
  );

  test.each<[string, (head: string) => string | undefined]>([
    ['is closed', () => undefined],
    ['brings what is no response', () => 'no'],
  ])('once more with a nonce of its own if the connection %s meanwhile', async (_name, second) => {
    let issued = 0;
    const nonces: string[] = [];
    const { tunnel, seen } = await proxying((head, { number }) => {
      const [, nonce] = /nonce="(\w+)"/.exec(head) ?? [];
      if (nonce === undefined) {
        issued += 1;
        return asks(DIGEST.replace('"n"', `"n${issued}"`));
      }
      nonces.push(nonce);
      return number === 1 ? second(head) : OK;
    });
    expect(await outcome(tunnel)).toBe('open');
    expect(seen).toEqual(['1 -', '1 Digest', '2 -', '3 Digest']);
    expect(nonces).toEqual(['n1', 'n2']);
  });

  test('twice at most if the proxy closes each connection that brings it the answer', async () => {
    const { tunnel, seen } = await proxying((head) =>
      /authorization/i.test(head) ? undefined : asks(DIGEST),
    );
    expect(await outcome(tunnel)).toBe(failed('ECONNRESET').detail);
    expect(seen).toEqual(['1 -', '1 Digest', '2 -', '3 Digest']);
  });

  test('with Basic on the connection that brought it', async () => {
    const { tunnel, seen } = await proxying((head) => (/: Basic/i.test(head) ? OK : asks('Basic realm="r"')));
    expect([await outcome(tunnel), await outcome(tunnel)]).toEqual(['open', 'open']);
    expect(seen).toEqual(['1 -', '1 Basic', '2 Basic']);
  });

  describe('with Digest since the proxy asks for that', () => {
    const BASIC = 'Basic realm="r"';
    const refused = proxyAuthenticationError('credential-refused').detail;

    /** A proxy that has accepted Basic, and asks for something else from now on; `accepts`: whether it does. */
    async function changed(challenge: string, accepts = true) {
      let isChanged = false;
      const scene = await proxying((head) => {
        if (!isChanged) return /: Basic/i.test(head) ? OK : asks(BASIC);
        return accepts && /: Digest/i.test(head) ? OK : asks(challenge);
      });
      expect(await outcome(scene.tunnel)).toBe('open');
      isChanged = true;
      scene.seen.length = 0;
      return scene;
    }

    test('and not with Basic again', async () => {
      const { tunnel, seen } = await changed(DIGEST);
      expect([await outcome(tunnel), await outcome(tunnel)]).toEqual(['open', 'open']);
      expect(seen).toEqual(['2 Basic', '2 -', '2 Digest', '3 Digest']);
    });

    test('once if it refuses the password, however many tunnels begin', async () => {
      const { tunnel, seen } = await changed(DIGEST, false);
      const outcomes = await Promise.all(Array.from({ length: 6 }, () => outcome(tunnel)));
      expect(new Set(outcomes)).toEqual(new Set([refused]));
      expect(seen.filter((each) => each.endsWith('Digest'))).toHaveLength(1);
    });

    test.each([`${DIGEST}, ${BASIC}`, BASIC, 'Negotiate'])(
      'unless it asks for %s: it refuses the password',
      async (challenge) => {
        const { tunnel, seen } = await changed(challenge);
        expect([await outcome(tunnel), await outcome(tunnel)]).toEqual([refused, refused]);
        expect(seen).toEqual(['2 Basic']);
      },
    );
  });
});

/** Authenticates to a proxy that gives these challenges to a CONNECT without credentials; what the next one carries. */
async function answerTo(account: Pick<ProxyAccount, 'credential'>, ...challenges: string[]) {
  const authentication = new ProxyAuthentication(
    { ...account, algorithms: ALGORITHMS, mayAnswer: true, authority: URI, patienceMs: 5000 },
    monotonicClock,
  );
  let sent: RawHeaders = [];
  const connect: Connect = async (headers) => {
    sent = headers;
    const status = headers.length === 0 ? 407 : 200;
    const fields = challenges.flatMap((line) => ['Proxy-Authenticate', line]);
    return { kind: 'reply', status, headers: fields, socket: new Socket() };
  };
  (await authentication.open(connect)).destroy();
  return fieldValue(sent, 'proxy-authorization');
}

test('a hash of the password answers Digest of its realm, and nothing else', async () => {
  const hashes = { MD5: new Secret('0'.repeat(32)) };
  const account = {
    credential: { ...named, username: 'u', ha1: { realm: 'r', hashes } },
  };
  expect(await answerTo(account, 'Digest realm="r", nonce="n", qop="auth"')).toMatch(/^Digest username="u"/);
  for (const line of [
    'Digest realm="x", nonce="n", qop="auth"',
    'Digest realm="r", nonce="n", qop="auth", algorithm=SHA-256',
    'Basic realm="r"',
  ]) {
    await expect(answerTo(account, line)).rejects.toThrow(proxyAuthenticationError('password-needed').detail);
  }
});

test('Basic carries user name and password as UTF-8', async () => {
  const umlauts = { ...named, username: 'jürgen', password: new Secret('päss') };
  const header = await answerTo({ credential: umlauts }, 'Basic realm="r"');
  expect(header).toBe(`Basic ${Buffer.from('jürgen:päss').toString('base64')}`);
});
