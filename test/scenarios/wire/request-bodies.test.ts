import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import type { RequestListener } from 'node:http';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { useFolders } from '../../support/audit-log.ts';
import { startGateway } from '../../support/gateway.ts';
import { valuesOf } from '../../support/raw-client.ts';
import { startConnections, startRawUpstream, startUpstream } from '../../support/scripted-upstream.ts';
import { needPackages } from '../../support/system-packages.ts';
import { codeOf, connect, echoOf, useRunning, useWire } from '../../support/wire.ts';

describe('a body that may have to be sent again', () => {
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

  describe('reaches the upstream whole', () => {
    // The nonce has been accepted once: with a second time just now, as after a crowd, no body would be asked for first.
    beforeEach(async () => {
      wire.simulator.reset('submissions');
      await wire.ask('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
      wire.simulator.reset('submissions');
    });

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
        expect(wire.simulator.counts('submissions')).toMatchObject({
          challenges: 1,
          accepted: 1,
          requests: 2,
        });
      } finally {
        await gateway.close();
      }
    });

    test('when many are sent at once', async () => {
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

  test('gets 411 if it is too large to be kept, has no length, and the upstream answers with HTTP/1.0', async () => {
    const heads: string[] = [];
    const upstream = await startRawUpstream((head) => {
      heads.push(head.slice(head.search(/(?:HEAD|POST) /)));
      const text = /^authorization:/im.test(head)
        ? 'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok'
        : 'HTTP/1.0 401 Unauthorized\r\nWWW-Authenticate: Digest realm="r", nonce="n"\r\nContent-Length: 0\r\n\r\n';
      return { text, end: true };
    });
    const plain = { ...settings, tls: { allowPlaintext: true } };
    const gateway = await startGateway({ old: { origin: upstream.origin, settings: plain } });
    try {
      const post = async (length: number) => {
        const client = await connect(gateway.port);
        await client.send(requestWith(bodyOf(length), 'chunks'));
        return client.answer();
      };
      const refused = await post(LIMIT + 1);
      expect([refused.status, codeOf(refused)]).toEqual([411, 'length-required']);
      expect(heads.map((head) => head.split(' ')[0])).toEqual(['HEAD']);
      expect((await post(1_000)).status).toBe(200);
      expect(heads.at(-1)).toMatch(/^POST .*\r\ncontent-length: 1000$/s);
      expect(await gateway.metric('digest_gateway_requests_total', { code: 'length-required' })).toBe(1);
    } finally {
      await gateway.close();
      await upstream.close();
    }
  });

  test('goes out in chunks although what others ask for is answered with HTTP/1.0', async () => {
    const digest = 'WWW-Authenticate: Digest realm="r", nonce="n", qop="auth"\r\nContent-Length: 0\r\n\r\n';
    await using upstream = await startUpstream((req, res) => {
      if (req.url === '/older') {
        req.socket.end('HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n');
        return;
      }
      const isAnswer = req.headers.authorization !== undefined;
      req.resume().on('end', () => {
        if (isAnswer) res.end('ok');
        else req.socket.write(`HTTP/1.1 401 Unauthorized\r\n${digest}`);
      });
      if (!isAnswer) res.detachSocket(req.socket);
    });
    const plain = { ...settings, tls: { allowPlaintext: true } };
    await using gateway = await startGateway({ mixed: { origin: upstream.origin, settings: plain } });
    const older = async (): Promise<void> => void (await (await fetch(`${gateway.origin}/older`)).text());
    for (let count = 0; count < 10; count += 1) {
      const others = Array.from({ length: 8 }, older);
      const client = await connect(gateway.port);
      await client.send(requestWith(bodyOf(LIMIT + 1), 'chunks'));
      expect((await client.answer()).status).toBe(200);
      await Promise.all(others);
    }
  });

  describe('on the connection to the upstream', () => {
    interface Seen {
      readonly method: string | undefined;
      readonly authenticated: boolean;
      readonly length: number;
    }
    const seen: Seen[] = [];
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

    test('is sent twice if it is kept; otherwise once, after a request without it', async () => {
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

  test('is sent at once, without a request ahead of it, while the nonce is healthy', async () => {
    const { origin } = wire.simulator.deployments.submissions;
    const requests = () => wire.simulator.counts('submissions').requests;
    const gateway = await startGateway({ healthy: { origin, ca: wire.simulator.ca, settings } });
    try {
      // On a slow machine the nonce may be a second old when the upload comes: then it is asked for once more.
      for (let asked = 2; asked !== 1; ) {
        for (let warm = 0; warm < 2; warm += 1) await (await fetch(`${gateway.origin}/echo`)).text();
        const before = requests();
        const answer = await fetch(`${gateway.origin}/echo`, { method: 'PUT', body: bodyOf(3_000_000) });
        expect(await answer.json()).toMatchObject({ method: 'PUT', body: { length: 3_000_000 } });
        asked = requests() - before;
      }
    } finally {
      await gateway.close();
    }
  });

  const unsupported: RequestListener = (_req, res) => res.writeHead(405).end();
  const broken: RequestListener = (req) => req.socket.destroy();

  test.each([
    ['gets 405', unsupported],
    ['breaks the connection', broken],
  ])('reaches an upstream that wants authentication for POST only: HEAD %s', async (_what, onHead) => {
    const seen: string[] = [];
    await using upstream = await startUpstream(async (req, res) => {
      const isSigned = req.headers.authorization !== undefined;
      seen.push(`${req.method} ${req.headers['content-length']}${isSigned ? ' signed' : ''}`);
      if (req.method === 'HEAD') {
        onHead(req, res);
        return;
      }
      // It judges before it reads, as servers do.
      if (!isSigned) {
        res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n", qop="auth"' }).end();
        return;
      }
      let length = 0;
      for await (const chunk of req) length += chunk.length;
      res.end(String(length));
    });
    const plain = { ...settings, tls: { allowPlaintext: true } };
    const gateway = await startGateway({ postOnly: { origin: upstream.origin, settings: plain } });
    try {
      for (const length of [LIMIT + 1, 3_000_000]) {
        const answer = await fetch(`${gateway.origin}/`, { method: 'POST', body: bodyOf(length) });
        expect([answer.status, await answer.text()]).toEqual([200, String(length)]);
        expect(seen.splice(0)).toEqual(['HEAD undefined', 'POST 0', `POST ${length} signed`]);
      }
    } finally {
      await gateway.close();
    }
  });

  test('reaches the upstream whole although it closed the first connection while no byte had come', async () => {
    const awaited = Promise.withResolvers<void>();
    const upstream = await startConnections(async (connection) => {
      // Each challenge has a connection of its own. The next one waits for the body with the client.
      if (connection.number === 2) {
        connection.end();
        return;
      }
      if (connection.number === 4) awaited.resolve();
      const head = await connection.request();
      if (head?.startsWith('HEAD ') === true) {
        await connection.write(
          'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Digest realm="r", nonce="n", qop="auth"\r\n\r\n',
        );
        return;
      }
      const received = (await connection.through('end')) ?? '';
      await connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${received.length}\r\n\r\n${received}`);
    });
    // A health check would be a connection, too.
    const plain = { ...settings, tls: { allowPlaintext: true }, health: { interval: 'off' } };
    const gateway = await startGateway({ impatient: { origin: upstream.origin, settings: plain } });
    try {
      const body = `begin${'-'.repeat(LIMIT)}end`;
      const client = await connect(gateway.port);
      const expectation = 'Expect: 100-continue\r\n';
      await client.send(`POST / HTTP/1.1\r\nHost: x\r\n${expectation}Content-Length: ${body.length}\r\n\r\n`);
      expect((await client.answer()).status).toBe(100);
      await awaited.promise;
      await client.send(body);
      const answer = await client.answer();
      expect([answer.status, sha256(answer.body)]).toEqual([200, sha256(Buffer.from(body))]);
    } finally {
      await gateway.close();
      await upstream.close();
    }
  });

  describe('for an upstream that requires qop=auth-int', () => {
    beforeEach(() => wire.simulator.set('submissions', { qop: 'auth-int', algorithms: ['SHA-256'] }));
    afterEach(() => wire.simulator.set('submissions', { qop: 'none', algorithms: ['MD5'] }));

    test.each(cases.filter(([size]) => size <= LIMIT))('is hashed: %d bytes by %s', async (size, framing) => {
      wire.simulator.reset('submissions');
      const body = bodyOf(size);
      const client = await wire.connect();
      await client.send(requestWith(body, framing));
      expect(echoOf(await client.answer()).body).toEqual({ length: size, sha256: sha256(body) });
      expect(wire.simulator.counts('submissions').refused['wrong-response']).toBe(0);
    });

    test.each(framings)('is refused if it is too large to be kept: by %s', async (framing) => {
      wire.simulator.reset('submissions');
      const client = await wire.connect();
      await client.send(requestWith(bodyOf(LIMIT + 1), framing));
      const answer = await client.answer();
      expect([answer.status, codeOf(answer)]).toEqual([413, 'body-too-large']);
      expect(answer.body.toString()).toContain('body.replayUpTo');
      expect(wire.simulator.counts('submissions').accepted).toBe(0);
    });
  });
});

describe('a body above body.max', () => {
  const MAX = 300_000;
  const wire = useWire({ settings: { body: { replayUpTo: '64KiB', max: MAX } } }, 'test');

  const declared = (length: number) => `POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`;
  const CHUNKED = 'POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';
  const chunk = (length: number) => `${length.toString(16)}\r\n${'x'.repeat(length)}\r\n`;

  test('is refused when it is declared, before its first byte', async () => {
    const client = await wire.connect();
    await client.send(declared(MAX + 1));
    const answer = await client.answer();
    expect([answer.status, codeOf(answer)]).toEqual([413, 'body-too-large']);
    expect(wire.simulator.counts('submissions').requests).toBe(0);
  });

  test('is refused when it becomes too large if its length is unknown', async () => {
    const client = await wire.connect();
    await client.send(CHUNKED, chunk(100_000), chunk(100_000), chunk(100_001));
    const answer = await client.answer();
    expect([answer.status, codeOf(answer)]).toEqual([413, 'body-too-large']);
    expect(answer.body.toString()).toContain(`${MAX} bytes`);
  });

  test('is refused; the largest allowed body passes whole', async () => {
    for (const parts of [
      [declared(MAX), 'x'.repeat(MAX)],
      [CHUNKED, chunk(MAX), '0\r\n\r\n'],
    ]) {
      const client = await wire.connect();
      await client.send(...parts);
      expect(echoOf(await client.answer()).body.length).toBe(MAX);
    }
  });

  test('is refused when the framing of its chunks becomes too large, which counts as bytes received', async () => {
    const received = () => wire.gateway.metric('digest_gateway_request_bytes_total');
    const before = await received();
    const client = await wire.connect();
    await client.send(CHUNKED, chunk(1).repeat(100_000), '0\r\n\r\n');
    const answer = await client.answer();
    expect([answer.status, codeOf(answer)]).toEqual([413, 'body-too-large']);
    expect(answer.body.toString()).toContain('body.max');
    // A byte has five bytes of framing.
    expect((await received()) - before).toBeGreaterThan(MAX);
  });

  describe('may be sent to its end:', () => {
    test('the connection serves the next request', async () => {
      const client = await wire.connect();
      const sent = client.send(declared(20_000_000), Buffer.alloc(20_000_000));
      expect((await client.answer()).status).toBe(413);
      await sent;
      await client.send('GET /echo/next HTTP/1.1\r\nHost: x\r\n\r\n');
      expect(echoOf(await client.answer()).url).toBe('/echo/next');
    });

    test('in chunks as well', async () => {
      const client = await wire.connect();
      const sent = client.send(CHUNKED, ...Array.from({ length: 100 }, () => chunk(100_000)), '0\r\n\r\n');
      expect((await client.answer()).status).toBe(413);
      await sent;
      await client.send('GET /echo/next HTTP/1.1\r\nHost: x\r\n\r\n');
      expect(echoOf(await client.answer()).url).toBe('/echo/next');
    });

    test('for longer than a silent client has', async () => {
      const client = await wire.connect();
      await client.send(declared(MAX + 10));
      expect((await client.answer()).status).toBe(413);
      // Each piece comes within the time that a silent client has, all of them together take longer.
      for (let sent = 0; sent < MAX + 10; sent += (MAX + 10) / 10) {
        await delay(300);
        await client.send(Buffer.alloc((MAX + 10) / 10));
      }
      await client.send('GET /echo/next HTTP/1.1\r\nHost: x\r\n\r\n');
      expect(echoOf(await client.answer()).url).toBe('/echo/next');
    });
  });
});

describe('Expect: 100-continue', () => {
  const run = promisify(execFile);
  // A gateway with a healthy nonce would send a large body without the challenge that these tests look for.
  const wire = useWire({ settings: { body: { replayUpTo: '64KiB', max: '1MiB' } } }, 'test');
  const LARGE = 200_000;

  const headOf = (length: number | string, target = '/echo', version = '1.1') =>
    `POST ${target} HTTP/${version}\r\nHost: x\r\nExpect: 100-continue\r\n${
      typeof length === 'string' ? length : `Content-Length: ${length}`
    }\r\n\r\n`;

  describe('gets 100 once, before the response:', () => {
    test.each([
      ['to a small body', 5],
      ['to a large body', LARGE],
    ])('%s', async (_what, length) => {
      const client = await wire.connect();
      await client.send(headOf(length));
      expect(await client.answer()).toMatchObject({ status: 100, headers: [] });
      await client.send(Buffer.alloc(length, 'x'));
      expect(echoOf(await client.answer()).body.length).toBe(length);
      // The body of a small one was sent twice, as the first try met a challenge.
      expect(wire.simulator.counts('submissions')).toMatchObject({ challenges: 1, accepted: 1 });
      await client.send('GET /echo HTTP/1.1\r\nHost: x\r\n\r\n');
      expect(echoOf(await client.answer()).url).toBe('/echo');
    });

    test('a chunked body', async () => {
      const client = await wire.connect();
      await client.send(headOf('Transfer-Encoding: chunked'));
      expect((await client.answer()).status).toBe(100);
      await client.send('5\r\nhello\r\n0\r\n\r\n');
      expect(echoOf(await client.answer()).body.length).toBe(5);
    });

    test('a client that does not wait', async () => {
      const client = await wire.connect();
      await client.send(headOf(5), 'hello');
      expect((await client.answer()).status).toBe(100);
      expect(echoOf(await client.answer()).body.length).toBe(5);
    });

    test('after the challenge if the body can be sent only once', async () => {
      const client = await wire.connect();
      await client.send(headOf(LARGE));
      await client.answer();
      expect(wire.simulator.counts('submissions').challenges).toBe(1);
    });
  });

  describe('gets no 100:', () => {
    /** The one answer, and the end of the connection. */
    async function refusal(head: string, port = wire.gateway.port) {
      const client = await connect(port);
      await client.send(head);
      const answer = await client.answer();
      expect(valuesOf(answer, 'connection')).toEqual(['close']);
      expect((await client.end()).toString()).toBe('');
      return [answer.status, codeOf(answer)];
    }

    test('a body that is too large', async () => {
      expect(await refusal(headOf(2 ** 20 + 1))).toEqual([413, 'body-too-large']);
      expect(wire.simulator.counts('submissions').requests).toBe(0);
    });

    test('a request without a deployment', async () => {
      expect(await refusal(headOf(5, 'http://nowhere.example/'))).toEqual([404, 'no-deployment']);
    });

    test('a large body that the upstream never gets', async () => {
      const gateway = await startGateway({ gone: { origin: 'https://127.0.0.1:1' } });
      try {
        expect(await refusal(headOf(2_000_000), gateway.port)).toEqual([502, 'upstream-unreachable']);
      } finally {
        await gateway.close();
      }
    });

    test('HTTP/1.0, which does not know it', async () => {
      const client = await wire.connect();
      await client.send(headOf(5, '/echo', '1.0'), 'hello');
      expect(echoOf(await client.answer()).body.length).toBe(5);
    });

    test('a request without a body', async () => {
      const answer = await wire.ask('GET /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n');
      expect(echoOf(answer).url).toBe('/echo');
    });
  });

  describe('curl, which waits for it a second,', () => {
    const folder = useFolders();

    test('sends its body at once if it is wanted, otherwise never', async () => {
      const file = join(await folder(), 'body');
      const args = ['-sS', '--max-time', '120', '-H', 'Expect: 100-continue', '--expect100-timeout', '60'];
      const ask = async (length: number) => {
        await writeFile(file, Buffer.alloc(length, 'x'));
        const format = '%{stderr}%{http_code} %{size_upload}';
        const url = `${wire.gateway.origin}/echo`;
        needPackages('curl');
        const { stderr } = await run('curl', [...args, '--data-binary', `@${file}`, '-w', format, url]);
        return stderr;
      };
      const begun = performance.now();
      expect(await ask(LARGE)).toBe(`200 ${LARGE}`);
      expect(await ask(2_000_000)).toBe('413 0');
      expect(performance.now() - begun).toBeLessThan(60_000);
    });
  });
});
