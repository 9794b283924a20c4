import { randomUUID } from 'node:crypto';
import { chmod, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import type { Snapshot } from '../../src/control/view.ts';
import type { SealedSection } from '../../src/credentials/sealed-file.ts';
import { changeEntries, makeIdentity, setNext, setTo, withdraw } from '../../src/credentials/sealing.ts';
import { SourceReader } from '../../src/credentials/sources.ts';
import { AUDIT_KEY, auditOptions, recordsIn, useFolders } from '../support/audit-log.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { type ConfiguredGateway, type RunningGateway, startGateway } from '../support/gateway.ts';
import { act, OF_PROGRAM, post, TOKEN_HASHES, type Told } from '../support/operator.ts';
import { startRedis } from '../support/redis.ts';
import { redisOptions, single } from '../support/redis-store.ts';
import { authors, type RunningScene, startScene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { useSharedFleet } from './fleet/shared-fleet.ts';

const folderOf = useFolders();
const OLD = 'demo-api-key';
const NEW = 'another-api-key';
const NAME = 'submissions';

/** Where the sealed file of a gateway is, whose folder is this one. */
const sealedIn = (folder: string): SealedSection => ({
  file: join(folder, 's.age'),
  identity: { file: join(folder, 'id.txt') },
});

const { sharedFleet } = useSharedFleet(async (folder) => {
  const sealed = sealedIn(folder);
  await makeIdentity(sealed, new Date());
  await seal(sealed, setTo(new Secret(OLD), new Date()));
  return {
    control: { port: 0, actions: true, ...TOKEN_HASHES },
    sealed,
    credentials: credentialOf(NAME),
  };
});

interface Scene extends RunningScene<ConfiguredGateway> {
  readonly control: string;
  /** The name of its deployment and its credential. */
  readonly name: string;
  readonly sealed: SealedSection;
  /** Folder of the audit log. */
  readonly log: string;
  /** How many records of actions and lines of the log it had before the test. */
  readonly before: { readonly actions: number; readonly lines: number };
}

interface Change {
  readonly top?: object;
  readonly settings?: Record<string, unknown>;
}

const credentialOf = (name: string) => ({
  [name]: { username: { value: 'demo-user' }, password: { sealed: name } },
});

/** A gateway whose password, and the next one if there is one, is in a sealed file. */
async function start(next: string | undefined, change: Change = {}): Promise<Scene> {
  const folder = await folderOf();
  const sealed = sealedIn(folder);
  await makeIdentity(sealed, new Date());
  await sealVersions(sealed, NAME, next);
  const keyFile = join(folder, 'audit.key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const log = join(folder, 'log');
  const scene = await startScene({
    fromFile: true,
    ...(change.settings && { settings: change.settings }),
    top: {
      control: { port: 0, actions: true, ...TOKEN_HASHES },
      audit: { directory: log, keyFile, replica: 'r1' },
      sealed,
      credentials: credentialOf(NAME),
      ...change.top,
    },
  });
  const { control } = scene.gateway;
  return { ...scene, control, name: NAME, sealed, log, before: { actions: 0, lines: 0 } };
}

/** Takes the fleet of all tests, with a deployment and a credential that are new to it. */
async function startShared(next: string | undefined, { settings }: Change = {}): Promise<Scene> {
  const name = `d-${randomUUID()}`;
  const fleet = await sharedFleet({ port: 0 }, async (config, { folder }) => {
    await sealVersions(sealedIn(folder), name, next);
    const { submissions } = config['deployments'] as Record<string, object>;
    config['deployments'] = { [name]: { ...submissions, ...settings, credential: name } };
    config['credentials'] = credentialOf(name);
  });
  accept(fleet, OLD);
  fleet.simulator.reset(NAME);
  const before = { actions: (await actionsIn(fleet.log)).length, lines: fleet.gateway.logged.length };
  return { ...fleet, control: fleet.gateway.control, name, sealed: sealedIn(fleet.folder), before };
}

/** Seals the password, and the next one if there is one. */
async function sealVersions(sealed: SealedSection, name: string, next: string | undefined): Promise<void> {
  await seal(sealed, setTo(new Secret(OLD), new Date()), name);
  if (next !== undefined) await seal(sealed, setNext(new Secret(next), new Date()), name);
}

function seal(section: SealedSection, step: ReturnType<typeof setTo>, name = NAME) {
  return changeEntries(section, new SourceReader({ environment: {} }, section), [name], step);
}

/** The upstream takes these passwords from now on. */
function accept(
  { simulator }: Pick<Scene, 'simulator'>,
  password: string,
  ...otherPasswords: string[]
): void {
  simulator.set(NAME, { accounts: [{ username: 'demo-user', password, otherPasswords, sites: ['demo'] }] });
}

const wrongAnswers = ({ simulator }: Pick<Scene, 'simulator'>): number =>
  simulator.counts(NAME).refused['wrong-response'];

/** Sends a request on a new connection; resolves to its status. */
function get({ gateway }: { readonly gateway: { readonly origin: string } }): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    request(`${gateway.origin}${authors}`, { agent: false }, (response) => {
      response.resume().once('end', () => resolve(response.statusCode));
    })
      .once('error', reject)
      .end();
  });
}

