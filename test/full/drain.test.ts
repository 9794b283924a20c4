import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { Agent, type ClientRequest, type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { INVALID_SPAN_CONTEXT, type Span, trace } from '@opentelemetry/api';
import { Tracing } from '../../src/tracing/tracing.ts';
import { AUDIT_KEY, REPLICA, recordsIn, useFolders } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { startConfiguredGateway, startGateway } from '../support/gateway.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { startHaProxy } from '../support/haproxy.ts';
import { reportedDuring } from '../support/reported.ts';
import { authors, type RunningScene, startScene } from '../support/scene.ts';
import { startUpstream } from '../support/scripted-upstream.ts';
import { freePort } from '../support/server-process.ts';
import { until } from '../support/until.ts';

const folder = useFolders();

interface Ports {
  readonly listen: number;
  readonly control: number;
}

async function serve(
  { simulator }: RunningScene,
  top: Record<string, unknown>,
  ports?: Ports,
): Promise<GatewayProcess> {
  const { origin } = simulator.deployments.submissions;
  const listening = ports && { listen: { port: ports.listen }, control: { port: ports.control } };
  const gateway = await startGatewayProcess(
    { upstream: { origin, ca: simulator.ca } },
    { ...top, ...listening },
  );
  closing.push(() => gateway.kill());
  return gateway;
}

/** Preloaded: lets stat() of a file never end once there is another one of its name with `.hangs`. */
const HANGS = `
  import fs from 'node:fs';
  import { syncBuiltinESMExports } from 'node:module';
  const { stat } = fs.promises;
  fs.promises.stat = (file, ...rest) => {
    if (!fs.existsSync(file + '.hangs')) return stat(file, ...rest);
    console.error('stat hangs');
    return new Promise(() => {});
  };
  syncBuiltinESMExports();`;

/** One client that keeps its connection. */
function keptAgent(): Agent {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  closing.push(() => agent.destroy());
  return agent;
}

async function answerTo(sent: ClientRequest): Promise<{ status: number | undefined; close: boolean }> {
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  await answer.resume().toArray();
  return { status: answer.statusCode, close: answer.headers.connection === 'close' };
}

const get = (origin: string, agent: Agent) => answerTo(request(`${origin}${authors}`, { agent }).end());

const readyz = async (control: string): Promise<number> => (await fetch(`${control}/readyz`)).status;

/** A request whose body is not whole yet. */
function halfPost(origin: string, agent: Agent): ClientRequest {
  const sent = request(`${origin}/echo`, { agent, method: 'POST', headers: { 'content-length': 9 } });
  sent.write('one');
  return sent;
}

describe('a gateway that got SIGTERM', () => {
  test('is unready at once, live, and serves new connections as before for drain.delay', async () => {
    const gateway = await serve(await startScene(), { drain: { delay: '1h' } });
    const agent = keptAgent();
    expect(await get(gateway.origin, agent)).toEqual({ status: 200, close: false });
    process.kill(gateway.pid, 'SIGTERM');
    await until(async () => (await readyz(gateway.control)) === 503);
    expect((await fetch(`${gateway.control}/livez`)).status).toBe(200);
    expect(await get(gateway.origin, agent)).toEqual({ status: 200, close: false });
    expect(await get(gateway.origin, keptAgent())).toEqual({ status: 200, close: false });
  });

  test('then accepts no connection, and tells open ones to close with their next response', async () => {
    const gateway = await serve(await startScene(), {
      drain: { delay: '0s' },
      // An idle connection stays for as long as its client was told.
      listen: { port: 0, limits: { keepAliveTimeout: '1h' } },
    });
    const agent = keptAgent();
    const uploading = keptAgent();
    await get(gateway.origin, agent);
    const post = halfPost(gateway.origin, uploading);
    await until(async () => (await gateway.metric('digest_gateway_request_bytes_total')) === 3);
    process.kill(gateway.pid, 'SIGTERM');
    await until(() => refusesConnections(gateway.origin));
    expect(await get(gateway.origin, agent)).toEqual({ status: 200, close: true });
    post.write('two');
    post.end('six');
    expect(await answerTo(post)).toEqual({ status: 200, close: true });
    await until(() => gateway.logged.some(({ msg }) => msg === 'stopped'));
  });

  test('skips the delay at a second signal, and closes connections that wait', async () => {
    const gateway = await serve(await startScene(), {
      drain: { delay: '1h' },
      listen: { port: 0, limits: { keepAliveTimeout: '1h' } },
    });
    const uploading = keptAgent();
    await get(gateway.origin, keptAgent());
    const post = halfPost(gateway.origin, uploading);
    await until(async () => (await gateway.metric('digest_gateway_request_bytes_total')) === 3);
    process.kill(gateway.pid, 'SIGTERM');
    await until(async () => (await readyz(gateway.control)) === 503);
    process.kill(gateway.pid, 'SIGTERM');
    await until(() => refusesConnections(gateway.origin));
    post.end('twosix');
    expect(await answerTo(post)).toEqual({ status: 200, close: true });
    await until(() => gateway.logged.some(({ msg }) => msg === 'stopped'));
  });

  test('breaks off what is not done after drain.timeout', async () => {
    const gateway = await serve(await startScene(), { drain: { delay: '0s', timeout: '200ms' } });
    const post = halfPost(gateway.origin, keptAgent());
    const broken = once(post, 'error');
    await until(async () => (await gateway.metric('digest_gateway_request_bytes_total')) === 3);
    process.kill(gateway.pid, 'SIGTERM');
    await broken;
    await until(() => gateway.logged.some(({ msg }) => msg === 'stopped'));
  });
});

test('what is broken off after drain.timeout is in all logs and counts, as ended by the gateway', async () => {
  const directory = await folder();
  const [keyFile, file] = [join(directory, 'key'), join(directory, 'access.log')];
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  let waiting = 0;
  await using upstream = await startUpstream((req, res) => {
    if (req.headers.authorization === undefined)
      res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n", qop="auth"' }).end();
    else waiting += 1;
    if (req.headers.authorization !== undefined && req.url === '/half')
      res.writeHead(200, { 'content-length': '9' }).write('half');
  });
  const settings = { tls: { allowPlaintext: true } };
  const gateway = await startConfiguredGateway(
    { service: { origin: upstream.origin, settings } },
    {
      log: { access: { file } },
      audit: { directory: join(directory, 'audit'), replica: REPLICA, keyFile, durability: 'fsync' },
      drain: { delay: '0s', timeout: '1ms' },
    },
  );
  const half = await fetch(`${gateway.origin}/half`);
  const asked = [half.text(), fetch(`${gateway.origin}/silent`)].map((each) =>
    expect(each).rejects.toThrow(TypeError),
  );
  await until(() => waiting === 2);
  await gateway.close();
  await Promise.all(asked);
  const lines = (await readFile(file, 'utf8')).trim().split('\n');
  expect(lines.map((line) => / "GET (\/\w+) [^"]+" (\d+) /.exec(line)?.slice(1)).toSorted()).toEqual([
    ['/half', '200'],
    ['/silent', '503'],
  ]);
  const records = await recordsIn(join(directory, 'audit'));
  expect(records.filter(({ kind, code }) => kind !== 'admin' && code !== '').map(({ code }) => code)).toEqual(
    ['draining', 'draining'],
  );
  const counted = { deployment: 'service', code: 'draining' };
  expect(await gateway.lastMetric('digest_gateway_requests_total', counted)).toBe(2);
});

