import { chmod, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../../src/base/secret.ts';
import type { Snapshot } from '../../../src/control/view.ts';
import type { SealedSection } from '../../../src/credentials/sealed-file.ts';
import { changeEntries, makeIdentity, setNext, setTo, withdraw } from '../../../src/credentials/sealing.ts';
import { SourceReader } from '../../../src/credentials/sources.ts';
import { AUDIT_KEY, auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { closing } from '../../support/closing.ts';
import { type ConfiguredGateway, type RunningGateway, startGateway } from '../../support/gateway.ts';
import { act, OF_PROGRAM, post, TOKEN_HASHES, type Told } from '../../support/operator.ts';
import { startRedis } from '../../support/redis.ts';
import { redisOptions, single } from '../../support/redis-store.ts';
import { authors, type RunningScene, startScene, startSceneWith } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const folderOf = useFolders();
const OLD = 'demo-api-key';
const NEW = 'another-api-key';
const NAME = 'submissions';

interface Scene extends RunningScene<ConfiguredGateway> {
  readonly control: string;
  readonly sealed: SealedSection;
  /** Folder of the audit log. */
  readonly log: string;
}

/** A gateway whose password, and the next one if there is one, is in a sealed file. */
async function start(
  workers: number,
  next: string | undefined,
  change: { readonly top?: object; readonly settings?: Record<string, unknown> } = {},
): Promise<Scene> {
  const folder = await folderOf();
  const sealed = { file: join(folder, 's.age'), identity: { file: join(folder, 'id.txt') } };
  await makeIdentity(sealed, new Date());
  await seal(sealed, setTo(new Secret(OLD), new Date()));
  if (next !== undefined) await seal(sealed, setNext(new Secret(next), new Date()));
  const keyFile = join(folder, 'audit.key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const log = join(folder, 'log');
  const scene = await startSceneWith(workers, {
    ...(change.settings && { settings: change.settings }),
    top: {
      control: { port: 0, actions: true, ...TOKEN_HASHES },
      audit: { directory: log, keyFile, replica: 'r1' },
      sealed,
      credentials: { [NAME]: { username: { value: 'demo-user' }, password: { sealed: NAME } } },
      ...change.top,
    },
  });
  return { ...scene, control: scene.gateway.control, sealed, log };
}

function seal(section: SealedSection, step: ReturnType<typeof setTo>) {
  return changeEntries(section, new SourceReader({ environment: {} }, section), [NAME], step);
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

const command = ({ control }: Pick<Scene, 'control'>, name: 'retry' | 'withdraw', of = NAME): Promise<Told> =>
  post(`${control}/api/credentials/${of}/${name}`, {}, OF_PROGRAM);

/** The versions of the credential, each with its state. */
async function states({ control }: Pick<Scene, 'control'>): Promise<string[]> {
  const answer = await fetch(`${control}/api/snapshot`, { headers: OF_PROGRAM });
  const { deployments } = (await answer.json()) as Snapshot;
  const found = deployments.find(({ name }) => name === NAME);
  return found?.credentials.map(({ version, state }) => `${version} ${state}`) ?? [];
}

async function readiness({ control }: Pick<Scene, 'control'>): Promise<string> {
  return ((await (await fetch(`${control}/readyz`)).json()) as { status: string }).status;
}

/** The values of these members in the records of actions. */
async function recorded({ log }: Scene, ...keys: string[]): Promise<unknown[][]> {
  const records = await recordsIn(log);
  return records
    .filter(({ event }) => event === 'action' || event === 'action-result')
    .map((record) => keys.map((key) => record[key]));
}

/** The upstream refuses the password, and every worker knows. */
async function refusedEverywhere(scene: Scene, workers: number): Promise<void> {
  accept(scene, 'lost');
  // The system chooses which worker takes a connection.
  for (let sent = 0; sent < 16 * workers; sent += 1) expect(await get(scene)).toBe(502);
  expect(await readiness(scene)).toBe('down');
}

describe.each([1, 2])('with %d workers', (workers) => {
  test('a next version is withdrawn from the sealed file and from all workers', async () => {
    const scene = await start(workers, NEW);
    for (let sent = 0; sent < 8; sent += 1) expect(await get(scene)).toBe(200);
    const withdrawn = { result: 'success', credential: NAME, version: '2', deployments: [] };
    expect(await command(scene, 'withdraw')).toEqual({ status: 200, json: withdrawn });
    expect(await states(scene)).toEqual(['1 in use']);
    expect(await seal(scene.sealed, (entry) => entry as never)).toMatchObject([
      { next: undefined, version: 1 },
    ]);
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
    const scene = await start(workers, NEW);
    expect(await get(scene)).toBe(200);
    await seal(scene.sealed, withdraw);
    await until(async () => (await states(scene)).length === 1, 20_000);
    expect(await states(scene)).toEqual(['1 in use']);
    expect(scene.gateway.logged.filter(({ level }) => level === 'warn' || level === 'error')).toEqual([]);
  });

  test('a next version that is in use is not withdrawn, and stays when the command withdraws it', async () => {
    const scene = await start(workers, NEW);
    accept(scene, OLD, NEW);
    expect(
      await act(scene.control, { action: 'promote', deployment: NAME, credential: NAME, version: '2' }),
    ).toMatchObject({
      status: 200,
    });
    const refused = await command(scene, 'withdraw');
    expect(refused).toMatchObject({ status: 409, json: { code: 'next-in-use' } });
    expect(refused.json.detail).toContain('Version 2 of submissions is in use at submissions');
    expect(await states(scene)).toEqual(['2 in use', '1 kept as fallback']);
    await seal(scene.sealed, withdraw);
    const told =
      'next version withdrawn, but it is in use, and stays until the upstream refuses it or a restart';
    await until(() => scene.gateway.logged.some(({ msg }) => msg === told), 20_000);
    expect(scene.gateway.logged.find(({ msg }) => msg === told)).toMatchObject({
      level: 'warn',
      credential: NAME,
      version: '2',
      deployments: [NAME],
    });
    accept(scene, NEW);
    for (let sent = 0; sent < 8; sent += 1) expect(await get(scene)).toBe(200);
    expect(wrongAnswers(scene)).toBe(0);
  });

  test('a refused credential that is retried serves at once in all workers', async () => {
    const scene = await start(workers, undefined, { settings: { digest: { attemptsWhenRefused: 3 } } });
    await refusedEverywhere(scene, workers);
    accept(scene, OLD);
    // No attempt of a client is due.
    expect(await get(scene)).toBe(502);
    const before = wrongAnswers(scene);
    const retried = { result: 'success', credential: NAME, deployments: [NAME] };
    expect(await command(scene, 'retry')).toEqual({ status: 200, json: retried });
    expect([await states(scene), await readiness(scene)]).toEqual([['1 in use'], 'ok']);
    for (let sent = 0; sent < 16; sent += 1) expect(await get(scene)).toBe(200);
    expect(wrongAnswers(scene)).toBe(before);
    expect(await command(scene, 'retry')).toMatchObject({ status: 409, json: { code: 'not-refused' } });
    expect(await recorded(scene, 'event', 'action', 'deployments', 'result')).toEqual([
      ['action', 'retry', [NAME], undefined],
      ['action-result', 'retry', [NAME], 'success'],
    ]);
  });

  test('a credential that is still refused costs no more attempts than a minute may have', async () => {
    const scene = await start(workers, undefined, { settings: { digest: { attemptsWhenRefused: 3 } } });
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
  const scene = await start(1, NEW, { settings: { digest: { attemptsWhenRefused: 60 } } });
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

test('a next version of the configuration is withdrawn there', async () => {
  const configured = {
    username: { value: 'demo-user' },
    password: { value: OLD },
    next: { password: { value: NEW } },
  };
  const scene = await start(1, undefined, { top: { credentials: { [NAME]: configured } } });
  const { status, json } = await command(scene, 'withdraw');
  expect([status, json.code, json.detail]).toEqual([
    409,
    'next-configured',
    'The next version of submissions is credentials.submissions.next of the configuration: remove it there, and reload.',
  ]);
});

test('a sealed file that cannot be written changes nothing, which is told', async () => {
  const scene = await start(1, NEW);
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
  const redis = await startRedis();
  closing.push(() => redis.close());
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
  expect((await command(first, 'retry')).status).toBe(200);
  expect(await readiness(first)).toBe('ok');
  await until(async () => (await readiness(second)) === 'ok');
  expect(await get({ gateway: second })).toBe(200);
});
