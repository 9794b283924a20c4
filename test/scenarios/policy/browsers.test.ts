import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type AddressInfo, connect as connectTcp, createServer } from 'node:net';
import { beforeEach, describe, expect, test } from '@jest/globals';
import type { Look } from '../../support/browser.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { type RunningGateway, startGateway } from '../../support/gateway.ts';
import { usePages } from '../../support/pages.ts';
import { openScene } from '../../support/scene.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';
import { codeOf, connect, echoOf, useRunning } from '../../support/wire.ts';

describe('requests of browsers', () => {
  const KEY = 'a-key-of-a-client';
  const named = useRunning(() =>
    openScene({
      settings: { match: { pathPrefix: '/', host: 'submissions.gateway.internal' } },
      top: { listen: { port: 0, hosts: ['Gateway.Internal', '127.0.0.1', '0:0:0:0:0:0:0:1'] } },
    }),
  );
  const apiKeySha256 = createHash('sha256').update(KEY).digest('hex');
  const allow = [{ deployment: 'submissions' }];
  const clients = useRunning(() =>
    openScene({
      top: {
        anonymous: false,
        clients: [
          { id: 'keyed', identify: { addresses: ['127.0.0.0/8'], apiKeySha256 }, allow },
          { id: 'addressed', identify: { addresses: ['127.0.0.0/8'] }, allow },
        ],
      },
    }),
  );

  async function outcome({ port }: RunningGateway, line: string, ...headers: string[]): Promise<string> {
    const client = await connect(port);
    await client.send(`${[`${line} HTTP/1.1`, ...headers].join('\r\n')}\r\n\r\n`);
    const answer = await client.answer(line.split(' ')[0]);
    return answer.status === 200 ? `200 ${echoOf(answer).method}` : `${answer.status} ${codeOf(answer)}`;
  }

  describe('listen.hosts', () => {
    test.each([
      'gateway.internal',
      'GATEWAY.internal:8080',
      'gateway.internal.',
      'gateway.internal.:80',
      '127.0.0.1:1234',
      '[::1]:8080',
      '[0:0::1]',
      'submissions.gateway.internal',
    ])('serves %s', async (host) => {
      expect(await outcome(named().gateway, 'GET /echo', `Host: ${host}`)).toBe('200 GET');
    });

    test.each([
      'evil.example',
      'evil.example:8080',
      'gateway.internal.evil.example',
      'xgateway.internal',
      'gateway.internal..',
      '127.0.0.2',
      '[::2]',
      'localhost',
      '',
    ])('refuses %p with 421', async (host) => {
      expect(await outcome(named().gateway, 'GET /echo', `Host: ${host}`)).toBe('421 host-unknown');
      expect(await outcome(named().gateway, 'POST /echo', `Host: ${host}`, 'Content-Length: 0')).toBe(
        '421 host-unknown',
      );
    });

    test('leaves a request in absolute form to the names of the upstreams', async () => {
      const { gateway, simulator } = named();
      const { host } = new URL(simulator.deployments.submissions.origin);
      expect(await outcome(gateway, `GET http://${host}/echo`, `Host: ${host}`)).toBe('200 GET');
      expect(await outcome(gateway, 'GET http://evil.example/echo', 'Host: evil.example')).toBe(
        '404 no-deployment',
      );
    });
  });

  describe('a client known by its address only', () => {
    const HOST = 'Host: gateway.internal:8080';
    test.each([
      ['GET /echo', 'Sec-Fetch-Site: cross-site'],
      ['POST /echo', 'Sec-Fetch-Site: cross-site', 'Origin: http://evil.example'],
      ['POST /echo', 'Sec-Fetch-Site: cross-site', 'Origin: null'],
      // Browsers send no Sec-Fetch-Site to other machines without TLS.
      ['POST /echo', 'Origin: http://evil.example:8080'],
      ['POST /echo', 'Origin: null'],
      ['GET http://gateway.internal/echo', 'Sec-Fetch-Site: cross-site'],
      // A page on another port, or of another host of the site.
      ['POST /echo', 'Sec-Fetch-Site: same-site', 'Origin: http://gateway.internal:9000'],
      ['POST /echo', 'Sec-Fetch-Site: same-site', 'Origin: http://gateway.internal:8080'],
      ['DELETE /echo', 'Sec-Fetch-Site: same-site'],
      ['POST /echo', 'Sec-Fetch-Site: nonsense'],
      ['GET /echo', 'Sec-Fetch-Site: same-site', 'Origin: http://app.internal'],
      ['POST /echo', 'Sec-Fetch-Site: same-origin', 'Origin: http://gateway.internal:9000'],
      ['POST /echo', 'Origin: http://gateway.internal'],
      ['POST /echo', 'Origin: https://gateway.internal:8080'],
      ['POST /echo', 'Origin: http://user@gateway.internal:8080'],
      ['POST /echo', 'Origin: http://[fe80::1%25eth0]:8080'],
      ['POST /echo', 'Origin: http://gateway.internal:8080', 'Origin: http://gateway.internal:8080'],
    ])('is refused %s with %s', async (line, ...headers) => {
      expect(await outcome(clients().gateway, line, HOST, 'Content-Length: 0', ...headers)).toBe(
        '403 cross-site',
      );
    });

    test.each([
      ['GET /echo'],
      ['GET /echo', 'Sec-Fetch-Site: none'],
      ['GET /echo', 'Sec-Fetch-Site: same-origin'],
      ['GET /echo', 'Sec-Fetch-Site: same-site'],
      ['POST /echo', 'Origin: http://Gateway.internal:8080'],
      ['POST /echo', 'Sec-Fetch-Site: same-origin', 'Origin: http://gateway.internal:8080'],
      ['POST /echo', 'Sec-Fetch-Site: none'],
      ['POST /echo', 'Sec-Fetch-Site: cross-site', `X-Api-Key: ${KEY}`],
    ])('is served %s with %s', async (line, ...headers) => {
      expect(await outcome(clients().gateway, line, HOST, 'Content-Length: 0', ...headers)).toMatch(/^200 /);
    });
  });

  test('a cross-site request is refused where anonymous clients are served', async () => {
    expect(
      await outcome(named().gateway, 'POST /echo', 'Host: gateway.internal', 'Sec-Fetch-Site: cross-site'),
    ).toBe('403 cross-site');
  });
});

