import { once } from 'node:events';
import { type AddressInfo, connect as connectTcp, createServer, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { recordsIn, useFolders } from '../../support/audit-log.ts';
import { closing } from '../../support/closing.ts';
import { createTestAuthority } from '../../support/issued-certificates.ts';
import { startConnections, type UpstreamConnection } from '../../support/scripted-upstream.ts';
import {
  type AuditedGateway,
  ask,
  challenge,
  errorsLogged,
  expectOthersServed,
  isSigned,
  OK,
  OTHERS_MS,
  OWN_MS,
  startDeadlines,
  type Timeout,
} from './deadlines.ts';

/*
 * Each fault ends within its own timeout, which is a hundredth of the others, and is told by its own code. Meanwhile
 * another request to the same deployment, which has two connections, and one to another deployment are served.
 */

const REQUESTS = 'digest_gateway_requests_total';
const HEAD = 'HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n';
const plaintext = { tls: { allowPlaintext: true } };

/** Answers a request for /up/fault, of which this is the head. */
type Fault = (connection: UpstreamConnection, head: string) => Promise<unknown>;

// Hooks run in this order: folders go when nothing writes there any more.
const folder = useFolders();

interface Scene extends AuditedGateway {
  /** Resolves when the upstream has the request for /up/fault. */
  readonly reached: Promise<void>;
}

async function start(timeout: Timeout, fault: Fault): Promise<Scene> {
  const reached = Promise.withResolvers<void>();
  const upstream = await startConnections(async (connection) => {
    for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
      if (head.startsWith('GET /up/fault')) {
        reached.resolve();
        await fault(connection, head);
      } else await connection.write(isSigned(head) ? OK : challenge('first'));
    }
  });
  closing.push(() => upstream.close());
  return {
    ...(await startDeadlines({
      origin: upstream.origin,
      settings: plaintext,
      timeout,
      directory: await folder(),
    })),
    reached: reached.promise,
  };
}

/** Sends this again and again, after pauses that are much shorter than `OWN_MS`. */
async function trickle(connection: UpstreamConnection, text: string): Promise<void> {
  while (!connection.isClosed) {
    await connection.write(text);
    await delay(OWN_MS / 20);
  }
}
/** Sends the request that meets the fault; others meanwhile are served. Resolves to what its client got. */
async function outcomeOf({ gateway, reached, ownMs }: Scene): Promise<string> {
  const begun = performance.now();
  let outcome: string | undefined;
  const asked = ask(gateway, '/up/fault').then((result) => {
    outcome = result;
    return result;
  });
  await reached;
  await expectOthersServed(gateway);
  expect(outcome).toBeUndefined();
  await asked;
  expect(performance.now() - begun).toBeLessThan(OTHERS_MS);
  expect(performance.now() - begun).toBeGreaterThanOrEqual(ownMs - 1);
  await expectOthersServed(gateway);
  return asked;
}

/** Checks metric, log line and audit records of a request that failed with this code. */
async function expectTold(
  { gateway, directory }: Scene,
  status: number,
  code: string,
  detail: string,
): Promise<void> {
  expect(await gateway.metric(REQUESTS, { deployment: 'up', status: `${status}`, code })).toBe(1);
  const failed = { deployment: 'up', result: 'error' };
  expect(await gateway.metric('digest_gateway_upstream_attempts_total', failed)).toBe(1);
  expect(await gateway.metric('digest_gateway_requests_in_flight')).toBe(0);
  expect(errorsLogged(gateway)).toEqual([
    expect.objectContaining({ level: 'warn', deployment: 'up', code, msg: expect.stringContaining(detail) }),
  ]);
  await gateway.close();
  const records = (await recordsIn(directory)).filter(({ requestId }) => requestId === '.up.fault');
  expect(records.at(-1)).toMatchObject({ status, code, durationMs: expect.any(Number) });
}

describe('a response that does not begin ends by timeouts.response: 504 upstream-timeout', () => {
  const faults: [string, Fault][] = [
    ['nothing comes', (connection) => connection.closed()],
    [
      'its head comes byte by byte',
      async (connection) => {
        await connection.write('HTTP/1.1 200 OK\r\nA: ');
        await trickle(connection, 'a');
      },
    ],
    [
      'its head comes line by line',
      async (connection) => {
        await connection.write('HTTP/1.1 200 OK\r\n');
        await trickle(connection, 'A: b\r\n');
      },
    ],
    ['interim responses come', (connection) => trickle(connection, 'HTTP/1.1 103 Hints\r\nA: b\r\n\r\n')],
    ['100 (Continue) comes', (connection) => trickle(connection, 'HTTP/1.1 100 Continue\r\n\r\n')],
  ];
  test.each(faults)('%s', async (_what, fault) => {
    const scene = await start('response', fault);
    expect(await outcomeOf(scene)).toBe('504 upstream-timeout');
    await expectTold(scene, 504, 'upstream-timeout', 'timeouts.response');
  });
});

