import { writeFile } from 'node:fs/promises';
import { connect as connectTcp } from 'node:net';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { startGateway, type TestDeployment } from '../../support/gateway.ts';
import { type RealServer, startApache, startLighttpd } from '../../support/real-server.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { type ServerProcess, startServer } from '../../support/server-process.ts';
import { SMUGGLING_SHAPES } from '../../support/smuggling-shapes.ts';
import { needPackages } from '../../support/system-packages.ts';
import { connect, useRunning } from '../../support/wire.ts';

/** A reverse proxy from the system's packages, which keeps its connections to one server and refuses one path. */
interface ReverseProxy {
  readonly port: number;
  close(): Promise<void>;
}

interface ProxyOptions {
  /** Port of the server behind it. */
  readonly to: number;
  /** Paths with this prefix get 403; left out: every path is served. */
  readonly refuses?: string;
}

/** nginx with one worker, which keeps one connection to its server. */
function startNginx({ to, refuses }: ProxyOptions): Promise<ReverseProxy> {
  needPackages('nginx-light');
  return startProxy(
    (folder, port) => `
daemon off;
worker_processes 1;
pid ${folder}/pid;
error_log stderr;
events { worker_connections 256; }
http {
  access_log off;
  client_header_timeout 2s;
  client_body_timeout 2s;
  keepalive_timeout 2s;
  client_body_temp_path ${folder}/client;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  upstream server { server 127.0.0.1:${to}; keepalive 1; }
  server {
    listen 127.0.0.1:${port};
    ${refuses === undefined ? '' : `location ${refuses} { return 403; }`}
    location / {
      proxy_pass http://server;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
    }
  }
}
`,
    (folder, file) => ['nginx', '-p', folder, '-c', file, '-e', 'stderr'],
  );
}

/** HAProxy, whose clients share its connections to its server. */
function startHaproxy({ to, refuses }: ProxyOptions): Promise<ReverseProxy> {
  needPackages('haproxy');
  return startProxy(
    (_folder, port) => `
defaults
  mode http
  timeout connect 30s
  timeout client 2s
  timeout server 30s
  http-reuse always
frontend all
  bind 127.0.0.1:${port}
  ${refuses === undefined ? '' : `http-request deny deny_status 403 if { path_beg ${refuses} }`}
  default_backend server
backend server
  server one 127.0.0.1:${to} maxconn 4
`,
    (_folder, file) => ['haproxy', '-db', '-f', file],
  );
}

async function startProxy(
  configuration: (folder: string, port: number) => string,
  command: (folder: string, file: string) => readonly string[],
): Promise<ReverseProxy> {
  const server: ServerProcess = await startServer({
    async prepare({ folder, port }) {
      const file = join(folder, 'proxy.conf');
      await writeFile(file, configuration(folder, port));
      return command(folder, file);
    },
    answers: ({ port }) => accepts(port),
  });
  return { port: server.place.port, close: () => server.close() };
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectTcp(port, '127.0.0.1');
    const tell = (does: boolean) => () => {
      socket.destroy();
      resolve(does);
    };
    socket.once('connect', tell(true)).once('error', tell(false));
  });
}

/** A request under this path is to reach no server: a gateway or a proxy refuses it. */
const HIDDEN = '/hidden';
const VISIBLE = '/visible';

/** A chain of servers with a gateway in it. */
interface Chain {
  /** Address to which clients send their requests. */
  readonly port: number;
  /** Request lines, without version, that the last server saw; undefined: it says so at its end only. */
  readonly arrived: readonly string[] | undefined;
  /** Ends the last server; resolves to the request lines that it saw. */
  stop(): Promise<readonly string[]>;
  close(): Promise<void>;
}

const shapes = SMUGGLING_SHAPES.map((shape, index) => ({ ...shape, index }));