const command = (
  { control, name }: Pick<Scene, 'control' | 'name'>,
  action: 'retry' | 'withdraw',
  of = name,
): Promise<Told> => post(`${control}/api/credentials/${of}/${action}`, {}, OF_PROGRAM);

/** The versions of the credential, each with its state. */
async function states({ control, name }: Pick<Scene, 'control' | 'name'>): Promise<string[]> {
  const answer = await fetch(`${control}/api/snapshot`, { headers: OF_PROGRAM });
  const { deployments } = (await answer.json()) as Snapshot;
  const found = deployments.find((each) => each.name === name);
  return found?.credentials.map(({ version, state }) => `${version} ${state}`) ?? [];
}

async function readiness({ control }: Pick<Scene, 'control'>): Promise<string> {
  return ((await (await fetch(`${control}/readyz`)).json()) as { status: string }).status;
}

/** The values of these members in the records of actions. */
async function recorded({ log, before }: Scene, ...keys: string[]): Promise<unknown[][]> {
  const records = await actionsIn(log);
  return records.slice(before.actions).map((record) => keys.map((key) => record[key]));
}

async function actionsIn(log: string): Promise<Record<string, unknown>[]> {
  const records = await recordsIn(log);
  return records.filter(({ event }) => event === 'action' || event === 'action-result');
}

/** The lines that the gateway has logged in this test. */
const logged = ({ gateway, before }: Scene) => gateway.logged.slice(before.lines);

/** The upstream refuses the password, and every worker knows. */
async function refusedEverywhere(scene: Scene, workers: number): Promise<void> {
  accept(scene, 'lost');
  // The system chooses which worker takes a connection.
  for (let sent = 0; sent < 16 * workers; sent += 1) expect(await get(scene)).toBe(502);
  expect(await readiness(scene)).toBe('down');
}

