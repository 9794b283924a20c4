import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { readChallenges } from '../../support/digest-client.ts';
import { credentialSet, type RunningGateway, startGateway } from '../../support/gateway.ts';
import { type ScriptedUpstream, startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';

/** User names tell the two versions of the credential apart. */
const OLD = 'demo-user';
const NEW = 'another-user';
const NAME = 'scripted';
const PROBE = { method: 'HEAD', path: '/probe' };
const PROBED = `${PROBE.method} ${PROBE.path}`;

interface Attempt {
  /** Method and path. */
  readonly request: string;
  readonly user: string;
  reply(status: number): void;
}

let upstream: ScriptedUpstream;
let gateway: RunningGateway;
/** Authenticated requests without a response. */
let waiting: Attempt[];
/** Each authenticated request that arrived. */
let seen: Attempt[];
let nonces: number;

function challenge(res: ServerResponse): void {
  nonces += 1;
  res.setHeader('www-authenticate', `Digest realm="r", nonce="n${nonces}"`);
}

function arrive(req: IncomingMessage, res: ServerResponse): void {
  const [sent] = readChallenges([req.headers.authorization ?? '']);
  if (sent === undefined) {
    challenge(res);
    res.writeHead(401).end();
    return;
  }
  const attempt: Attempt = {
    request: `${req.method} ${req.url}`,
    user: sent.get('username') ?? '',
    reply(status) {
      if (status === 401) challenge(res);
      res.writeHead(status).end();
    },
  };
  waiting.push(attempt);
  seen.push(attempt);
}

/** The next attempt of this request with this user name, which waits for its response. */
async function attemptOf(request: string, user: string): Promise<Attempt> {
  const isWanted = (attempt: Attempt): boolean => attempt.request === request && attempt.user === user;
  await until(() => waiting.some(isWanted));
  return waiting.splice(waiting.findIndex(isWanted), 1)[0] as Attempt;
}

async function reply(request: string, user: string, status: number): Promise<void> {
  (await attemptOf(request, user)).reply(status);
}

async function get(path: string): Promise<number> {
  const answer = await fetch(`${gateway.origin}${path}`);
  await answer.arrayBuffer();
  return answer.status;
}

async function offerNext(): Promise<void> {
  const set = await credentialSet(gateway, NAME, 'demo-api-key', 'another');
  if (set.next === undefined) throw new Error('no next');
  gateway.plane.offer({ ...set, next: { ...set.next, username: NEW } });
}

/** A request finds out that the old version is refused and the new one accepted, and is served with that one. */
async function changeOver(path: string): Promise<void> {
  const status = get(path);
  await reply(`GET ${path}`, OLD, 401);
  await reply(PROBED, OLD, 401);
  await reply(PROBED, NEW, 200);
  await reply(`GET ${path}`, NEW, 200);
  expect(await status).toBe(200);
}

/** The first attempt is refused for its nonce, and a probe accepts the credential. Resolves to the second one. */
async function secondAttempt(path: string): Promise<Attempt> {
  await reply(`GET ${path}`, OLD, 401);
  await reply(PROBED, OLD, 200);
  return attemptOf(`GET ${path}`, OLD);
}

/** Neither the probe nor its repeat tells anything. */
async function probeInVain(): Promise<void> {
  await reply(PROBED, OLD, 503);
  await reply(PROBED, OLD, 503);
}

const attemptsFor = (path: string) => seen.filter(({ request }) => request === `GET ${path}`).length;

beforeEach(async () => {
  waiting = [];
  seen = [];
  nonces = 0;
  upstream = await startUpstream(arrive);
  const settings = { tls: { allowPlaintext: true }, digest: { renewAhead: PROBE } };
  gateway = await startGateway({ [NAME]: { origin: upstream.origin, settings } });
  const first = get('/first');
  await reply('GET /first', OLD, 200);
  expect(await first).toBe(200);
  await offerNext();
  // The next version is tried in the background, and waits.
  await reply(PROBED, NEW, 401);
  await until(
    async () => (await gateway.metric('digest_gateway_credential_state', { state: 'waiting' })) === 1,
  );
});

afterEach(async () => {
  // A request that a failed test leaves under way must not hold the gateway back.
  await upstream.close();
  await gateway.close();
});

test('continues with the new version if an attempt is refused after the rotation', async () => {
  const late = get('/late');
  const second = await secondAttempt('/late');
  await changeOver('/other');
  second.reply(401);
  await reply('GET /late', NEW, 200);
  expect([await late, attemptsFor('/late')]).toEqual([200, 3]);
});

test('continues with the new version if a later attempt was accepted before the rotation', async () => {
  const late = get('/late');
  const first = await attemptOf('GET /late', OLD);
  const overtaking = get('/overtaking');
  await reply('GET /overtaking', OLD, 200);
  expect(await overtaking).toBe(200);
  await changeOver('/other');
  first.reply(401);
  await reply('GET /late', NEW, 200);
  expect([await late, attemptsFor('/late')]).toEqual([200, 2]);
});

test('waits for a second probe if the first was no evidence and no attempt is left', async () => {
  const request = get('/path');
  (await secondAttempt('/path')).reply(401);
  await probeInVain();
  await reply(PROBED, OLD, 401);
  await reply(PROBED, NEW, 200);
  await reply('GET /path', NEW, 200);
  expect([await request, attemptsFor('/path')]).toEqual([200, 3]);
});

test('waits for the request that tests the version, then for a probe, if no attempt is left', async () => {
  const request = get('/path');
  const second = await secondAttempt('/path');
  const leader = get('/leader');
  await reply('GET /leader', OLD, 401);
  await probeInVain();
  const leading = await attemptOf('GET /leader', OLD);
  second.reply(401);
  leading.reply(503);
  expect(await leader).toBe(503);
  await reply(PROBED, OLD, 401);
  await reply(PROBED, NEW, 200);
  await reply('GET /path', NEW, 200);
  expect([await request, attemptsFor('/path')]).toEqual([200, 3]);
});

test('has the other version probed if the test used up the attempts', async () => {
  const request = get('/path');
  await reply('GET /path', OLD, 401);
  await probeInVain();
  await reply('GET /path', OLD, 401);
  await reply(PROBED, NEW, 200);
  await reply('GET /path', NEW, 200);
  expect([await request, attemptsFor('/path')]).toEqual([200, 3]);
});

test('makes at most two attempts if every version is refused', async () => {
  const request = get('/path');
  await reply('GET /path', OLD, 401);
  await probeInVain();
  await reply('GET /path', OLD, 401);
  await reply(PROBED, NEW, 401);
  await reply(PROBED, OLD, 401);
  await reply(PROBED, NEW, 401);
  expect([await request, attemptsFor('/path')]).toEqual([502, 2]);
  expect(await get('/path')).toBe(502);
  expect([attemptsFor('/path'), waiting]).toEqual([2, []]);
});
