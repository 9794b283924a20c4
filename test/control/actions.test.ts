import { afterEach, describe, expect, test } from '@jest/globals';
import { ControlError } from '../../src/control/control-error.ts';
import type { ActionOutcome, ActionRequest, GatewayActions } from '../../src/control/gateway-actions.ts';
import {
  act,
  OF_PROGRAM,
  ofPage,
  post,
  READ_TOKEN,
  signIn,
  TOKEN,
  TOKEN_HASHES,
} from '../support/operator.ts';
import { until } from '../support/until.ts';
import { type ControlChange, type RunningControl, startControl } from './console-source.ts';

let control: RunningControl | undefined;
afterEach(() => control?.close());

/** Actions that note what is carried out. */
function notedActions(perform: () => Promise<ActionOutcome> = async () => ({ result: 'Done.', notes: [] })) {
  const done: ActionRequest[] = [];
  const actions: GatewayActions = {
    plan: async (request) => ({ request, effects: [`It does ${request.action}.`] }),
    perform: (request) => {
      done.push(request);
      return perform();
    },
    note: async () => undefined,
    noteExpired: () => undefined,
  };
  return { done, actions };
}

async function start(change: ControlChange = {}) {
  const noted = notedActions();
  control = await startControl({ ...TOKEN_HASHES, actions: noted.actions, ...change });
  return { origin: control.origin, done: noted.done };
}

const reload = { action: 'reload' };

describe('an action', () => {
  test('is told, then carried out once it is confirmed', async () => {
    const { origin, done } = await start();
    const headers = ofPage(origin, await signIn(origin, TOKEN));
    const begun = await post(`${origin}/api/actions`, reload, headers);
    expect(begun).toEqual({
      status: 200,
      json: {
        id: expect.stringMatching(/^[\w-]{32}$/),
        action: 'reload',
        effects: ['It does reload.'],
        validSeconds: 60,
      },
    });
    expect(done).toEqual([]);
    expect(await post(`${origin}/api/actions/${begun.json.id}/confirm`, {}, headers)).toEqual({
      status: 200,
      json: { action: 'reload', result: 'Done.', notes: [] },
    });
    expect(done).toEqual([reload]);
  });

  test('is carried out for a program with the token', async () => {
    const { origin, done } = await start();
    expect(
      (await act(origin, { action: 'promote', deployment: 'd', credential: 'c', version: '2' })).status,
    ).toBe(200);
    expect(done).toEqual([{ action: 'promote', deployment: 'd', credential: 'c', version: '2' }]);
  });

  test.each([
    [{}],
    [{ action: 'stop' }],
    [{ action: 'reload', target: 'x' }],
    [{ action: 'promote', deployment: 'd', credential: 'c' }],
    [{ action: 'promote', deployment: 'd', credential: 'c', version: 'x'.repeat(300) }],
    [['reload']],
  ])('%j is none', async (body) => {
    const { origin } = await start();
    expect(await post(`${origin}/api/actions`, body, OF_PROGRAM)).toMatchObject({
      status: 400,
      json: { code: 'action-invalid' },
    });
  });

  test('is off unless the configuration allows it', async () => {
    const { origin } = await start({ actions: undefined });
    expect(await act(origin, reload)).toMatchObject({ status: 403, json: { code: 'actions-off' } });
    const view = await fetch(`${origin}/api/actions`, { headers: OF_PROGRAM });
    expect(await view.json()).toEqual({ allowed: false, reason: expect.stringContaining('control.actions') });
  });

  test('tells why it is refused, and nothing of an unexpected error', async () => {
    const errors: unknown[] = [];
    const failures = [new ControlError('version-refused'), new Error('a secret')];
    const { actions } = notedActions(() => Promise.reject(failures.shift()));
    const { origin } = await start({ actions, onError: (error) => errors.push(error) });
    expect(await act(origin, reload)).toMatchObject({ status: 409, json: { code: 'version-refused' } });
    const unexpected = await act(origin, reload);
    expect(unexpected).toMatchObject({ status: 500, json: { code: 'action-failed' } });
    expect(JSON.stringify(unexpected)).not.toContain('a secret');
    expect(errors).toEqual([new Error('a secret')]);
  });
});