describe.each([
  [1, start],
  [2, startShared],
])('with %d workers', (workers, startWith) => {
  test('a next version is withdrawn from the sealed file and from all workers', async () => {
    const scene = await startWith(NEW);
    for (let sent = 0; sent < 8; sent += 1) expect(await get(scene)).toBe(200);
    const withdrawn = { result: 'success', credential: scene.name, version: '2', deployments: [] };
    expect(await command(scene, 'withdraw')).toEqual({ status: 200, json: withdrawn });
    expect(await states(scene)).toEqual(['1 in use']);
    const entries = await seal(scene.sealed, (entry) => entry as never, scene.name);
    expect(entries.map((entry) => [entry.next, entry.version])).toEqual([[undefined, 1]]);
    expect(await command(scene, 'withdraw')).toMatchObject({
      status: 409,
      json: { code: 'nothing-to-withdraw' },
    });
    expect(await command(scene, 'withdraw', 'other')).toMatchObject({ status: 404 });
    expect(await recorded(scene, 'event', 'action', 'version', 'by', 'result')).toEqual([
      ['action', 'withdraw', '2', 'token', undefined],
      ['action-result', 'withdraw', '2', undefined, 'success'],
    ]);
    // No version that is gone helps.
    accept(scene, NEW);
    expect(await get(scene)).toBe(502);
  });

  test('a next version that is withdrawn by the command is dropped by the watch', async () => {
    const scene = await startWith(NEW);
    expect(await get(scene)).toBe(200);
    await seal(scene.sealed, withdraw, scene.name);
    await until(async () => (await states(scene)).length === 1);
    expect(await states(scene)).toEqual(['1 in use']);
    expect(logged(scene).filter(({ level }) => level === 'warn' || level === 'error')).toEqual([]);
  });

  test('a next version that is in use is not withdrawn, and stays when the command withdraws it', async () => {
    const scene = await startWith(NEW);
    accept(scene, OLD, NEW);
    expect(
      await act(scene.control, {
        action: 'promote',
        deployment: scene.name,
        credential: scene.name,
        version: '2',
      }),
    ).toMatchObject({
      status: 200,
    });
    const refused = await command(scene, 'withdraw');
    expect(refused).toMatchObject({ status: 409, json: { code: 'next-in-use' } });
    expect(refused.json.detail).toContain(`Version 2 of ${scene.name} is in use at ${scene.name}`);
    expect(await states(scene)).toEqual(['2 in use', '1 kept as fallback']);
    await seal(scene.sealed, withdraw, scene.name);
    const told =
      'next version withdrawn, but it is in use, and stays until the upstream refuses it or a restart';
    await until(() => logged(scene).some(({ msg }) => msg === told));
    expect(logged(scene).find(({ msg }) => msg === told)).toMatchObject({
      level: 'warn',
      credential: scene.name,
      version: '2',
      deployments: [scene.name],
    });
    accept(scene, NEW);
    for (let sent = 0; sent < 8; sent += 1) expect(await get(scene)).toBe(200);
    expect(wrongAnswers(scene)).toBe(0);
  });

  test('a refused credential that is retried serves at once in all workers', async () => {
    const scene = await startWith(undefined, { settings: { digest: { attemptsWhenRefused: 3 } } });
    await refusedEverywhere(scene, workers);
    accept(scene, OLD);
    // No attempt of a client is due.
    expect(await get(scene)).toBe(502);
    const before = wrongAnswers(scene);
    const retried = { result: 'success', credential: scene.name, deployments: [scene.name] };
    expect(await command(scene, 'retry')).toEqual({ status: 200, json: retried });
    expect([await states(scene), await readiness(scene)]).toEqual([['1 in use'], 'ok']);
    for (let sent = 0; sent < 16; sent += 1) expect(await get(scene)).toBe(200);
    expect(wrongAnswers(scene)).toBe(before);
    expect(await command(scene, 'retry')).toMatchObject({ status: 409, json: { code: 'not-refused' } });
    expect(await recorded(scene, 'event', 'action', 'deployments', 'result')).toEqual([
      ['action', 'retry', [scene.name], undefined],
      ['action-result', 'retry', [scene.name], 'success'],
    ]);
  });

  test('a credential that is still refused costs no more attempts than a minute may have', async () => {
    const scene = await startWith(undefined, { settings: { digest: { attemptsWhenRefused: 3 } } });
    await refusedEverywhere(scene, workers);
    const before = wrongAnswers(scene);
    const codes = [];
    for (let count = 0; count < 4; count += 1) codes.push((await command(scene, 'retry')).json.code);
    const spent = 'attempts-used-up';
    expect([codes, wrongAnswers(scene) - before]).toEqual([['credential-refused', spent, spent, spent], 1]);
    expect(await recorded(scene, 'event', 'code')).toContainEqual(['action-result', 'credential-refused']);
    expect(await readiness(scene)).toBe('down');
  });
});