describe('a client with HTTP/1.0, whose response has no length', () => {
  const settings = { tls: { allowPlaintext: true } };

  /** Ends a gateway in the middle of a response; resolves to the error of the connection to it. */
  async function cutOff(listen: Record<string, unknown>): Promise<NodeJS.ErrnoException | undefined> {
    await using upstream = await startUpstream((req, res) => {
      if (req.headers.authorization === undefined)
        res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n", qop="auth"' }).end();
      else res.writeHead(200).write('half');
    });
    const deployments = { service: { origin: upstream.origin, settings } };
    const gateway = await startGateway(deployments, { listen, drain: { delay: '0s', timeout: '1ms' } });
    const [{ address, port } = { address: '', port: 0 }] = gateway.listening;
    const client = port === 0 ? connect(address.replace('unix:', '')) : connect(port, '127.0.0.1');
    client.write('GET / HTTP/1.0\r\nHost: x\r\n\r\n');
    const ended = once(client, 'end').then(
      () => undefined,
      (error) => error,
    );
    let read = '';
    client.on('data', (chunk) => {
      read += chunk;
    });
    await until(() => read.endsWith('half'));
    await gateway.close();
    return await ended;
  }

  test('gets a reset from what ends after drain.timeout: an orderly end would make it whole', async () => {
    expect(await cutOff({ port: 0 })).toMatchObject({ code: 'ECONNRESET' });
  });

  test('is cut off over a UNIX socket, too, which has no reset', async () => {
    expect(await cutOff({ address: `unix:${join(await folder(), 'data.sock')}` })).toBeUndefined();
  });
});

test('two gateways behind HAProxy are drained and restarted in turn, and no request fails', async () => {
  const pair = await startScene();
  const places: Ports[] = [];
  for (let left = 2; left > 0; left -= 1)
    places.push({ listen: await freePort(), control: await freePort() });
  // Twenty times what HAProxy takes from one check to the next.
  const start = (place: Ports) => serve(pair, { drain: { delay: '1s' } }, place);
  const running = await Promise.all(places.map(start));
  const balancer = await startHaProxy(
    places.map(({ listen, control }, index) => ({ name: `g${index}`, port: listen, controlPort: control })),
    { defaults: ['retries 0', 'timeout server 60s'] },
  );
  closing.push(() => balancer.close());
  const isUp = (index: number) => async () => (await balancer.statusOf(`g${index}`)) === 'UP';
  for (const index of running.keys()) await until(isUp(index));

  const load = startMixedLoad(balancer.origin);
  for (const index of [0, 1]) {
    const [before, place] = [load.answers, places[index]];
    await running[index]?.drain();
    if (place !== undefined) running[index] = await start(place);
    await until(isUp(index));
    await until(() => load.answers > before + 50);
  }
  expect(await load.end()).toEqual([]);
});