describe('a confirmation', () => {
  test('takes its room before the action is planned, so that plans under way are bounded, too', async () => {
    const { actions } = notedActions();
    const planned = Promise.withResolvers<void>();
    let plans = 0;
    const plan: GatewayActions['plan'] = async (request) => {
      plans += 1;
      await planned.promise;
      return { request, effects: [] };
    };
    const { origin } = await start({ actions: { ...actions, plan } });
    const headers = ofPage(origin, await signIn(origin, TOKEN));
    const begin = () => post(`${origin}/api/actions`, reload, headers);
    const first = Array.from({ length: 8 }, begin);
    await until(() => plans === 8);
    expect(await begin()).toMatchObject({ status: 429, json: { code: 'confirmations-pending' } });
    planned.resolve();
    for (const { status } of await Promise.all(first)) expect(status).toBe(200);
    expect(plans).toBe(8);
  });

  test('leaves its room when the action cannot be planned', async () => {
    const { actions } = notedActions();
    const { origin } = await start({
      actions: { ...actions, plan: () => Promise.reject(new ControlError('target-unknown')) },
    });
    const headers = ofPage(origin, await signIn(origin, TOKEN));
    for (let count = 0; count < 10; count += 1) {
      expect(await post(`${origin}/api/actions`, reload, headers)).toMatchObject({
        json: { code: 'target-unknown' },
      });
    }
  });

  test('serves once', async () => {
    const { origin, done } = await start();
    const { json } = await post(`${origin}/api/actions`, reload, OF_PROGRAM);
    const confirm = () => post(`${origin}/api/actions/${json.id}/confirm`, {}, OF_PROGRAM);
    expect((await confirm()).status).toBe(200);
    expect(await confirm()).toMatchObject({ status: 404, json: { code: 'confirmation-unknown' } });
    expect(done).toHaveLength(1);
  });

  test('serves the session that began the action, and no other', async () => {
    const { origin, done } = await start();
    const [own, other] = await Promise.all([signIn(origin, TOKEN), signIn(origin, TOKEN)]);
    const { json } = await post(`${origin}/api/actions`, reload, ofPage(origin, own));
    for (const headers of [ofPage(origin, other), OF_PROGRAM]) {
      expect(await post(`${origin}/api/actions/${json.id}/confirm`, {}, headers)).toMatchObject({
        status: 404,
        json: { code: 'confirmation-unknown' },
      });
    }
    expect(done).toEqual([]);
    expect((await post(`${origin}/api/actions/${json.id}/confirm`, {}, ofPage(origin, own))).status).toBe(
      200,
    );
  });

  test('serves for a minute', async () => {
    let now = 0;
    const { origin, done } = await start({ clock: { now: () => now } });
    const begun = () => post(`${origin}/api/actions`, reload, OF_PROGRAM);
    const confirm = (id: string) => post(`${origin}/api/actions/${id}/confirm`, {}, OF_PROGRAM);
    const [early, late] = [(await begun()).json.id, (await begun()).json.id];
    now = 59_999;
    expect((await confirm(early)).status).toBe(200);
    now = 60_000;
    expect(await confirm(late)).toMatchObject({ status: 404, json: { code: 'confirmation-unknown' } });
    expect(done).toHaveLength(1);
  });

  test('is missing, invented, or that of another action', async () => {
    const { origin, done } = await start();
    for (const id of ['x', 'constructor', '..%2f..', 'A'.repeat(32)]) {
      const { status } = await post(`${origin}/api/actions/${id}/confirm`, {}, OF_PROGRAM);
      expect([id, status]).toEqual([id, 404]);
    }
    const { json } = await post(`${origin}/api/actions`, { action: 'doctor' }, OF_PROGRAM);
    // The body of a confirmation does not choose the action.
    await post(`${origin}/api/actions/${json.id}/confirm`, { action: 'drain' }, OF_PROGRAM);
    expect(done).toEqual([{ action: 'doctor' }]);
  });

  test('few wait at the same time', async () => {
    const { origin } = await start();
    const statuses: number[] = [];
    for (let begun = 0; begun < 9; begun += 1) {
      statuses.push((await post(`${origin}/api/actions`, reload, OF_PROGRAM)).status);
    }
    expect(statuses).toEqual([...Array(8).fill(200), 429]);
    const other = ofPage(origin, await signIn(origin, TOKEN));
    expect((await post(`${origin}/api/actions`, reload, other)).status).toBe(200);
  });

  test('few actions are carried out in a minute', async () => {
    let now = 0;
    const { origin, done } = await start({ clock: { now: () => now } });
    for (let count = 0; count < 30; count += 1) expect((await act(origin, reload)).status).toBe(200);
    expect(await act(origin, reload)).toMatchObject({ status: 429, json: { code: 'too-many-actions' } });
    expect(done).toHaveLength(30);
    now = 70_000;
    expect((await act(origin, reload)).status).toBe(200);
  });

  test('the same action is carried out once at a time', async () => {
    const ended = Promise.withResolvers<ActionOutcome>();
    const { actions, done } = notedActions(() => ended.promise);
    const { origin } = await start({ actions });
    const first = act(origin, reload);
    await until(() => done.length === 1);
    expect(await act(origin, reload)).toMatchObject({ status: 409, json: { code: 'action-running' } });
    ended.resolve({ result: 'Done.', notes: [] });
    expect((await first).status).toBe(200);
    expect((await act(origin, reload)).status).toBe(200);
  });
});

