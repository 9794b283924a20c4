import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect, test } from '@jest/globals';
import { errorCode } from '../../../src/base/error-code.ts';
import { ControlError } from '../../../src/control/control-error.ts';
import type { GatewayActions } from '../../../src/control/gateway-actions.ts';
import { Proposals } from '../../../src/control/proposals.ts';
import { AUDIT_KEY, auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { builtConsole } from '../../support/browser.ts';
import { closing } from '../../support/closing.ts';
import { CookieClient, openOidc, type People } from '../../support/oidc.ts';
import { act, OF_PROGRAM, ofPage, post, TOKEN_HASHES } from '../../support/operator.ts';
import { checkLooks, usePages } from '../../support/pages.ts';
import { openScene, type SceneOptions } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const PEOPLE: People = {
  otto: { email: 'otto@example.org', groups: ['ops'] },
  olga: { email: 'olga@example.org', groups: ['ops'] },
  vera: { email: 'vera@example.org', groups: ['everyone'] },
};
const RETRY = { action: 'retry', credential: 'submissions' };
const DRAIN = { action: 'drain' };

const folderOf = useFolders();
const openPage = usePages();
let consoleFolder: string;

beforeAll(async () => {
  consoleFolder = await builtConsole();
});

async function start(fourEyes: unknown = true, options: SceneOptions = {}) {
  const oidc = await openOidc({ people: PEOPLE });
  closing.push(oidc.close);
  const folder = await folderOf();
  const keyFile = join(folder, 'audit.key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const log = join(folder, 'log');
  const scene = await openScene({
    ...options,
    top: {
      control: { port: 0, actions: true, ...TOKEN_HASHES, oidc: oidc.section, fourEyes },
      audit: { directory: log, keyFile },
    },
    audit: auditOptions(log),
    consoleFolder,
    consolePace: { sampleMs: 1_000, tickMs: 100 },
  });
  closing.push(scene.close);
  oidc.lead(scene.gateway.control);
  const origin = oidc.publicUrl;
  const person = async (login: string) => {
    const client = new CookieClient();
    expect((await client.signIn(origin, login)).status).toBe(200);
    return ofPage(origin, client.cookies(origin));
  };
  const proposals = async (headers: Record<string, string>) => {
    const response = await fetch(`${origin}/api/actions/proposals`, { headers });
    return ((await response.json()) as { proposals: Record<string, unknown>[] }).proposals;
  };
  const decide = (step: 'confirm' | 'withdraw', id: unknown, headers: Record<string, string>) =>
    post(`${origin}/api/actions/proposals/${id}/${step}`, {}, headers);
  const events = async (event: string) =>
    (await recordsIn(log)).filter((record) => record['event'] === event);
  return { origin, scene, person, proposals, decide, events };
}

test('an operator proposes, and another one confirms: neither alone, and both are recorded', async () => {
  const { origin, scene, person, proposals, decide, events } = await start();
  const [otto, olga, vera] = [await person('otto'), await person('olga'), await person('vera')];
  const asked = scene.gateway.app.drainRequested;
  expect(await act(origin, DRAIN, otto)).toEqual({
    status: 202,
    json: { action: 'drain', result: expect.stringContaining('Another operator'), notes: [] },
  });
  expect(await events('action')).toEqual([]);
  const [own] = await proposals(otto);
  expect(own).toMatchObject({
    action: 'drain',
    proposedBy: 'otto@example.org',
    isOwn: true,
    validSeconds: 600,
  });
  expect(await proposals(vera)).toEqual([{ ...own, isOwn: false, validSeconds: expect.any(Number) }]);
  const id = own?.['id'];
  for (const [headers, status, code] of [
    [otto, 403, 'proposal-own'],
    [vera, 403, 'role-required'],
    [OF_PROGRAM, 403, 'second-person-required'],
    [{ ...olga, origin: 'http://elsewhere.example' }, 403, 'cross-site'],
  ] as const) {
    expect(await decide('confirm', id, headers)).toMatchObject({ status, json: { code } });
  }
  const both = await Promise.all([decide('confirm', id, olga), decide('confirm', id, olga)]);
  expect(both.map(({ status }) => status).sort()).toEqual([200, 404]);
  await asked;
  const proposal = { proposal: id };
  const [proposed] = await events('action-proposed');
  expect(proposed).toMatchObject({
    action: 'drain',
    operator: 'otto@example.org',
    operatorSubject: 'otto',
    ...proposal,
  });
  const acted = await events('action');
  expect(acted).toEqual([
    expect.objectContaining({
      action: 'drain',
      operator: 'olga@example.org',
      operatorSubject: 'olga',
      proposedBy: 'otto@example.org',
      proposedBySubject: 'otto',
      ...proposal,
    }),
  ]);
  expect(await proposals(olga)).toEqual([]);
});

test('a proposal is withdrawn or rejected, which is recorded, and is gone', async () => {
  const { origin, person, proposals, decide, events } = await start({ actions: ['drain'], within: '5m' });
  const [otto, olga] = [await person('otto'), await person('olga')];
  // Not one of the listed actions: the other checks of the action are reached.
  expect(await act(origin, RETRY, otto)).toMatchObject({ status: 409, json: { code: 'not-refused' } });
  for (const headers of [otto, olga]) {
    expect((await act(origin, DRAIN, otto)).status).toBe(202);
    const [{ id, validSeconds } = {}] = await proposals(otto);
    expect(validSeconds).toBe(300);
    expect((await decide('withdraw', id, headers)).status).toBe(200);
    expect(await decide('confirm', id, olga)).toMatchObject({
      status: 404,
      json: { code: 'proposal-unknown' },
    });
  }
  const withdrawn = await events('action-withdrawn');
  expect(withdrawn.map(({ operator }) => operator)).toEqual(['otto@example.org', 'olga@example.org']);
  expect(await events('action')).toEqual([]);
});

test('one person with many sessions does not take the room of all actions that wait', async () => {
  const { origin, person } = await start(false);
  const begin = async (headers: Record<string, string>) =>
    (await post(`${origin}/api/actions`, { action: 'reload' }, headers)).status;
  const statuses = new Set<number>();
  for (let session = 0; session < 9; session += 1) {
    const otto = await person('otto');
    for (let at = 0; at < 8; at += 1) statuses.add(await begin(otto));
  }
  expect([...statuses]).toEqual([200, 429]);
  expect(await begin(await person('olga'))).toBe(200);
});

test('a proposal that is confirmed when too many actions were carried out still waits, and has its end recorded', async () => {
  const { origin, person, proposals, decide, events } = await start({ actions: ['drain'] });
  const [otto, olga] = [await person('otto'), await person('olga')];
  expect((await act(origin, DRAIN, otto)).status).toBe(202);
  const [{ id } = {}] = await proposals(otto);
  let last = 200;
  while (last === 200) last = (await act(origin, { action: 'doctor' })).status;
  expect(await decide('confirm', id, olga)).toMatchObject({
    status: last,
    json: { code: 'too-many-actions' },
  });
  expect((await decide('withdraw', id, olga)).status).toBe(200);
  expect(await events('action-withdrawn')).toEqual([expect.objectContaining({ proposal: id })]);
});

test('a version that needs a second person cannot be put in use under another name', async () => {
  const credential = {
    username: { value: 'demo-user' },
    password: { value: 'old' },
    next: { password: { value: 'new' } },
  };
  const accounts = [{ username: 'demo-user', password: 'old', otherPasswords: ['new'], sites: ['demo'] }];
  const target = { deployment: 'submissions', credential: 'submissions', version: '2' };
  for (const listed of ['promote', 'roll-back']) {
    const { origin, person } = await start({ actions: [listed] }, { credential, behaviour: { accounts } });
    const otto = await person('otto');
    for (const action of ['promote', 'roll-back']) {
      const { status } = await act(origin, { action, ...target }, otto);
      expect([listed, action, status]).toEqual([listed, action, 202]);
    }
  }
});

test('the token acts alone, and its record names no person', async () => {
  const { origin, scene, events } = await start();
  expect((await act(origin, DRAIN, OF_PROGRAM)).status).toBe(200);
  await scene.gateway.app.drainRequested;
  const [action] = await events('action');
  expect([action?.['by'], action?.['operator'], action?.['proposedBy']]).toEqual([
    'token',
    undefined,
    undefined,
  ]);
});

test('the second person sees the proposal on the page Actions and confirms it there', async () => {
  const { origin, scene, person } = await start();
  const otto = await person('otto');
  expect((await act(origin, DRAIN, otto)).status).toBe(202);
  const olga = await person('olga');
  const { page, pageErrors } = await openPage({ width: 1400, scheme: 'light' });
  const [name = '', value = ''] = (olga['cookie'] ?? '').split('=');
  await page.context().addCookies([{ name, value, url: origin }]);
  await page.goto(`${origin}/#/actions`);
  const proposal = page.getByRole('article', { name: 'drain, proposed by otto@example.org' });
  await proposal.waitFor();
  await checkLooks(page);
  await page.getByRole('button', { name: 'Run doctor' }).waitFor();
  await proposal.getByRole('button', { name: 'Confirm drain' }).click();
  await page.getByText('The gateway is shutting down.').waitFor();
  await scene.gateway.app.drainRequested;
  expect(pageErrors).toEqual([]);
});

test('why a proposal was not carried out stays on the page when the proposal is gone', async () => {
  const { origin, person, proposals, decide } = await start();
  const [otto, olga] = [await person('otto'), await person('olga')];
  expect((await act(origin, DRAIN, otto)).status).toBe(202);
  const [{ id } = {}] = await proposals(otto);
  const { page } = await openPage({ width: 1400, scheme: 'light' });
  const [name = '', value = ''] = (olga['cookie'] ?? '').split('=');
  await page.context().addCookies([{ name, value, url: origin }]);
  await page.route('**/confirm', async (route) => {
    await decide('withdraw', id, otto);
    await route.continue();
  });
  await page.goto(`${origin}/#/actions`);
  await page.getByRole('button', { name: 'Confirm drain' }).click();
  const result = page.getByRole('region', { name: 'Result of drain' });
  await result.getByText(/^Failed: .*proposal/).waitFor();
  await page.getByRole('article').waitFor({ state: 'detached' });
  expect(await result.isVisible()).toBe(true);
});

/** Proposals of reloads, whose effects and records a test writes. */
function bare() {
  const clock = { time: 0, now: () => clock.time };
  const now = { effects: ['It reloads.'], isWritable: true };
  const notes: string[] = [];
  const expired: [id: string, subject: string][] = [];
  const actions: GatewayActions = {
    plan: async (request) => ({ request, effects: now.effects }),
    perform: async () => ({ result: 'Done.', notes: [] }),
    note: async (event) => {
      if (!now.isWritable) throw new ControlError('audit-unavailable');
      notes.push(event);
    },
    noteExpired: ({ id }, { subject }) => expired.push([id, subject]),
  };
  const proposals = new Proposals(600_000, clock);
  const sender = (subject: string) => ({
    by: 'session' as const,
    address: '127.0.0.1',
    operator: { name: 'The same name', subject },
  });
  const propose = async (subject: string) =>
    proposals.propose(await actions.plan({ action: 'reload' }), sender(subject), actions);
  const confirm = (id: string, subject: string) => proposals.confirm(id, sender(subject), actions);
  const waiting = () => proposals.view(undefined, actions).proposals.length;
  const withdraw = (id: string, subject: string) => proposals.withdraw(id, sender(subject), actions);
  return { clock, now, notes, expired, propose, confirm, withdraw, waiting };
}

const codeOf = (work: Promise<unknown>) => work.then(() => 'ok', errorCode);

test('a proposal waits for as long as is configured; one that nobody confirmed is recorded once', async () => {
  const { clock, expired, propose, confirm, waiting } = bare();
  const [early, late] = [await propose('a'), await propose('a')];
  clock.time = 599_999;
  expect(await codeOf(confirm(early.id, 'b'))).toBe('ok');
  clock.time = 600_000;
  expect(await codeOf(confirm(late.id, 'b'))).toBe('proposal-unknown');
  expect(waiting()).toBe(0);
  expect(expired).toEqual([[late.id, 'a']]);
});

test('the record of an expired proposal names its id, action and proposer', async () => {
  const { origin, person, proposals, events } = await start({ actions: ['drain'], within: '1s' });
  const otto = await person('otto');
  expect((await act(origin, DRAIN, otto)).status).toBe(202);
  const [{ proposal } = {}] = await events('action-proposed');
  await until(async () => (await proposals(otto)).length === 0);
  await until(async () => (await events('action-expired')).length > 0);
  expect(await events('action-expired')).toEqual([
    expect.objectContaining({
      action: 'drain',
      proposal,
      proposedBy: 'otto@example.org',
      proposedBySubject: 'otto',
    }),
  ]);
});

test('people are told apart by their subject, not by their name', async () => {
  const { propose, confirm } = bare();
  const { id } = await propose('a');
  expect(await codeOf(confirm(id, 'a'))).toBe('proposal-own');
  expect(await codeOf(confirm(id, 'b'))).toBe('ok');
});

test('what a second person would confirm is what was proposed, or it is refused', async () => {
  const { now, propose, confirm } = bare();
  const { id } = await propose('a');
  now.effects = ['It reloads another file.'];
  expect(await codeOf(confirm(id, 'b'))).toBe('proposal-outdated');
  now.effects = ['It reloads.'];
  expect(await codeOf(confirm(id, 'b'))).toBe('ok');
});

test('few proposals of one person wait at the same time, and few of all', async () => {
  const { propose, waiting } = bare();
  const codes = async (subject: string, count: number) => {
    const found: string[] = [];
    for (let made = 0; made < count; made += 1) found.push(await codeOf(propose(subject)));
    return found;
  };
  expect(await codes('a', 9)).toEqual([...Array(8).fill('ok'), 'proposals-pending']);
  for (const subject of ['b', 'c', 'd']) expect(new Set(await codes(subject, 8))).toEqual(new Set(['ok']));
  expect(await codes('e', 1)).toEqual(['proposals-pending']);
  expect(waiting()).toBe(32);
});

test('a proposal that cannot be recorded does not wait', async () => {
  const { now, notes, propose, waiting } = bare();
  now.isWritable = false;
  expect(await codeOf(propose('a'))).toBe('audit-unavailable');
  expect([waiting(), notes]).toEqual([0, []]);
});

test('a withdrawal that cannot be recorded is refused, and the proposal still ends in time', async () => {
  const { clock, now, propose, confirm, withdraw, waiting } = bare();
  const { id } = await propose('a');
  clock.time = 1_000;
  const { id: later } = await propose('a');
  now.isWritable = false;
  expect(await codeOf(withdraw(id, 'b'))).toBe('audit-unavailable');
  expect(waiting()).toBe(2);
  now.isWritable = true;
  clock.time = 600_000;
  expect(await codeOf(confirm(id, 'b'))).toBe('proposal-unknown');
  expect(await codeOf(confirm(later, 'b'))).toBe('ok');
});
