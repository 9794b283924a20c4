import { createHash } from 'node:crypto';
import { expect, test } from '@jest/globals';
import type { Snapshot } from '../../../src/control/view.ts';
import type { ConfiguredGateway } from '../../support/gateway.ts';
import { OF_PROGRAM, post, READ_TOKEN, TOKEN_HASHES } from '../../support/operator.ts';
import { type RunningScene, startScene, startSceneWith } from '../../support/scene.ts';
import { authors } from '../../support/simulator.ts';
import { until } from '../../support/until.ts';

const KEY = 'key of reporting';
const hash = createHash('sha256').update(KEY).digest('hex');
const PATH = '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids';

const CLIENT = {
  id: 'reporting',
  identify: { apiKeySha256: hash, addresses: ['127.0.0.0/8'] },
  allow: [
    {
      deployment: 'submissions',
      operations: ['authors'],
      methods: ['GET'],
      parameters: { ids: { max: 2 } },
    },
  ],
  limits: { rate: '100/h', burst: 50, daily: 1000, concurrent: 7 },
};

const OPTIONS = {
  top: { anonymous: false, clients: [CLIENT], control: { port: 0, ...TOKEN_HASHES } },
  settings: { operations: { authors: { method: 'GET', path: PATH } } },
};

async function start(workers: number) {
  return clientOf(await startSceneWith(workers, OPTIONS));
}

function clientOf({ gateway: { control, origin } }: RunningScene<ConfiguredGateway>) {
  const send = async (target: string): Promise<number> => {
    // Each on a connection of its own, so that workers share them.
    const headers = { 'x-api-key': KEY, connection: 'close' };
    const answer = await fetch(`${origin}${target}`, { headers });
    await answer.arrayBuffer();
    return answer.status;
  };
  const client = async (name: string) => {
    const headers = { authorization: `Bearer ${READ_TOKEN}` };
    const answer = await fetch(`${control}/api/clients/${name}`, { headers });
    return { status: answer.status, text: await answer.text() };
  };
  return { control, send, client };
}

test.each([1, 2])('a client: what it may do, uses and was refused, with %d workers', async (workers) => {
  const { send, client } = await start(workers);
  for (let count = 0; count < 6; count += 1) expect(await send(authors)).toBe(200);
  for (let count = 0; count < 6; count += 1) expect(await send(`${PATH}/other`)).toBe(403);
  expect(await send(authors.replace('%27DEMO-2026-0001%27', '%27A%27,%27B%27,%27C%27'))).toBe(400);
  // Workers tell each other later what was used, and that requests have ended.
  await until(async () => {
    const { daily, concurrent } = JSON.parse((await client('reporting')).text).limits;
    return daily.used === 6 && concurrent.inFlight === 0;
  });
  const { status, text } = await client('reporting');
  expect(status).toBe(200);
  expect(JSON.parse(text)).toEqual({
    id: 'reporting',
    identifiedBy: ['address 127.0.0.0/8', 'an API key'],
    keys: [{ name: hash.slice(0, 8), expires: null, lastSeen: expect.any(Number) }],
    rules: [
      {
        path: 'clients[0].allow[0]',
        deployment: 'submissions',
        credential: null,
        ends: null,
        sites: null,
        operations: [{ name: 'authors', method: 'GET', path: PATH }],
        methods: ['GET'],
        parameters: [{ name: 'ids', max: 2, values: null, moreValues: 0 }],
      },
    ],
    observedUntil: null,
    limits: {
      rate: { perSecond: 100 / 3600, burst: 50, left: expect.any(Number) },
      concurrent: { most: 7, inFlight: 0 },
      daily: { most: 1000, used: 6 },
    },
    refusals: [
      {
        code: 'parameter-invalid',
        isServed: false,
        title: 'Parameter invalid',
        count: 1,
        lastAt: expect.any(Number),
        deployment: 'submissions',
        detail: expect.stringMatching(/\bids\b.*\b2\b/),
        requestId: expect.any(String),
      },
      expect.objectContaining({ code: 'client-forbidden', count: 6 }),
    ],
  });
  // Neither the key nor its hash, of which 8 digits name the key.
  expect(text).not.toContain(KEY);
  expect(text).not.toContain(hash.slice(0, 9));
  expect((await client('nobody')).status).toBe(404);
});