describe('pages in a browser', () => {
  const LOOK: Look = { width: 800, scheme: 'light' };
  const PAGE = `<!doctype html><title>A page of somebody else</title><link rel="icon" href="data:,">
  <form method="post" target="hidden"></form><iframe name="hidden"></iframe>`;
  /** Method and target of each request that reached the upstream, the one for its challenge, too; no browser's icon. */
  const seen: string[] = [];

  const upstream = useRunning(() =>
    startUpstream((req, res) => {
      if (req.url !== '/favicon.ico') seen.push(`${req.method} ${req.url}`);
      if (req.headers.authorization === undefined) {
        res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n"' }).end();
        return;
      }
      req.resume().on('end', () => res.end('restricted content'));
    }),
  );
  /** The server of somebody else, whose page can be opened by any name. */
  const elsewhere = useRunning(() =>
    startUpstream((_req: IncomingMessage, res: ServerResponse) => {
      res.writeHead(200, { 'content-type': 'text/html', connection: 'close' }).end(PAGE);
    }),
  );
  const openPage = usePages();

  beforeEach(() => {
    seen.length = 0;
  });

  /** A gateway whose only client is known by its address. */
  async function start(listen: Record<string, unknown> = {}): Promise<RunningGateway> {
    const settings = { tls: { allowPlaintext: true } };
    const gateway = await startGateway(
      { upstream: { origin: upstream().origin, settings } },
      {
        listen: { port: 0, ...listen },
        anonymous: false,
        clients: [
          { id: 'here', identify: { addresses: ['127.0.0.1'] }, allow: [{ deployment: 'upstream' }] },
        ],
      },
    );
    closing.push(() => gateway.close());
    return gateway;
  }

  async function open(url: string) {
    const { page } = await openPage(LOOK);
    await page.goto(url);
    return page;
  }

  const portOf = (origin: string): string => new URL(origin).port;
  const refusals = (gateway: RunningGateway, code: string): Promise<number> =>
    gateway.metric('digest_gateway_requests_total', { code });

  test('a browser whose user asks for an address of the gateway is served', async () => {
    const gateway = await start();
    const page = await open(`http://evil.example:${portOf(elsewhere().origin)}/`);
    const response = await page.goto(`${gateway.origin}/typed`);
    expect([response?.status(), await response?.text()]).toEqual([200, 'restricted content']);
    expect(seen).toEqual(['GET /typed', 'GET /typed']);
  });

  describe('a page of another site', () => {
    test.each([
      // Chromium sends Sec-Fetch-Site to loopback addresses, and to names only with TLS.
      ['by its address, where Sec-Fetch-Site tells', '127.0.0.1'],
      ['by its name, where Origin tells', 'gateway.example'],
    ])('has its POST to the gateway refused, %s', async (_how, host) => {
      const gateway = await start();
      const target = `http://${host}:${gateway.port}/submitted`;
      const page = await open(`http://evil.example:${portOf(elsewhere().origin)}/`);

      const fetched = page.waitForResponse(target);
      const opaque = await page.evaluate(async (url) => {
        const { type, status } = await fetch(url, { method: 'POST', mode: 'no-cors', body: 'a=b' });
        return { type, status };
      }, target);
      expect(opaque).toEqual({ type: 'opaque', status: 0 });
      expect((await fetched).status()).toBe(403);
      await until(async () => (await refusals(gateway, 'cross-site')) === 1);

      const submitted = page.waitForResponse(target);
      await page.locator('form').evaluate((form, action) => Object.assign(form, { action }).submit(), target);
      const response = await submitted;
      expect([response.status(), await response.json()]).toMatchObject([403, { code: 'cross-site' }]);
      await until(async () => (await refusals(gateway, 'cross-site')) === 2);
      expect(seen).toEqual([]);
    });
  });

  describe('a page whose name is rebound to the gateway', () => {
    /** The response of the gateway as the page reads it; the page takes the gateway for its own server. */
    async function readAfterRebinding(gateway: RunningGateway): Promise<unknown[]> {
      const name = await closedAtEnd(startRebinding(Number(portOf(elsewhere().origin))));
      const page = await open(`http://rebound.example:${name.port}/`);
      name.rebind(gateway.port);
      return page.evaluate(async () => {
        const read: unknown[] = [];
        for (const method of ['GET', 'POST']) {
          const response = await fetch('/restricted', { method });
          read.push(response.status, await response.text());
        }
        return read;
      });
    }

    test('reads no response where listen.hosts is set', async () => {
      const gateway = await start({ hosts: ['gateway.example'] });
      const refused = expect.stringContaining('"code":"host-unknown"');
      expect(await readAfterRebinding(gateway)).toEqual([421, refused, 421, refused]);
      // Chromium asks once more after a 421.
      await until(async () => (await refusals(gateway, 'host-unknown')) >= 2);
      expect(seen).toEqual([]);
    });

    test('reads every response where it is not set', async () => {
      const content = 'restricted content';
      expect(await readAfterRebinding(await start())).toEqual([200, content, 200, content]);
    });
  });

  /** A port that leads to another one, as a name does whose owner changes its address; `rebind` says where it leads. */
  async function startRebinding(to: number) {
    let target = to;
    const server = createServer((socket) => {
      const other = connectTcp(target, '127.0.0.1');
      socket.pipe(other).pipe(socket);
      socket.on('error', () => other.destroy());
      other.on('error', () => socket.destroy());
      socket.on('close', () => other.destroy());
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return {
      port: (server.address() as AddressInfo).port,
      rebind(port: number) {
        target = port;
      },
      async close() {
        server.close();
      },
    };
  }
});
