import { connect } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { closing } from '../../../support/closing.ts';
import { startGatewayProcess } from '../../../support/gateway-process.ts';
import { startRawUpstream } from '../../../support/scripted-upstream.ts';
import { useRunning } from '../../../support/wire.ts';

const LIMIT_MS = 120_000;
const MIB = 2 ** 20;
const ONE_BYTE = '1\r\nx\r\n';

describe('a gateway that gets one-byte chunks', () => {
  const CLIENTS = 600;
  /** Chunks of one request. */
  const SENT = 12_000;
  const RESPONSES = 64;
  /** Chunks of one response. */
  const RECEIVED = 60_000;
  const BODY = Buffer.from(ONE_BYTE.repeat(SENT));
  const RESPONSE = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${ONE_BYTE.repeat(RECEIVED)}0\r\n\r\n`;

  const scene = useRunning(async () => {
    const upstream = await startRawUpstream(() => RESPONSE);
    const settings = { tls: { allowPlaintext: true }, connections: RESPONSES };
    const gateway = await startGatewayProcess(
      { upstream: { origin: upstream.origin, settings } },
      {
        listen: { port: 0, limits: { connectionsPerAddress: 2 * CLIENTS } },
        anonymous: false,
        clients: [
          {
            id: 'known',
            identify: { addresses: ['127.0.0.2/32'] },
            allow: [{ deployment: 'upstream', operations: ['*'] }],
          },
        ],
      },
    );
    const close = async () => {
      await gateway.close();
      await upstream.close();
    };
    return { gateway, close };
  });

  /** Sends a request; resolves to the status line and the length of what came when `isWhole` says that it is all. */
  function ask(from: string, request: Buffer, isWhole: (tail: string) => boolean): Promise<[string, number]> {
    const { hostname, port } = new URL(scene().gateway.origin);
    const socket = connect({ host: hostname, port: Number(port), localAddress: from });
    closing.push(() => socket.destroy());
    return new Promise((resolve, reject) => {
      let [start, tail, length] = ['', '', 0];
      socket.on('data', (bytes: Buffer) => {
        if (start === '') start = bytes.toString('latin1').slice(0, 12);
        tail = (tail + bytes.toString('latin1')).slice(-16);
        length += bytes.length;
        if (isWhole(tail)) resolve([start, length]);
      });
      socket.on('error', reject);
      socket.write(request);
    });
  }

  async function grown(run: () => Promise<void>): Promise<number> {
    const { gateway } = scene();
    const { now } = await gateway.memory();
    await run();
    return (await gateway.memory()).peak - now;
  }

  test(
    'from many connections of an unknown client keeps its memory',
    async () => {
      const head = Buffer.from('POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
      const request = Buffer.concat([head, BODY]);
      const growth = await grown(async () => {
        const asked = Array.from({ length: CLIENTS }, () =>
          ask('127.0.0.1', request, (tail) => tail.endsWith('}\n')),
        );
        for (const [start] of await Promise.all(asked)) expect(start).toBe('HTTP/1.1 401');
      });
      expect(growth).toBeLessThan(200 * MIB);
    },
    LIMIT_MS,
  );

  test(
    'from an upstream keeps its memory, and passes every byte on',
    async () => {
      const request = Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
      const growth = await grown(async () => {
        const asked = Array.from({ length: RESPONSES }, () =>
          ask('127.0.0.2', request, (tail) => tail.endsWith('0\r\n\r\n')),
        );
        for (const [start, length] of await Promise.all(asked)) {
          expect(start).toBe('HTTP/1.1 200');
          expect(length).toBeGreaterThan(RECEIVED);
        }
      });
      expect(growth).toBeLessThan(250 * MIB);
    },
    LIMIT_MS,
  );
});