test('what a client was refused since the start, when it was seen, and errors, stay when workers are replaced', async () => {
  const scene = await startScene({ workers: 2, ...OPTIONS });
  const { control, send, client } = clientOf(scene);
  const started = Date.now();
  for (let count = 0; count < 6; count += 1) expect(await send(`${PATH}/other`)).toBe(403);
  const headers = { authorization: `Bearer ${READ_TOKEN}` };
  const snapshotOf = async () => (await fetch(`${control}/api/snapshot`, { headers })).json();
  const lastSeen = async () => {
    const { clients } = (await snapshotOf()) as Pick<Snapshot, 'clients'>;
    return clients.find(({ name }) => name === 'reporting')?.lastSeen ?? 0;
  };
  const seen = await lastSeen();
  expect(seen).toBeGreaterThanOrEqual(started);
  expect(seen).toBeLessThanOrEqual(Date.now());
  const keys = async () => JSON.parse((await client('reporting')).text).keys;
  const known = await keys();
  const old = await scene.gateway.workers();
  process.kill(scene.gateway.pid, 'SIGUSR2');
  await until(async () => {
    const now = await scene.gateway.workers();
    return now.length === 2 && now.every((pid) => !old.includes(pid));
  });
  expect(await lastSeen()).toBe(seen);
  expect(await keys()).toEqual(known);
  expect(known).toMatchObject([{ lastSeen: expect.any(Number) }]);
  expect(await send(`${PATH}/other`)).toBe(403);
  expect(await lastSeen()).toBeGreaterThan(seen);
  const { refusals } = JSON.parse((await client('reporting')).text);
  const seven = [expect.objectContaining({ code: 'client-forbidden', count: 7 })];
  expect(refusals).toEqual(seven);
  expect(await snapshotOf()).toMatchObject({ errors: seven });
});

test('a request is explained as the gateway decides it', async () => {
  const { control } = await start(1);
  const explain = (change: Record<string, unknown>) =>
    post(
      `${control}/api/policy/explain`,
      { client: 'reporting', deployment: 'submissions', method: 'GET', target: authors, ...change },
      OF_PROGRAM,
    );
  expect(await explain({})).toMatchObject({
    status: 200,
    json: {
      allowed: true,
      rule: 'clients[0].allow[0]',
      operation: 'authors',
      credential: 'submissions',
      sends: expect.stringMatching(/^GET https:\/\/127\.0\.0\.1:\d+\/api\/manuscripts/),
      limits: [
        'client reporting: 1.67 requests per minute, 50 at once after a pause',
        'client reporting: 7 in flight at the same time',
        'client reporting: 1000 a day, UTC',
      ],
    },
  });
  expect(await explain({ method: 'POST' })).toMatchObject({
    json: { allowed: false, rule: 'clients[0].allow', status: 403, code: 'client-forbidden' },
  });
  expect(await explain({ client: 'nobody' })).toMatchObject({
    status: 404,
    json: { code: 'client-unknown' },
  });
  expect(await explain({ deployment: 'x' })).toMatchObject({ status: 404, json: { code: 'target-unknown' } });
  for (const change of [{ method: 'get' }, { target: '' }, { target: 'x'.repeat(9_000) }, { more: 1 }]) {
    expect(await explain(change)).toMatchObject({ status: 400, json: { code: 'request-invalid' } });
  }
});

test.each([1, 2])('names that every object has are names of nothing, with %d workers', async (workers) => {
  const { control } = await start(workers);
  const explained = { client: 'reporting', deployment: 'submissions', method: 'GET', target: authors };
  for (const name of ['__proto__', 'constructor', 'toString']) {
    const answers = await Promise.all([
      post(`${control}/api/policy/explain`, { ...explained, deployment: name }, OF_PROGRAM),
      post(`${control}/api/policy/explain`, { ...explained, client: name }, OF_PROGRAM),
      post(`${control}/api/credentials/${name}/withdraw`, {}, OF_PROGRAM),
      post(`${control}/api/credentials/${name}/retry`, {}, OF_PROGRAM),
      fetch(`${control}/api/deployments/${name}`, { headers: OF_PROGRAM }),
      fetch(`${control}/api/clients/${name}`, { headers: OF_PROGRAM }),
    ]);
    expect([name, ...answers.map(({ status }) => status)]).toEqual([name, ...Array(6).fill(404)]);
  }
});
