import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { type Simulator, startSimulator } from '../../src/simulator/simulator.ts';
import { closing } from '../support/closing.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { authors } from '../support/scene.ts';
import { until } from '../support/until.ts';

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
};

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

/** Every form in which a secret could slip out, a stored hash of the password among them. */
function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const a1 = createHash('md5').update(`demo-user:ExampleApiService:${secret}`).digest('hex');
  const basic = Buffer.from(`reporting:${secret}`).toString('base64').replace(/=+$/, '');
  const plain = bytes.toString('base64').replace(/=+$/, '');
  return [secret, plain, basic, bytes.toString('hex'), a1, sha256(secret)];
}

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'marked-'));
});
afterEach(async () => {
  await rm(folder, { recursive: true });
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
  const simulator = await startSimulator({ deployments: { ...deployments, submissions } });
  closing.push(() => simulator.close());
  return simulator;
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
    clients: [
      {
        id: 'reporting',
        identify: { apiKeySha256: sha256(SECRETS.apiKey) },
        allow: [{ deployment: 'upstream' }],
      },
    ],
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

test('secrets reach no log, answer, metric, page, audit record, report or Redis', async () => {
  const simulator = await openSimulator();
  const redis = await startRedis({ settings: [`requirepass ${SECRETS.redis}`] });
  closing.push(() => redis.close());
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
  const everything = seen.join('\n').toLowerCase();
  expect(everything).toContain('reporting');
  for (const [name, secret] of Object.entries(SECRETS)) {
    const found = formsOf(secret).filter((form) => everything.includes(form.toLowerCase()));
    expect({ name, found }).toEqual({ name, found: [] });
  }
});