test('a drain ends with its record while a file that is watched is on a mount that hangs', async () => {
  const directory = await folder();
  const [preload, password, keyFile] = ['hangs.mjs', 'password', 'key'].map((name) => join(directory, name));
  await writeFile(String(preload), HANGS);
  await writeFile(String(password), 'demo-api-key', { mode: 0o600 });
  await writeFile(String(keyFile), AUDIT_KEY, { mode: 0o600 });
  const { simulator } = await startScene();
  const { origin } = simulator.deployments.submissions;
  const gateway = await startGatewayProcess(
    { upstream: { origin, ca: simulator.ca, settings: { credential: 'watched' } } },
    {
      credentials: { watched: { username: { value: 'demo-user' }, password: { file: password } } },
      audit: { directory, replica: REPLICA, keyFile },
      drain: { delay: '0s' },
    },
    { runner: ['env', `NODE_OPTIONS=--import=${preload}`] },
  );
  closing.push(() => gateway.kill());
  await writeFile(`${password}.hangs`, '');
  await until(() => gateway.printed.includes('stat hangs'));
  process.kill(gateway.pid, 'SIGTERM');
  expect(await gateway.ended).toBe(0);
  expect((await recordsIn(directory)).at(-1)).toMatchObject({ kind: 'admin', event: 'stop' });
});

test.each(['start', 'end'])('a request whose span could not %s does not hold the end up', async (fails) => {
  const fail = (): never => {
    throw new Error('the SDK failed');
  };
  const startSpan = (name: string): Span => {
    const span = trace.wrapSpanContext(INVALID_SPAN_CONTEXT);
    if (name !== 'request') return span;
    return fails === 'start' ? fail() : Object.assign(span, { end: fail });
  };
  const tracing = new Tracing({ startSpan, startActiveSpan: fail });
  const gateway = await startGateway({ service: { origin: 'https://127.0.0.1:1' } }, {}, { tracing });
  const reported = await reportedDuring(async () => {
    await fetch(gateway.origin).catch(() => undefined);
    await gateway.close();
  });
  expect(reported).toEqual(['the SDK failed']);
});

test('a gateway that has closed its data plane is not starting', async () => {
  const { gateway } = await startScene();
  await gateway.close();
  expect((await gateway.plane.state()).stage).toBe('draining');
});

async function refusesConnections(origin: string): Promise<boolean> {
  const sent = request(origin, { agent: false }).end();
  const outcome = once(sent, 'response').then(([answer]) => answer.resume());
  return outcome.then(
    () => false,
    () => true,
  );
}

/** Clients that keep their connections: some ask, some send a body in three pieces. */
function startMixedLoad(origin: string): { readonly answers: number; end(): Promise<string[]> } {
  const failures: string[] = [];
  let [answers, going] = [0, true];
  const client = async (send: (agent: Agent) => Promise<ClientRequest>): Promise<void> => {
    const agent = keptAgent();
    while (going) {
      try {
        const sent = await send(agent);
        const [answer] = (await once(sent, 'response')) as [IncomingMessage];
        const content = await text(answer);
        if (answer.statusCode !== 200) failures.push(`${answer.statusCode} ${content}`);
      } catch (error) {
        failures.push(String(error));
      }
      answers += 1;
      await delay(20);
    }
  };
  const asks = async (agent: Agent) => request(`${origin}${authors}`, { agent }).end();
  const sends = async (agent: Agent) => {
    const post = halfPost(origin, agent);
    // Its failure is met by who awaits the response.
    post.on('error', () => undefined);
    await delay(20);
    post.write('two');
    await delay(20);
    return post.end('six');
  };
  const clients = Promise.all([asks, asks, sends, sends, sends, sends].map(client));
  return {
    get answers() {
      return answers;
    },
    end: async () => {
      going = false;
      await clients;
      return failures;
    },
  };
}

test('a shutdown finishes what is under way and refuses requests on kept connections', async () => {
  const { simulator, gateway } = await startScene({
    behaviour: {
      faults: [{ kind: 'delay', ms: 200, when: 'authenticated', times: 1 }],
    },
  });
  const agent = keptAgent();
  const slow = get(gateway.origin, agent);
  await until(() => simulator.counts('submissions').accepted > 0);
  const closed = gateway.close();
  expect((await slow).status).toBe(200);
  await closed;
  await expect(get(gateway.origin, agent)).rejects.toThrow();
});
