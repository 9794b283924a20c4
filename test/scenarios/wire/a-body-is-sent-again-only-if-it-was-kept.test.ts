import { createHash } from 'node:crypto';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { startGateway } from '../../support/running-gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { codeOf, echoOf, useClients, useRunning, useWire } from '../../support/wire.ts';

const LIMIT = 64 * 1024;
const settings = { body: { replayUpTo: LIMIT, max: '8MiB' } };
const wire = useWire({ settings });
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

/** Bytes that differ, so that a lost or doubled piece changes the hash. */
function bodyOf(length: number): Buffer<ArrayBuffer> {
  const bytes = Buffer.alloc(length);
  for (let index = 0; index < length; index += 1) bytes[index] = (index * 31 + (index >> 8)) & 0xff;
  return bytes;
}

/** The request whole: its body with a length, or in chunks of 10,000 bytes. */
function requestWith(body: Buffer, framing: 'length' | 'chunks', target = '/echo'): Buffer {
  const head = `POST ${target} HTTP/1.1\r\nHost: x\r\n`;
  if (framing === 'length') {
    return Buffer.concat([Buffer.from(`${head}Content-Length: ${body.length}\r\n\r\n`), body]);
  }
  const pieces: Buffer[] = [Buffer.from(`${head}Transfer-Encoding: chunked\r\n\r\n`)];
  for (let at = 0; at < body.length; at += 10_000) {
    const chunk = body.subarray(at, at + 10_000);
    pieces.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from('\r\n'));
  }
  return Buffer.concat([...pieces, Buffer.from('0\r\n\r\n')]);
}

const sizes = [0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 3_000_000];
const framings = ['length', 'chunks'] as const;
const cases = sizes.flatMap((size) => framings.map((framing) => [size, framing] as const));

describe('the upstream gets the body whole', () => {
  beforeEach(() => wire.simulator.reset('submissions'));

  test.each(cases)('when the nonce is refused: %d bytes by %s', async (size, framing) => {
    const body = bodyOf(size);
    const client = await wire.connect();
    await client.send(requestWith(body, framing));
    expect(echoOf(await client.answer()).body).toEqual({ length: size, sha256: sha256(body) });
    // The reset made every nonce unknown: this was a second try, or a question before the first.
    expect(wire.simulator.counts('submissions')).toMatchObject({ challenges: 1, accepted: 1, requests: 2 });
  });

  test.each(cases)('when no nonce is known: %d bytes by %s', async (size, framing) => {
    const { origin } = wire.simulator.deployments.submissions;
    const gateway = await startGateway({ cold: { origin, ca: wire.simulator.ca, settings } });
    const body = bodyOf(size);
    try {
      const answer = await fetch(`${gateway.origin}/echo`, {
        method: 'PUT',
        body: framing === 'length' ? body : new Blob([body]).stream(),
        ...(framing === 'chunks' && { duplex: 'half' }),
      });
      expect(await answer.json()).toMatchObject({
        method: 'PUT',
        body: { length: size, sha256: sha256(body) },
      });
      expect(wire.simulator.counts('submissions')).toMatchObject({ challenges: 1, accepted: 1, requests: 2 });
    } finally {
      await gateway.close();
    }
  });

  test('many at once, each its own', async () => {
    const lengths = Array.from({ length: 40 }, (_, index) => index * 5_000);
    const seen = await Promise.all(
      lengths.map(async (length, index) => {
        const client = await wire.connect();
        await client.send(requestWith(bodyOf(length), framings[index % 2] ?? 'length'));
        return echoOf(await client.answer()).body;
      }),
    );
    expect(seen).toEqual(lengths.map((length) => ({ length, sha256: sha256(bodyOf(length)) })));
  });
});

describe('on the line to the upstream', () => {
  interface Seen {
    readonly method: string | undefined;
    readonly authenticated: boolean;
    readonly length: number;
  }
  const seen: Seen[] = [];
  const connect = useClients();
  const scene = useRunning(async () => {
    const upstream = await startUpstream(async (req, res) => {
      const authenticated = req.headers.authorization !== undefined;
      let length = 0;
      for await (const chunk of req) length += chunk.length;
      seen.push({ method: req.method, authenticated, length });
      if (!authenticated) res.setHeader('www-authenticate', 'Digest realm="r", nonce="n"');
      res.writeHead(authenticated ? 200 : 401).end();
    });
    const { origin } = upstream;
    const gateway = await startGateway({
      upstream: { origin, settings: { ...settings, tls: { allowPlaintext: true } } },
    });
    const close = async () => {
      await gateway.close();
      await upstream.close();
    };
    return { gateway, close };
  });

  test('a body that is kept goes twice, one that is not goes once, after a question without it', async () => {
    const client = await connect(scene().gateway.port);
    await client.send(requestWith(bodyOf(LIMIT), 'chunks'));
    expect((await client.answer()).status).toBe(200);
    expect(seen.splice(0)).toEqual([
      { method: 'POST', authenticated: false, length: LIMIT },
      { method: 'POST', authenticated: true, length: LIMIT },
    ]);
    for (const framing of framings) {
      await client.send(requestWith(bodyOf(LIMIT + 1), framing));
      expect((await client.answer()).status).toBe(200);
      expect(seen.splice(0).filter(({ length }) => length > 0)).toEqual([
        { method: 'POST', authenticated: true, length: LIMIT + 1 },
      ]);
    }
  });
});

describe('when the upstream wants the body protected (auth-int)', () => {
  beforeEach(() => wire.simulator.set('submissions', { qop: 'auth-int', algorithms: ['SHA-256'] }));

  test.each(cases.filter(([size]) => size <= LIMIT))('it is: %d bytes by %s', async (size, framing) => {
    wire.simulator.reset('submissions');
    const body = bodyOf(size);
    const client = await wire.connect();
    await client.send(requestWith(body, framing));
    expect(echoOf(await client.answer()).body).toEqual({ length: size, sha256: sha256(body) });
    expect(wire.simulator.counts('submissions').refused['wrong-response']).toBe(0);
  });

  test.each(framings)('it is too large for that: by %s', async (framing) => {
    wire.simulator.reset('submissions');
    const client = await wire.connect();
    await client.send(requestWith(bodyOf(LIMIT + 1), framing));
    const answer = await client.answer();
    expect([answer.status, codeOf(answer)]).toEqual([413, 'body-too-large']);
    expect(answer.body.toString()).toContain('body.replayUpTo');
    expect(wire.simulator.counts('submissions').accepted).toBe(0);
  });
});