describe('who may not act', () => {
  test('the token for reading, and a session that it opened', async () => {
    const { origin, done } = await start();
    const session = ofPage(origin, await signIn(origin, READ_TOKEN));
    for (const headers of [session, { authorization: `Bearer ${READ_TOKEN}` }]) {
      expect(await act(origin, reload, headers)).toMatchObject({ status: 403, json: { code: 'read-only' } });
      expect((await fetch(`${origin}/metrics`, { headers })).status).toBe(200);
      const view = await fetch(`${origin}/api/actions`, { headers });
      expect(await view.json()).toEqual({
        allowed: false,
        reason: expect.not.stringContaining('control.actions'),
      });
      const reloaded = await fetch(`${origin}/api/reload`, { method: 'POST', headers });
      expect(reloaded.status).toBe(headers === session ? 401 : 403);
    }
    expect(done).toEqual([]);
  });

  test('nobody: without token and session', async () => {
    const { origin } = await start();
    for (const headers of [
      {},
      { authorization: 'Bearer wrong' },
      { cookie: `digest-gateway-session-${new URL(origin).port}=1.full.x.y` },
    ]) {
      expect((await act(origin, reload, headers as Record<string, string>)).status).toBe(401);
    }
  });

  test.each([
    [{ 'sec-fetch-site': 'cross-site' }],
    [{ 'sec-fetch-site': 'same-site' }],
    [{ origin: 'https://elsewhere.example' }],
    [{ origin: 'null' }],
    [{ origin: 'https://elsewhere.example', 'sec-fetch-site': 'same-origin' }],
    [{ 'sec-fetch-site': 'none' }],
    [{}],
  ])('a session of which a browser does not say that its own page sends the request: %j', async (headers) => {
    const { origin, done } = await start();
    const cookie = await signIn(origin, TOKEN);
    const { json } = await post(`${origin}/api/actions`, reload, ofPage(origin, cookie));
    const forged = { cookie, ...(headers as Record<string, string>) };
    for (const path of ['', `/${json.id}/confirm`]) {
      expect(await post(`${origin}/api/actions${path}`, reload, forged)).toMatchObject({
        status: 403,
        json: { code: 'cross-site' },
      });
    }
    expect(done).toEqual([]);
  });

  test('a form: the body must be JSON', async () => {
    const { origin } = await start();
    const headers = ofPage(origin, await signIn(origin, TOKEN));
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/jsonx', '']) {
      const answer = await post(`${origin}/api/actions`, reload, { ...headers, 'content-type': type });
      expect([type, answer.status, answer.json.code]).toEqual([type, 415, 'json-required']);
    }
    const broken = await fetch(`${origin}/api/actions`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: '{"action":',
    });
    expect([broken.status, await broken.json()]).toMatchObject([400, { code: 'action-invalid' }]);
    expect((await post(`${origin}/api/actions`, { action: 'x'.repeat(20_000) }, headers)).status).toBe(413);
  });

  test('no response lets another site read it', async () => {
    const { origin } = await start();
    const preflight = await fetch(`${origin}/api/actions`, {
      method: 'OPTIONS',
      headers: { origin: 'https://elsewhere.example', 'access-control-request-method': 'POST' },
    });
    expect(preflight.headers.get('access-control-allow-origin')).toBeNull();
    expect(preflight.headers.get('access-control-allow-headers')).toBeNull();
  });
});

