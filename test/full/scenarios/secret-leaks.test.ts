import { createHash, randomBytes } from 'node:crypto';
import { readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { beforeEach, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { parseDocument } from 'yaml';
import { defaultSettings } from '../../../src/simulator/settings.ts';
import { type Simulator, startSimulator } from '../../../src/simulator/simulator.ts';
import { useFolders } from '../../support/audit-log.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import { listenOnLoopback } from '../../support/loopback-server.ts';
import { CLIENT_ID } from '../../support/oidc.ts';
import { gateway as runGateway } from '../../support/program.ts';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { authors } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const MARK = `mark${randomBytes(8).toString('hex')}`;
const SECRETS = {
  right: `${MARK}-right`,
  wrong: `${MARK}-wrong`,
  apiKey: `${MARK}-key`,
  auditKey: randomBytes(32).toString('hex'),
  redis: `${MARK}-redis`,
  token: `${MARK}-token`,
  control: `${MARK}-control`,
  cookie: `${MARK}-cookie`,
  accessKey: `${MARK}-access-key`,
  s3: `${MARK}-s3`,
  session: `${MARK}-session`,
  otlp: `${MARK}-otlp`,
  signIn: `${MARK}-sign-in`,
  code: `${MARK}-code`,
};

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

const CLIENTS = [
  {
    id: 'reporting',
    identify: { apiKeySha256: sha256(SECRETS.apiKey) },
    allow: [{ deployment: 'upstream' }],
  },
];
const REFUSED = 'configuration refused; keeping the current one';

/** Every form in which a secret could slip out, a stored hash of the password among them. */
function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const a1 = createHash('md5').update(`demo-user:ExampleApiService:${secret}`).digest('hex');
  const basic = Buffer.from(`reporting:${secret}`).toString('base64').replace(/=+$/, '');
  const plain = bytes.toString('base64').replace(/=+$/, '');
  // OAuth encodes both parts as in a form (RFC 6749 §2.3.1).
  const encoded = secret.replaceAll('-', '%2D');
  const client = Buffer.from(`${CLIENT_ID.replaceAll('-', '%2D')}:${encoded}`)
    .toString('base64')
    .replace(/=+$/, '');
  return [secret, encoded, plain, basic, client, bytes.toString('hex'), a1, sha256(secret)];
}

const newFolder = useFolders();
let folder: string;
beforeEach(async () => {
  folder = await newFolder();
});

async function put(name: string, text: string): Promise<string> {
  const file = join(folder, name);
  await writeFile(`${file}.new`, text, { mode: 0o600 });
  await rename(`${file}.new`, file);
  return file;
}

async function openSimulator(): Promise<Simulator<'submissions' | 'abstracts'>> {
  const { deployments } = defaultSettings();
  const accounts = [{ username: 'demo-user', password: SECRETS.right, sites: ['demo'] }];
  const submissions = { ...deployments.submissions, accounts, testPaths: true };
  return closedAtEnd(startSimulator({ deployments: { ...deployments, submissions } }));
}

/** All that anybody tells this Redis from now on. */
async function overhear(redis: RedisServer): Promise<string[]> {
  const heard: string[] = [];
  const spy = new Redis({ host: '127.0.0.1', port: redis.port, password: SECRETS.redis });
  // ioredis takes a call that it overhears in its first moment for a reply: its own INFO at the start, too.
  await spy.ping();
  const monitor = await spy.monitor();
  monitor.on('monitor', (_time: string, args: string[]) => heard.push(args.join(' ')));
  closing.push(async () => {
    monitor.disconnect();
    spy.disconnect();
  });
  return heard;
}

async function serveMarked(simulator: Simulator<'submissions'>, redis: RedisServer): Promise<GatewayProcess> {
  const password = await put('password', SECRETS.right);
  const { submissions } = simulator.deployments;
  const top = {
    anonymous: false,
    control: { port: 0, tokenSha256: sha256(SECRETS.control) },
    clients: CLIENTS,
    redis: { url: redis.url, password: { file: await put('redis', SECRETS.redis) } },
    credentials: { upstream: { username: { value: 'demo-user' }, password: { file: password } } },
    audit: { directory: join(folder, 'audit'), keyFile: await put('audit.key', SECRETS.auditKey) },
  };
  const reports = `--report-on-signal --report-signal=SIGUSR2 --report-directory=${folder}`;
  const runner = ['env', `NODE_OPTIONS=${reports}`, `API_PASSWORD=${SECRETS.right}`];
  const gateway = await startGatewayProcess(
    { upstream: { origin: submissions.origin, ca: simulator.ca } },
    top,
    { runner },
  );
  closing.push(() => gateway.close());
  return gateway;
}

/** Asks as clients do that carry secrets of their own; gives all of each answer. */
async function answersOf({ origin }: GatewayProcess): Promise<string[]> {
  const basic = `Basic ${Buffer.from(`reporting:${SECRETS.apiKey}`).toString('base64')}`;
  const cookie = `session=${SECRETS.cookie}`;
  const asked: [string, Record<string, string>][] = [
    [authors, { 'x-api-key': SECRETS.apiKey, cookie }],
    [authors, { authorization: basic }],
    [authors, { authorization: `Bearer ${SECRETS.token}` }],
    [authors, { 'x-api-key': `${SECRETS.apiKey}x` }],
    ['/test/status/500', { 'x-api-key': SECRETS.apiKey }],
    ['/no/such/thing', { 'x-api-key': SECRETS.apiKey, cookie }],
  ];
  return Promise.all(
    asked.map(async ([target, headers]) => {
      const answer = await fetch(`${origin}${target}`, { headers });
      return `${answer.status} ${JSON.stringify([...answer.headers])} ${await answer.text()}`;
    }),
  );
}

async function pagesOf({ control }: GatewayProcess): Promise<string[]> {
  const headers = { authorization: `Bearer ${SECRETS.control}` };
  const paths = [
    '/',
    '/livez',
    '/readyz',
    '/metrics',
    '/openapi.json',
    '/api/snapshot',
    '/api/history',
    '/none',
  ];
  return Promise.all(paths.map(async (path) => (await fetch(`${control}${path}`, { headers })).text()));
}

async function filesIn(directory: string): Promise<string[]> {
  const names = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = names.filter((entry) => entry.isFile());
  return Promise.all(files.map((entry) => readFile(join(entry.parentPath, entry.name), 'latin1')));
}

interface QuotingServer {
  readonly origin: string;
  /** Head and body of each request. */
  readonly received: readonly string[];
}

/** A receiver of OTLP, an S3 service and an OpenID provider, which refuse everything and quote it in their errors. */
async function startQuoting(): Promise<QuotingServer> {
  const received: string[] = [];
  const server = createServer(async (req, res) => {
    if (req.url?.startsWith('/.well-known/')) {
      const issuer = `http://${req.headers.host}`;
      const places = { authorization_endpoint: `${issuer}/auth`, token_endpoint: `${issuer}/token` };
      res.setHeader('content-type', 'application/json');
      res.end(JSON.stringify({ issuer, ...places, jwks_uri: `${issuer}/keys` }));
      return;
    }
    const quoted = `${req.url} ${req.rawHeaders.join(' ')} ${await text(req)}`;
    received.push(quoted);
    const isObject = req.url?.startsWith('/bucket/') === true;
    res.writeHead(isObject ? 403 : 401, {
      'content-type': isObject ? 'application/xml' : 'application/json',
    });
    const message = isObject
      ? `<Error><Code>InvalidAccessKeyId</Code><Message>${quoted}</Message></Error>`
      : JSON.stringify({ code: 16, message: quoted, error: 'invalid_client', error_description: quoted });
    res.end(message);
  });
  const { port, close } = await listenOnLoopback(server);
  closing.push(close);
  return { origin: `http://127.0.0.1:${port}`, received };
}

async function serveWithReceivers({ origin }: QuotingServer): Promise<GatewayProcess> {
  const simulator = await openSimulator();
  const { submissions } = simulator.deployments;
  const s3 = {
    bucket: 'bucket',
    region: 'eu-central-1',
    endpoint: origin,
    pathStyle: true,
    accessKeyId: { file: await put('access-key', SECRETS.accessKey) },
    secretAccessKey: { file: await put('s3', SECRETS.s3) },
    sessionToken: { file: await put('session', SECRETS.session) },
    lock: false,
  };
  const headers = { authorization: { file: await put('otlp', SECRETS.otlp) } };
  const top = {
    control: {
      port: 0,
      tokenSha256: sha256(SECRETS.control),
      oidc: {
        issuer: origin,
        clientId: CLIENT_ID,
        clientSecret: { file: await put('sign-in', SECRETS.signIn) },
        publicUrl: 'http://127.0.0.1:8081',
        roles: { viewer: ['everyone'] },
      },
    },
    anonymous: false,
    clients: CLIENTS,
    credentials: {
      upstream: {
        username: { value: 'demo-user' },
        password: { file: await put('password', SECRETS.right) },
      },
    },
    audit: {
      directory: join(folder, 'audit'),
      keyFile: await put('audit.key', SECRETS.auditKey),
      segment: { size: '1KiB' },
      sinks: [
        { name: 'bucket', s3 },
        { name: 'logs', otlp: { endpoint: `${origin}/v1/logs`, headers } },
      ],
    },
  };
  const gateway = await startGatewayProcess(
    { upstream: { origin: submissions.origin, ca: simulator.ca } },
    top,
  );
  closing.push(() => gateway.close());
  return gateway;
}

/** Signs in as far as the provider lets it; gives all of each answer. */
async function signInAt({ control }: GatewayProcess): Promise<string[]> {
  const begun = await fetch(`${control}/login/start`, { redirect: 'manual' });
  const url = begun.headers.get('location') ?? '';
  const { searchParams } = new URL(url);
  const cookie = begun.headers.getSetCookie()[0]?.split(';')[0] ?? '';
  const search = new URLSearchParams({ code: SECRETS.code, state: searchParams.get('state') ?? '' });
  const ended = await fetch(`${control}/login/callback?${search}`, {
    headers: { cookie },
    redirect: 'manual',
  });
  return [url, `${ended.status} ${JSON.stringify([...ended.headers])} ${await ended.text()}`];
}

/** Values that are refused, by what is wrong with them and by their paths. */
async function misplaced(): Promise<Record<string, Readonly<Record<string, unknown>>>> {
  const { accessKey, s3, session, otlp, signIn, right } = SECRETS;
  const [bucket, logs] = ['audit.sinks.0.s3', 'audit.sinks.1.otlp'];
  const [password, clientSecret] = ['credentials.upstream.password', 'control.oidc.clientSecret'];
  return {
    'no source': {
      [`${bucket}.accessKeyId`]: accessKey,
      [`${bucket}.secretAccessKey`]: s3,
      [`${bucket}.lock`]: session,
      [`${logs}.endpoint`]: `https://user:${otlp}@127.0.0.1/v1/logs`,
      [`${logs}.headers.authorization`]: `Bearer ${otlp}`,
      [password]: right,
      [clientSecret]: signIn,
    },
    'a key': {
      [`${bucket}.secretAccessKey`]: { [s3]: null },
      [`${bucket}.sessionToken:${session}`]: null,
      [`${logs}.headers`]: { [`Authorization: Bearer ${otlp}`]: null },
      [password]: { [right]: null },
      [clientSecret]: { [signIn]: null },
    },
    'two sources': {
      [`${bucket}.secretAccessKey`]: { value: s3, env: s3 },
      [clientSecret]: { value: signIn, file: signIn },
    },
    'a character that no header field has': {
      [`${bucket}.accessKeyId`]: { file: await put('access-key-2', `${accessKey}\u0001`) },
      [`${bucket}.sessionToken`]: { file: await put('session-2', `${session}\n${session}`) },
      [`${logs}.headers.authorization`]: { file: await put('otlp-2', `${otlp}\n${otlp}`) },
    },
    'cut off': { [clientSecret]: { value: signIn } },
  };
}

const segmentOf = (name: string): string | number => (/^\d+$/.test(name) ? Number(name) : name);

test('secrets reach no log, answer, metric, page, audit record, report or Redis', async () => {
  const simulator = await openSimulator();
  const redis = await closedAtEnd(startRedis({ settings: [`requirepass ${SECRETS.redis}`] }));
  const heard = await overhear(redis);
  const gateway = await serveMarked(simulator, redis);
  const seen = [...(await answersOf(gateway))];
  expect(seen[0]).toMatch(/^200 /);
  expect(seen[2]).toMatch(/^401 /);

  // A candidate that is refused, a current one that is refused, and a file that cannot be used.
  await put('password', SECRETS.wrong);
  await until(async () => {
    seen.push(...(await answersOf(gateway)));
    return gateway.logged.some(
      ({ credential, level }) => credential === 'upstream' && (level === 'warn' || level === 'error'),
    );
  });
  simulator.set('submissions', {
    accounts: [{ username: 'demo-user', password: 'another', sites: ['demo'] }],
  });
  simulator.reset('submissions');
  seen.push(...(await answersOf(gateway)));
  await put('password', '');
  await until(() => gateway.logged.some(({ level }) => level === 'error'));
  seen.push(...(await pagesOf(gateway)));

  process.kill(gateway.pid, 'SIGUSR2');
  const report = async () => (await readdir(folder)).find((name) => name.startsWith('report.'));
  await until(async () => (await report()) !== undefined);
  seen.push(await readFile(join(folder, (await report()) ?? ''), 'utf8'));
  await gateway.close();
  seen.push(...gateway.printed, ...heard, ...(await filesIn(join(folder, 'audit'))));

  expect(heard.length).toBeGreaterThan(5);
  expectNoSecret(seen);
});

test('secrets of receivers of the audit log and of the sign-in reach nothing, also if these quote them', async () => {
  const quoting = await startQuoting();
  const gateway = await serveWithReceivers(quoting);
  const seen = [...(await answersOf(gateway))];
  // A segment is uploaded when it is full.
  await until(async () => {
    seen.push(...(await answersOf(gateway)));
    return ['logs', 'bucket'].every((name) => gateway.logged.some(({ sink }) => sink === name));
  });
  seen.push(...(await signInAt(gateway)), ...(await pagesOf(gateway)));
  await gateway.close();
  seen.push(...gateway.printed, ...(await filesIn(join(folder, 'audit'))));

  const received = quoting.received.join('\n');
  for (const name of ['accessKey', 'session', 'otlp', 'signIn', 'code'] as const) {
    expect({ name, received: formsOf(SECRETS[name]).some((form) => received.includes(form)) }).toEqual({
      name,
      received: true,
    });
  }
  expectNoSecret(seen);
});

test('secrets in the wrong place of a configuration reach no message of check, nor of a reload that it refuses', async () => {
  const gateway = await serveWithReceivers(await startQuoting());
  const right = await readFile(gateway.configFile, 'utf8');
  const refused = () => gateway.logged.filter(({ msg }) => msg === REFUSED).length;
  const seen: string[] = [];
  for (const [what, values] of Object.entries(await misplaced())) {
    const config = parseDocument(right);
    for (const [path, value] of Object.entries(values)) config.setIn(path.split('.').map(segmentOf), value);
    const whole = config.toString({ defaultStringType: 'QUOTE_DOUBLE' });
    const end = what === 'cut off' ? whole.lastIndexOf(SECRETS.signIn) + SECRETS.signIn.length : whole.length;
    await writeFile(gateway.configFile, whole.slice(0, end));
    const before = refused();
    process.kill(gateway.pid, 'SIGHUP');
    await until(() => refused() > before);
    const { status, stdout, stderr } = await runGateway(['check', '--config', gateway.configFile]);
    const issues = `${stdout}${stderr}`.split('\n').filter((line) => line.includes(`${gateway.configFile}:`));
    // A key in a wrong place has one of what is missing, too.
    const areThere = issues.length >= Object.keys(values).length;
    expect({ what, status, areThere }).toEqual({ what, status: 2, areThere: true });
    seen.push(stdout, stderr, ...(await pagesOf(gateway)));
  }
  // It would try to send the rest of the audit log for seconds.
  await gateway.kill();
  seen.push(...gateway.printed, ...(await filesIn(join(folder, 'audit'))));
  expectNoSecret(seen);
});

function expectNoSecret(seen: readonly string[]): void {
  const everything = seen.join('\n').toLowerCase();
  expect(everything).toContain('reporting');
  for (const [name, secret] of Object.entries(SECRETS)) {
    const found = formsOf(secret).filter((form) => everything.includes(form.toLowerCase()));
    expect({ name, found }).toEqual({ name, found: [] });
  }
}
