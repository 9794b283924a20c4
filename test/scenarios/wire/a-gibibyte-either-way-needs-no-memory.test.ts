import { createHash, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { describe, expect, test } from '@jest/globals';
import { Client } from 'undici';
import { startSimulator } from '../../../src/simulator/simulator.ts';
import { serveGateway } from '../../support/served-gateway.ts';
import { useRunning } from '../../support/wire.ts';

const GIBIBYTE = 2 ** 30;
const ALLOWED = 64 * 2 ** 20;

const scene = useRunning(async () => {
  const simulator = await startSimulator({
    deployments: { upstream: { kind: 'submissions', family: 'manuscripts', testPaths: true } },
  });
  const { origin } = simulator.deployments.upstream;
  const settings = { body: { max: '2GiB' } };
  const gateway = await serveGateway({ origin, ca: simulator.ca, settings });
  const client = new Client(gateway.origin);
  const close = async () => {
    await client.close();
    await gateway.close();
    await simulator.close();
  };
  return { simulator, gateway, client, close };
});

/** How far a gibibyte makes the process grow above what it holds after a request of the same kind. */
async function growth(transfer: (length: number) => Promise<void>): Promise<number> {
  const { gateway } = scene();
  await transfer(2 ** 16);
  const { now } = await gateway.memory();
  await transfer(GIBIBYTE);
  return (await gateway.memory()).peak - now;
}

describe('through a gateway that grows by less than 64 MiB', () => {
  test('down, over TLS from the upstream', async () => {
    const grown = await growth(async (length) => {
      const answer = await scene().client.request({ path: `/bytes/${length}?chunked`, method: 'GET' });
      const hash = createHash('sha256');
      let received = 0;
      for await (const chunk of answer.body) {
        hash.update(chunk);
        received += chunk.length;
      }
      expect([answer.statusCode, received]).toEqual([200, length]);
      expect(hash.digest('hex')).toBe(answer.trailers['x-checksum']);
    });
    expect(grown).toBeLessThan(ALLOWED);
  });

  test.each(['length', 'chunks'])('up, over TLS to the upstream, with %s', async (framing) => {
    const grown = await growth(async (length) => {
      const size = framing === 'length' ? length : length / 4;
      const hash = createHash('sha256');
      const answer = await scene().client.request({
        path: '/echo',
        method: 'PUT',
        body: Readable.from(blocks(size, (block) => hash.update(block))),
        headers: framing === 'length' ? { 'content-length': String(size) } : {},
      });
      expect(await answer.body.json()).toMatchObject({
        body: { length: size, sha256: hash.digest('hex') },
      });
    });
    expect(grown).toBeLessThan(ALLOWED);
  });
});

async function* blocks(length: number, seen: (block: Buffer) => void): AsyncGenerator<Buffer> {
  const block = randomBytes(2 ** 16);
  for (let left = length; left > 0; left -= block.length) {
    const next = block.subarray(0, Math.min(left, block.length));
    seen(next);
    yield next;
  }
}
