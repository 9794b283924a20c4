import { hash } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { Agent, type ClientRequest, type IncomingMessage, request } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { connect as plain } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect, type TLSSocket } from 'node:tls';
import { describe, expect, test } from '@jest/globals';
import type { AuditOptions } from '../../../src/audit/audit.ts';
import type { BehaviourChange } from '../../../src/simulator/settings.ts';
import { AUDIT_KEY, auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { closing } from '../../support/closing.ts';
import { setupFor, type TestDeployment, type TopLevel } from '../../support/gateway.ts';
import { createTestAuthority, writeTlsFiles } from '../../support/issued-certificates.ts';
import { type RunningScene, startScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

// Hooks run in this order: folders go when nothing writes there any more.
const folders = useFolders();

interface Asked {
  readonly status: number;
  readonly body: string;
  /** Code of the gateway's own refusal. */
  readonly code: string | undefined;
  /** Whether the request went over the connection of the one before. */
  readonly reused: boolean;
  /** Whether the connection ends with the response. */
  readonly ends: boolean;
}

interface Ask {
  readonly target?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

interface Scene extends RunningScene {
  /** Sends a request over one kept connection. */
  ask(ask?: Ask): Promise<Asked>;
  /** Reloads the gateway with another configuration. */
  reload(deployment: Partial<TestDeployment>, top?: TopLevel): Promise<void>;
}

async function answered(sent: ClientRequest): Promise<Asked> {
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  const body = await text(answer);
  const own = answer.headers['content-type'] === 'application/problem+json';
  const code = own ? (JSON.parse(body) as { code: string }).code : undefined;
  const ends = answer.headers.connection === 'close';
  return { status: answer.statusCode ?? 0, body, code, reused: sent.reusedSocket, ends };
}

async function setScene(
  behaviour: BehaviourChange = {},
  settings: Record<string, unknown> = {},
  top: TopLevel = {},
  audit?: AuditOptions,
): Promise<Scene> {
  const pair = await startScene({ behaviour, settings, top, ...(audit && { audit }) });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  closing.push(() => agent.destroy());
  const { origin } = pair.simulator.deployments.submissions;
  const { gateway, simulator } = pair;
  return {
    ...pair,
    ask: ({ target = '/echo', headers = {}, body } = {}) => {
      const method = body === undefined ? 'GET' : 'POST';
      return answered(request(`${gateway.origin}${target}`, { agent, method, headers }).end(body));
    },
    async reload(deployment, changed = top) {
      const submissions = { origin, ca: simulator.ca, settings, ...deployment };
      const setup = await setupFor({ submissions }, changed, gateway.versions);
      await gateway.app.reload(() => Promise.resolve(setup));
      expect(await gateway.metric('digest_gateway_config_reloads_total', { result: 'failure' })).toBe(0);
    },
  };
}

const parameterOf = (name: string, { body }: Asked): string | undefined =>
  new RegExp(`${name}=\\\\?"?([^",\\\\]+)`).exec(body)?.[1];

describe('a nonce that is kept', () => {
  test.each([[undefined], ['auth' as const]])(
    'is used no more when its algorithm is allowed no more (qop %p)',
    async (qop) => {
      const { ask, reload } = await setScene(
        { algorithms: ['MD5', 'SHA-256'], ...(qop && { qop }) },
        { digest: { algorithms: ['MD5'] } },
      );
      const before = [await ask(), await ask()];
      expect(before.map((each) => parameterOf('algorithm', each) ?? 'MD5')).toEqual(['MD5', 'MD5']);
      await reload({ settings: { digest: { algorithms: ['SHA-256'] } } });
      const after = [await ask(), await ask()];
      expect(after.map(({ status, reused }) => [status, reused])).toEqual([
        [200, true],
        [200, true],
      ]);
      expect(after.map((each) => parameterOf('algorithm', each))).toEqual(['SHA-256', 'SHA-256']);
      const old = parameterOf('nonce', before[0] as Asked);
      expect(after.map((each) => parameterOf('nonce', each))).not.toContain(old);
    },
  );

  test('is used once when nonces may be used once', async () => {
    const { ask, reload } = await setScene({ qop: 'auth' }, { digest: { noncePolicy: 'shared' } });
    const nonces = [await ask(), await ask()];
    await reload({ settings: { digest: { noncePolicy: 'single-use' } } });
    nonces.push(await ask(), await ask());
    const [first, second, third, fourth] = nonces.map((each) => parameterOf('nonce', each));
    expect(second).toBe(first);
    expect(new Set([first, third, fourth]).size).toBe(3);
  });

  test('is dropped with every connection when the TLS settings of the upstream change', async () => {
    const { ask, reload, simulator } = await setScene();
    const first = parameterOf('nonce', await ask());
    await reload({ settings: { tls: { minVersion: 'TLSv1.3' } } });
    const opened = simulator.counts('submissions').connections;
    const again = await ask();
    expect([again.status, again.reused]).toEqual([200, true]);
    expect(parameterOf('nonce', again)).not.toBe(first);
    expect(simulator.counts('submissions').connections).toBeGreaterThan(opened);
  });
});

describe('the next request on an open connection', () => {
  const client = (more: Record<string, unknown> = {}, identify: Record<string, unknown> = {}) => ({
    id: 'app',
    identify: { addresses: ['127.0.0.1'], ...identify },
    allow: [{ deployment: 'submissions' }],
    ...more,
  });
  const known = (...clients: unknown[]) => ({ anonymous: false, clients });
  const elsewhere = client({ id: 'elsewhere' }, { addresses: ['192.0.2.1'] });
  const sites = (...names: string[]) => ({
    credential: undefined,
    siteParameter: 'site_name',
    sites: Object.fromEntries(names.map((name) => [name, { credential: 'submissions' }])),
  });
  const PIN = `${'A'.repeat(43)}=`;
  const KEY = 'dgk_0123456789abcdef0123456789abcdef01234567';
  const otherAuthority = createTestAuthority('CN=Others');

  interface Change {
    readonly before?: { settings?: Record<string, unknown>; top?: TopLevel };
    readonly after: Partial<TestDeployment> & { top?: TopLevel };
    readonly ask?: Ask;
    readonly code: string | undefined;
    readonly status: number;
  }
  const changes: [what: string, change: Change][] = [
    ['anonymous: false', { after: { top: known(elsewhere) }, code: 'client-unknown', status: 401 }],
    [
      'a client that is removed',
      {
        before: { top: known(client()) },
        after: { top: known(elsewhere) },
        code: 'client-unknown',
        status: 401,
      },
    ],
    [
      'a client whose address is another one',
      {
        before: { top: known(client()) },
        after: { top: known(client({}, { addresses: ['192.0.2.1'] })) },
        code: 'client-unknown',
        status: 401,
      },
    ],
    [
      'an API key that is replaced',
      {
        before: { top: known(client({}, { apiKeySha256: hash('sha256', KEY) })) },
        after: { top: known(client({}, { apiKeySha256: hash('sha256', 'another') })) },
        ask: { headers: { 'x-api-key': KEY } },
        code: 'client-unknown',
        status: 401,
      },
    ],
    [
      'a client that may use another method only',
      {
        before: { top: known(client()) },
        after: { top: known(client({ allow: [{ deployment: 'submissions', methods: ['POST'] }] })) },
        code: 'client-forbidden',
        status: 403,
      },
    ],
    [
      'a client that is limited',
      {
        before: { top: known(client()) },
        after: { top: known(client({ limits: { daily: 1 } })) },
        code: 'rate-limited',
        status: 429,
      },
    ],
    [
      'a deployment that is limited',
      { after: { settings: { limits: { daily: 1 } } }, code: 'rate-limited', status: 429 },
    ],
    [
      'a proxy that is trusted no more',
      {
        before: {
          top: {
            ...known(client({}, { addresses: ['192.0.2.1'] })),
            listen: { port: 0, trustedProxies: ['127.0.0.1'] },
          },
        },
        after: { top: known(client({}, { addresses: ['192.0.2.1'] })) },
        ask: { headers: { 'x-forwarded-for': '192.0.2.1' } },
        code: 'client-unknown',
        status: 401,
      },
    ],
    [
      'a site that is removed',
      {
        before: { settings: sites('demo', 'other') },
        after: { settings: sites('other') },
        ask: { target: '/echo?site_name=demo' },
        code: 'site-unknown',
        status: 403,
      },
    ],
    [
      'unlistedOperations: deny',
      {
        after: {
          settings: { unlistedOperations: 'deny', operations: { one: { method: 'GET', path: '/one' } } },
        },
        code: 'operation-unlisted',
        status: 403,
      },
    ],
    [
      'another path of the deployment',
      { after: { settings: { match: { pathPrefix: '/api/' } } }, code: 'no-deployment', status: 404 },
    ],
    [
      'a smaller body.max',
      {
        after: { settings: { body: { replayUpTo: '1B', max: '1B' } } },
        ask: { body: 'two' },
        code: 'body-too-large',
        status: 413,
      },
    ],
    [
      'a pin that the upstream does not have',
      { after: { settings: { tls: { pinSha256: [PIN] } } }, code: 'upstream-tls', status: 502 },
    ],
    [
      'a server name that the upstream does not have',
      { after: { settings: { tls: { serverName: 'other.example' } } }, code: 'upstream-tls', status: 502 },
    ],
    [
      'an address to leave from that is not here',
      {
        after: { settings: { egress: { localAddress: '192.0.2.1' } } },
        code: 'upstream-unreachable',
        status: 502,
      },
    ],
  ];

  test.each(changes)(
    'is served by the new configuration: %s',
    async (_, { before = {}, after, ask, code, status }) => {
      const scene = await setScene({}, before.settings, before.top);
      const served = [await scene.ask(ask), await scene.ask(ask)];
      expect(served.map((each) => each.status)).toEqual([200, 200]);
      const { top, ...deployment } = after;
      await scene.reload(deployment, top ?? before.top);
      // The first may be the one that a limit lets pass.
      let last = await scene.ask(ask);
      if (status === 429) last = await scene.ask(ask);
      expect([last.code, last.status, last.reused]).toEqual([code, status, true]);
    },
  );

  test('trusts the new authority of the upstream', async () => {
    const { ask, reload } = await setScene();
    expect((await ask()).status).toBe(200);
    await reload({ ca: (await otherAuthority).ca });
    expect(await ask()).toMatchObject({ code: 'upstream-tls', status: 502, reused: true });
  });

  test('has the new timeouts', async () => {
    const { ask, reload } = await setScene({ faults: [{ kind: 'delay', ms: 400, when: 'authenticated' }] });
    expect((await ask()).status).toBe(200);
    await reload({ settings: { timeouts: { total: '50ms' } } });
    expect(await ask()).toMatchObject({ code: 'upstream-timeout', reused: true });
  });
});

describe('a client certificate', () => {
  const clients = [
    {
      id: 'reporting',
      identify: { certificate: { san: 'dns:reporting.internal' } },
      allow: [{ deployment: 'submissions' }],
    },
  ];

  test('is invalid on open and resumed connections when its authority is removed', async () => {
    const [servers, removed, kept] = await Promise.all(
      ['CN=Servers', 'CN=Removed', 'CN=Kept'].map((name) => createTestAuthority(name)),
    );
    if (servers === undefined || removed === undefined || kept === undefined) throw new Error('no authority');
    const [server, mine, other] = await Promise.all([servers.server(), removed.client(), kept.client()]);
    const files = await writeTlsFiles(server, `${removed.ca}\n${kept.ca}`);
    closing.push(() => files.remove());
    const top = { anonymous: false, clients, listen: { port: 0, tls: files.section } };
    const { gateway, reload } = await setScene({}, {}, top);
    const open = async (pair: typeof mine, session?: Buffer): Promise<TLSSocket> => {
      const socket = connect({
        port: gateway.port,
        host: '127.0.0.1',
        ca: servers.ca,
        ...pair,
        ...(session && { session }),
      });
      closing.push(() => socket.destroy());
      socket.on('error', () => undefined);
      await once(socket, 'secureConnect');
      return socket;
    };
    const ask = (socket: TLSSocket) =>
      answered(
        httpsRequest(`${gateway.origin}/echo`, {
          createConnection: () => socket,
          headers: { connection: 'keep-alive' },
        }).end(),
      );
    const socket = await open(mine);
    const session = once(socket, 'session') as Promise<[Buffer]>;
    expect((await ask(socket)).status).toBe(200);
    const [ticket] = await session;
    const ended = once(socket, 'close');
    await writeFile(files.section.clientCaFile, kept.ca);
    await reload({}, top);
    await ended;
    expect(await ask(await open(mine))).toMatchObject({ code: 'client-unknown', status: 401 });
    expect(await ask(await open(mine, ticket))).toMatchObject({ code: 'client-unknown', status: 401 });
    expect((await ask(await open(other))).status).toBe(200);
  });

  test('stays valid when an authority is added, whose clients connect anew, and a request under way is finished', async () => {
    const [servers, first, second] = await Promise.all(
      ['CN=Servers', 'CN=First', 'CN=Second'].map((name) => createTestAuthority(name)),
    );
    if (servers === undefined || first === undefined || second === undefined) throw new Error('no authority');
    const [server, mine, other] = await Promise.all([servers.server(), first.client(), second.client()]);
    const files = await writeTlsFiles(server, first.ca);
    closing.push(() => files.remove());
    const top = { anonymous: false, clients, listen: { port: 0, tls: files.section } };
    const { gateway, reload, simulator } = await setScene(
      { faults: [{ kind: 'delay', ms: 300, when: 'authenticated' }] },
      {},
      top,
    );
    const open = (pair: Partial<typeof mine>): TLSSocket => {
      const opened = connect({ port: gateway.port, host: '127.0.0.1', ca: servers.ca, ...pair });
      closing.push(() => opened.destroy());
      return opened;
    };
    const socket = open(mine);
    const ask = (on = socket) =>
      answered(
        httpsRequest(`${gateway.origin}/echo`, {
          createConnection: () => on,
          headers: { connection: 'keep-alive' },
        }).end(),
      );
    const refused = [open(other), open({})];
    expect((await ask()).status).toBe(200);
    for (const each of refused) expect((await ask(each)).status).toBe(401);
    await writeFile(files.section.clientCaFile, `${first.ca}\n${second.ca}`);
    await reload({}, top);
    expect((await ask()).status).toBe(200);
    // TLS verified their certificates before: a client that keeps its connection would be refused for good.
    for (const each of refused) expect(await ask(each)).toMatchObject({ status: 401, ends: true });
    expect((await ask(open(other))).status).toBe(200);
    const { accepted } = simulator.counts('submissions');
    const underWay = ask();
    await until(() => simulator.counts('submissions').accepted > accepted);
    await writeFile(files.section.clientCaFile, second.ca);
    const ended = once(socket, 'close');
    await reload({}, top);
    expect((await underWay).status).toBe(200);
    await ended;
  });

  test('is not refused for good if its handshake began before its authority was added; a begun response loses no request behind it', async () => {
    const [servers, first, second] = await Promise.all(
      ['CN=Servers', 'CN=First', 'CN=Second'].map((name) => createTestAuthority(name)),
    );
    if (servers === undefined || first === undefined || second === undefined) throw new Error('no authority');
    const [server, other] = await Promise.all([servers.server(), second.client()]);
    const files = await writeTlsFiles(server, first.ca);
    closing.push(() => files.remove());
    const top = { listen: { port: 0, tls: files.section } };
    const { gateway, reload } = await setScene({}, {}, top);
    const at = { port: gateway.port, host: '127.0.0.1' };
    // It is accepted before the next one, so its handshake has begun.
    const raw = plain(at);
    await once(raw, 'connect');
    const begun = connect({ ...at, ca: servers.ca });
    for (const socket of [raw, begun]) closing.push(() => socket.destroy());
    const lines = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`;
    begun.write(lines('/bytes/30000000'));
    await once(begun, 'readable');
    await writeFile(files.section.clientCaFile, `${first.ca}\n${second.ca}`);
    await reload({}, top);
    const late = connect({ socket: raw, ca: servers.ca, checkServerIdentity: () => undefined, ...other });
    late.write(lines('/echo'));
    expect(await text(late)).toMatch(/^Connection: close/m);
    begun.write(lines('/echo'));
    const heads = (await text(begun)).match(/HTTP\/1\.1 \d+|^Connection: [\w-]+/gm);
    expect(heads).toEqual(['HTTP/1.1 200', 'Connection: keep-alive', 'HTTP/1.1 200', 'Connection: close']);
  });
});

test('the next audit record follows the new audit.parameters and audit.pseudonyms.fields', async () => {
  const folder = await folders();
  const keyFile = join(await folders(), 'key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const keysDirectory = await folders();
  const parameters = ['ids'];
  const hiding = (fields: readonly string[]) => ({
    audit: { directory: folder, keyFile, parameters, pseudonyms: { keysDirectory, fields } },
  });
  const pseudonyms = { keysDirectory, fields: ['parameters.ids'], per: 'month' } as const;
  const audit = auditOptions(folder, { pseudonyms });
  const { ask, gateway, reload } = await setScene({}, {}, hiding(['parameters.ids']), audit);
  await ask({ target: '/echo?ids=one' });
  await reload({}, { audit: { ...hiding(['address']).audit, parameters: [] } });
  await ask({ target: '/echo?ids=two' });
  await reload({}, hiding(['address']));
  await ask({ target: '/echo?ids=three' });
  await gateway.close();
  const records = (await recordsIn(folder)).filter(({ kind }) => kind === 'access');
  const hidden = expect.stringMatching(/^ps1:/);
  expect(records.map(({ parameters: recorded, address }) => [recorded, address])).toEqual([
    [{ ids: hidden }, '127.0.0.1'],
    [{ ids: null }, hidden],
    [{ ids: 'three' }, hidden],
  ]);
});