describe.each(['promote', 'retry', 'withdraw'])('%s of a credential', (command) => {
  const PATH = `/api/credentials/c%20d/${command}`;

  test('needs no confirmation and no control.actions', async () => {
    const { origin } = await start({ actions: undefined });
    const plain = await fetch(`${origin}${PATH}`, { method: 'POST', headers: OF_PROGRAM });
    expect([plain.status, plain.headers.get('cache-control')]).toEqual([200, 'no-store']);
    expect(await plain.json()).toMatchObject({ result: 'success', credential: 'c d' });
    expect((await post(`${origin}${PATH}`, {}, OF_PROGRAM)).status).toBe(200);
  });

  test.each([
    ['no token', {}, 401, undefined],
    ['a wrong token', { authorization: 'Bearer wrong' }, 401, undefined],
    ['the token that may read', { authorization: `Bearer ${READ_TOKEN}` }, 403, 'read-only'],
    ['a page of another site', { ...OF_PROGRAM, origin: 'https://elsewhere.example' }, 403, 'cross-site'],
  ])('is refused to %s', async (_case, headers, status, code) => {
    let called = false;
    const perform = async () => {
      called = true;
      throw new Error('done');
    };
    const { origin } = await start({ commands: { perform } });
    const refused = await post(`${origin}${PATH}`, {}, headers as Record<string, string>);
    expect([refused.status, refused.json.code]).toEqual([status, code]);
    expect(called).toBe(false);
  });

  test('is refused to a session: a browser adds its cookie to any request', async () => {
    const { origin } = await start();
    const headers = ofPage(origin, await signIn(origin, TOKEN));
    expect((await post(`${origin}${PATH}`, {}, headers)).status).toBe(401);
  });

  test.each([[{ version: '' }], [{ version: 'x'.repeat(300) }], [{ version: 3 }], [{ other: '1' }], [[]]])(
    'of %j is none',
    async (body) => {
      const { origin } = await start();
      expect(await post(`${origin}${PATH}`, body, OF_PROGRAM)).toMatchObject({
        status: 400,
        json: { code: 'action-invalid' },
      });
    },
  );

  test('needs POST', async () => {
    const { origin } = await start();
    const got = await fetch(`${origin}${PATH}`, { headers: OF_PROGRAM });
    expect([got.status, got.headers.get('allow')]).toEqual([405, 'POST']);
  });

  test('waits for no other one', async () => {
    const first = Promise.withResolvers<ActionOutcome>();
    const begun = Promise.withResolvers<void>();
    const perform = () => {
      begun.resolve();
      return first.promise;
    };
    const { origin } = await start({ commands: { perform } });
    const done = post(`${origin}${PATH}`, {}, OF_PROGRAM);
    await begun.promise;
    expect(await post(`${origin}/api/credentials/other/retry`, {}, OF_PROGRAM)).toMatchObject({
      status: 409,
      json: { code: 'action-running' },
    });
    first.resolve({ result: 'Done.', notes: [], at: { version: '2', deployments: ['d'] } });
    expect((await done).status).toBe(200);
  });
});

test('a promotion takes the next version unless one is named', async () => {
  const { origin } = await start();
  const promote = (body: unknown) => post(`${origin}/api/credentials/c/promote`, body, OF_PROGRAM);
  const promoted = { result: 'success', credential: 'c', deployments: ['d'] };
  expect(await promote({})).toEqual({ status: 200, json: { ...promoted, version: '2' } });
  expect(await promote({ version: '3' })).toEqual({ status: 200, json: { ...promoted, version: '3' } });
});

test('there is no other command for a credential', async () => {
  const { origin } = await start();
  expect((await post(`${origin}/api/credentials/c/constructor`, {}, OF_PROGRAM)).status).toBe(404);
});