test('the console retries and withdraws after it has told what that does', async () => {
  const scene = await start(NEW, { settings: { digest: { attemptsWhenRefused: 60 } } });
  const begun = await post(
    `${scene.control}/api/actions`,
    { action: 'withdraw', credential: NAME },
    OF_PROGRAM,
  );
  expect(begun.json.effects.join(' ')).toContain(`Version 2 is removed from ${scene.sealed.file} (${NAME})`);
  expect(await states(scene)).toHaveLength(2);
  expect(await act(scene.control, { action: 'retry', credential: NAME })).toMatchObject({
    status: 409,
    json: { code: 'not-refused' },
  });
  accept(scene, 'lost');
  expect(await get(scene)).toBe(502);
  accept(scene, NEW);
  expect(await act(scene.control, { action: 'retry', credential: NAME })).toEqual({
    status: 200,
    json: { action: 'retry', result: 'The credential is accepted again at submissions.', notes: [] },
  });
  expect((await states(scene))[0]).toBe('2 in use');
  expect(await get(scene)).toBe(200);
});

test('a next version that came after the description of a withdrawal stays', async () => {
  const scene = await start(NEW);
  const actions = `${scene.control}/api/actions`;
  const begun = await post(actions, { action: 'withdraw', credential: NAME }, OF_PROGRAM);
  expect(begun.json.effects.join(' ')).toContain('Version 2 is removed');
  await seal(scene.sealed, setNext(new Secret('a third key'), new Date()));
  const { status, json } = await post(`${actions}/${begun.json.id}/confirm`, {}, OF_PROGRAM);
  expect([status, json.code, json.detail]).toEqual([
    409,
    'nothing-to-withdraw',
    'Version 2 of submissions is not its next version any more, so nothing is withdrawn: start the action again.',
  ]);
  const reader = new SourceReader({ environment: {} }, scene.sealed);
  expect((await reader.sealed()).get(NAME)?.next?.version).toBe(3);
  expect(await states(scene)).toEqual(['1 in use', expect.stringMatching(/^3 /)]);
});

test('a next version of the configuration is withdrawn there', async () => {
  const configured = {
    username: { value: 'demo-user' },
    password: { value: OLD },
    next: { password: { value: NEW } },
  };
  const scene = await start(undefined, { top: { credentials: { [NAME]: configured } } });
  const { status, json } = await command(scene, 'withdraw');
  expect([status, json.code, json.detail]).toEqual([
    409,
    'next-configured',
    'The next version of submissions is credentials.submissions.next of the configuration: remove it there, and reload.',
  ]);
});

test('a sealed file that cannot be written changes nothing, which is told', async () => {
  const scene = await start(NEW);
  // As if another command were writing; the mode of the folder would not stop root.
  await writeFile(`${scene.sealed.file}.new`, '');
  await chmod(`${scene.sealed.file}.new`, 0o600);
  const { status, json } = await command(scene, 'withdraw');
  expect([status, json.code, json.detail]).toEqual([
    500,
    'action-failed',
    expect.stringMatching(/^Nothing has changed: .*s\.age\.new exists/),
  ]);
  expect(await states(scene)).toHaveLength(2);
});

test('a retry at one replica ends the alarm of the other one, which has no request', async () => {
  const redis = await closedAtEnd(startRedis());
  const { simulator } = await startScene();
  const { origin } = simulator.deployments.submissions;
  const settings = { digest: { attemptsWhenRefused: 3 } };
  const replicas: RunningGateway[] = [];
  for (let count = 0; count < 2; count += 1) {
    const control = { port: 0, tokenSha256: TOKEN_HASHES.tokenSha256 };
    const gateway = await startGateway(
      { [NAME]: { origin, ca: simulator.ca, settings } },
      { control },
      { redis: redisOptions(single(redis.port)), audit: auditOptions(await folderOf()) },
    );
    closing.push(() => gateway.close());
    await until(async () => (await gateway.plane.state()).storeUp === true);
    replicas.push(gateway);
  }
  simulator.reset(NAME);
  const [first, second] = replicas as [RunningGateway, RunningGateway];
  accept({ simulator }, 'lost');
  for (const gateway of replicas) expect(await get({ gateway })).toBe(502);
  expect([await readiness(first), await readiness(second)]).toEqual(['down', 'down']);
  accept({ simulator }, OLD);
  expect((await command({ ...first, name: NAME }, 'retry')).status).toBe(200);
  expect(await readiness(first)).toBe('ok');
  await until(async () => (await readiness(second)) === 'ok');
  expect(await get({ gateway: second })).toBe(200);
});