describe('a body that does not end is broken off', () => {
  const faults: [string, Timeout, Fault][] = [
    [
      'by timeouts.idle if it stops',
      'idle',
      async (connection) => {
        await connection.write(`${HEAD}x`);
        await connection.closed();
      },
    ],
    [
      'by timeouts.total if it comes byte by byte',
      'total',
      async (connection) => {
        await connection.write(HEAD);
        await trickle(connection, 'x');
      },
    ],
    [
      'by timeouts.total if it comes fast',
      'total',
      async (connection) => {
        await connection.write(HEAD);
        while (!connection.isClosed) await connection.write('x'.repeat(1024));
      },
    ],
    [
      'by timeouts.total if it comes in chunks without end',
      'total',
      async (connection) => {
        await connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
        await trickle(connection, '1\r\nx\r\n');
      },
    ],
    [
      'by timeouts.idle if nothing but the size of a chunk comes, digit by digit',
      'idle',
      async (connection) => {
        await connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n');
        await trickle(connection, '0');
      },
    ],
    [
      'by timeouts.idle if nothing but trailers come',
      'idle',
      async (connection) => {
        await connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n');
        await trickle(connection, 'A: b\r\n');
      },
    ],
  ];
  test.each(faults)('%s', async (_what, timeout, fault) => {
    const scene = await start(timeout, fault);
    expect(await outcomeOf(scene)).toBe('200 broken off');
    await expectTold(scene, 200, 'upstream-timeout', `timeouts.${timeout}`);
  });
});

describe('a 401 whose body does not end is answered all the same', () => {
  const faults: [string, (connection: UpstreamConnection) => Promise<unknown>][] = [
    ['if it stops', (connection) => connection.closed()],
    ['if it comes byte by byte', (connection) => trickle(connection, 'x')],
  ];
  test.each(faults)('%s', async (_what, after) => {
    const scene = await start('connect', async (connection, head) => {
      if (head.includes('nonce="second"')) {
        await connection.write(OK);
        return;
      }
      await connection.write(challenge('second', 'Content-Length: 1000\r\n\r\nno'));
      await after(connection);
    });
    expect(await outcomeOf(scene)).toBe('200 ok');
    expect(await scene.gateway.metric(REQUESTS, { code: '' })).toBe(7);
    expect(errorsLogged(scene.gateway)).toEqual([]);
  });
});

test('a TLS handshake that does not end ends by timeouts.connect: 504 upstream-timeout', async () => {
  const authority = await createTestAuthority();
  const hold = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  const upstream = await startConnections(
    async (connection) => {
      for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
        if (head.startsWith('GET /up/held')) {
          held.resolve();
          await hold.promise;
        }
        await connection.write(isSigned(head) ? OK : challenge('first'));
      }
    },
    await authority.server(),
  );
  closing.push(() => upstream.close());
  const reached = Promise.withResolvers<void>();
  const relay = await startFirstOnly(new URL(upstream.origin).port, () => reached.resolve());
  const audited = await startDeadlines({
    origin: relay,
    ca: authority.ca,
    // A health check would be the first connection, or a later one.
    settings: { health: { interval: 'off' } },
    timeout: 'connect',
    directory: await folder(),
  });
  // The connection that is open is busy, so the next request needs another one.
  const first = ask(audited.gateway, '/up/held');
  await held.promise;
  const scene = {
    ...audited,
    reached: reached.promise.then(async () => {
      hold.resolve();
      await first;
    }),
  };
  expect(await outcomeOf(scene)).toBe('504 upstream-timeout');
  await expectTold(scene, 504, 'upstream-timeout', 'timeouts.connect');
});

/** Relays the first connection to the port. Of each later one it reads, and says nothing. */
async function startFirstOnly(port: string, onLater: () => void): Promise<string> {
  const sockets = new Set<Socket>();
  let count = 0;
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => socket.destroy()));
    count += 1;
    if (count > 1) {
      socket.resume();
      onLater();
      return;
    }
    const target = connectTcp(Number(port), '127.0.0.1');
    sockets.add(target.on('error', () => socket.destroy()));
    socket.pipe(target).pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closing.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