/** Sends the shape, then an ordinary last request; resolves to all that comes back. */
async function send(port: number, shape: (typeof shapes)[number]): Promise<string> {
  const host = `127.0.0.1:${port}`;
  const hidden = `GET ${HIDDEN}?n=${shape.index} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
  const bytes = shape.bytes({ path: `${VISIBLE}?n=${shape.index}`, host, hidden });
  const last = `GET ${VISIBLE}?n=last-${shape.index} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`;
  const client = await connect(port);
  await client.send(bytes, last);
  return (await client.end()).toString('latin1');
}

/** Another client asks for something else and gets it: no response is mixed up. */
async function expectOwnResponse(port: number, index: number): Promise<void> {
  const target = `${VISIBLE}?n=other-${index}`;
  const client = await connect(port);
  await client.send(`GET ${target} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`);
  const { status, body } = await client.answer();
  expect([status, body.toString()]).toEqual([200, expect.stringContaining(`GET ${target} `)]);
}

const statusesIn = (text: string): string[] =>
  Array.from(text.matchAll(/^HTTP\/1\.[01] ([2-5]\d\d) /gm), ([, status = '']) => status);

const toHidden = (lines: readonly string[]): string[] => lines.filter((line) => line.includes(HIDDEN));

describe.each<[name: string, start: () => Promise<Chain>]>([
  ['Apache', () => gatewayBefore(startApache())],
  ['lighttpd', () => gatewayBefore(startLighttpd({ algorithms: ['SHA-256'] }))],
  ['nginx', () => gatewayBeforeProxy(startNginx)],
  ['HAProxy', () => gatewayBeforeProxy(startHaproxy)],
])('a gateway in front of %s', (_name, start) => {
  // The server saw no request that was hidden, or behind one that was refused. Before the hook that closes the chain.
  afterAll(async () => {
    const lines = await chain().stop();
    expect(lines.length).toBeGreaterThan(shapes.length);
    expect(toHidden(lines)).toEqual([]);
    const refused = shapes.filter(({ reading }) => reading === 'refused');
    const targets = refused.flatMap(({ index }) => [`?n=${index} `, `?n=last-${index} `]);
    expect(lines.filter((line) => targets.some((target) => `${line} `.includes(target)))).toEqual([]);
  });
  const chain = useRunning(start);

  test.each(shapes)('$reading: $name', async (shape) => {
    const { port, arrived } = chain();
    const before = arrived?.length ?? 0;
    const got = await send(port, shape);
    await expectOwnResponse(port, shape.index);
    const [first, ...others] = statusesIn(got);
    if (shape.reading === 'refused') {
      expect([first, others]).toEqual([expect.stringMatching(/^(4\d\d|501)$/), []]);
      expect(got).toContain('application/problem+json');
      if (arrived !== undefined) expect(arrived.slice(before).join()).not.toContain(`n=${shape.index}`);
    } else {
      // lighttpd refuses a GET with a body.
      if (first === '200') expect(got).toContain(`${VISIBLE}?n=${shape.index} `);
      else expect([first, got]).toEqual(['400', expect.stringContaining('Server: lighttpd')]);
    }
  });
});

describe.each<[name: string, start: (options: ProxyOptions) => Promise<ReverseProxy>]>([
  ['nginx', startNginx],
  ['HAProxy', startHaproxy],
])('a gateway behind %s, which refuses a path', (_name, startProxy) => {
  // It does not refuse everything.
  afterAll(() => {
    expect(chain().arrived?.filter((line) => /n=\d+$/.test(line)).length).toBeGreaterThan(10);
  });
  const chain = useRunning(() => proxyBeforeGateway(startProxy));

  test.each(shapes)('$name', async (shape) => {
    const { port, arrived } = chain();
    const got = await send(port, shape);
    await expectOwnResponse(port, shape.index);
    // The proxy has refused it, or the gateway, or it was served as what it is.
    expect(statusesIn(got).filter((status) => !/^(200|4\d\d|50[15])$/.test(status))).toEqual([]);
    expect(got).not.toContain(`GET ${HIDDEN}`);
    expect(toHidden(arrived ?? [])).toEqual([]);
  });
});

/** The gateway serves one path, and has one connection, over which a hidden request would be the next one. */
const settings = {
  connections: 1,
  operations: Object.fromEntries(
    ['GET', 'POST', 'DELETE'].map((method) => [method.toLowerCase(), { method, path: VISIBLE }]),
  ),
  unlistedOperations: 'deny',
};

async function gatewayBefore(starting: Promise<RealServer>): Promise<Chain> {
  const server = await starting;
  const gateway = await startGateway({ real: { ...server.deployment, settings } });
  return {
    port: gateway.port,
    arrived: undefined,
    stop: async () => (await server.stop()).map(({ requestLine }) => requestLine),
    close: async () => {
      await gateway.close();
      await server.close();
    },
  };
}

async function gatewayBeforeProxy(
  startProxy: (options: ProxyOptions) => Promise<ReverseProxy>,
): Promise<Chain> {
  const origin = await startOrigin();
  const proxy = await startProxy({ to: origin.port });
  const deployment: TestDeployment = {
    origin: `http://127.0.0.1:${proxy.port}`,
    settings: { ...settings, tls: { allowPlaintext: true } },
  };
  const gateway = await startGateway({ proxied: deployment });
  return {
    port: gateway.port,
    arrived: origin.arrived,
    stop: async () => origin.arrived,
    close: async () => {
      await gateway.close();
      await proxy.close();
      await origin.close();
    },
  };
}

async function proxyBeforeGateway(
  startProxy: (options: ProxyOptions) => Promise<ReverseProxy>,
): Promise<Chain> {
  const origin = await startOrigin();
  const gateway = await startGateway({
    any: { origin: origin.origin, settings: { tls: { allowPlaintext: true } } },
  });
  const proxy = await startProxy({ to: gateway.port, refuses: HIDDEN });
  return {
    port: proxy.port,
    arrived: origin.arrived,
    stop: async () => origin.arrived,
    close: async () => {
      await proxy.close();
      await gateway.close();
      await origin.close();
    },
  };
}

/** A server with Digest that says what reached it. */
async function startOrigin() {
  const arrived: string[] = [];
  const upstream = await startUpstream((req, res) => {
    if (req.headers.authorization === undefined) {
      res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n"' }).end();
      return;
    }
    const line = `${req.method} ${req.url}`;
    arrived.push(line);
    req.resume().on('end', () => res.end(`${line} \n`));
  });
  return { ...upstream, port: Number(new URL(upstream.origin).port), arrived };
}
