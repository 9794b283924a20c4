import { randomUUID } from 'node:crypto';
import { renameSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { dirname, join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { Pool } from 'undici';
import { stringify } from 'yaml';
import type { Snapshot } from '../../../src/control/view.ts';
import { AUDIT_KEY, recordsIn, useFolders } from '../../support/audit-log.ts';
import { closing } from '../../support/closing.ts';
import type { ConfiguredGateway } from '../../support/gateway.ts';
import type { GatewayProcess } from '../../support/gateway-process.ts';
import { act, OF_PROGRAM, post, TOKEN_HASHES, type Told } from '../../support/operator.ts';
import { type RunningScene, startScene, startSceneWith } from '../../support/scene.ts';
import { authors } from '../../support/simulator.ts';
import { until } from '../../support/until.ts';
import { useSharedFleet } from './shared-fleet.ts';

const folderOf = useFolders();
const OLD = 'demo-api-key';
const NEW = 'another-api-key';
const NAME = 'submissions';
const BOTH = ['abstracts', NAME];

const CREDENTIAL = {
  username: { value: 'demo-user' },
  password: { value: OLD },
  next: { password: { value: NEW } },
};
/** A drain lasts long enough for a look at the readiness. */
const DRAIN = { drain: { delay: '500ms', timeout: '20s' } };
const { sharedFleet, takeFleet } = useSharedFleet(() => ({
  control: { port: 0, actions: true, ...TOKEN_HASHES },
  ...DRAIN,
}));

interface Scene<Gateway extends ConfiguredGateway = ConfiguredGateway> extends RunningScene<Gateway> {
  readonly control: string;
  /** The name of its deployment and its credential. */
  readonly name: string;
  /** Folder of the audit log. */
  readonly log: string;
  /** How many records of actions it had before the test. */
  readonly actionsBefore: number;
}

type Options = Parameters<typeof startSceneWith>[1];

/** Options of a gateway that allows actions; its credential has a next version, which nobody has tried. */
async function sceneOptions(
  top: Record<string, unknown> = {},
  abstracts?: Record<string, unknown>,
): Promise<{ log: string; options: Options }> {
  const folder = await folderOf();
  const keyFile = join(folder, 'audit.key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const log = join(folder, 'log');
  const options = {
    ...(abstracts && { abstracts }),
    top: {
      control: { port: 0, actions: true, ...TOKEN_HASHES },
      audit: { directory: log, keyFile, replica: 'r1' },
      credentials: {
        [NAME]: CREDENTIAL,
      },
      ...top,
    },
  };
  return { log, options };
}

async function start(workers: number, ...settings: Parameters<typeof sceneOptions>): Promise<Scene> {
  const { log, options } = await sceneOptions(...settings);
  const scene = await startSceneWith(workers, options);
  return { ...scene, control: scene.gateway.control, name: NAME, log, actionsBefore: 0 };
}

/** Takes the fleet of all tests, with a deployment and a credential that are new to it. */
async function startShared(take = sharedFleet): Promise<Scene<GatewayProcess>> {
  const name = `d-${randomUUID()}`;
  const fleet = await take({ port: 0 }, (config) => {
    const { submissions } = config['deployments'] as Record<string, object>;
    config['deployments'] = { [name]: { ...submissions, credential: name } };
    config['credentials'] = { [name]: CREDENTIAL };
  });
  fleet.simulator.set(NAME, { accounts: [account(OLD)] });
  fleet.simulator.reset(NAME);
  const actionsBefore = (await actionsIn(fleet.log)).length;
  return { ...fleet, control: fleet.gateway.control, name, actionsBefore };
}

/** Does the same in a process of its own, also with one worker. */
async function startProcess(
  workers: number,
  ...settings: Parameters<typeof sceneOptions>
): Promise<Scene<GatewayProcess>> {
  const { log, options } = await sceneOptions(...settings);
  const scene = await startScene({ ...options, workers });
  return { ...scene, control: scene.gateway.control, name: NAME, log, actionsBefore: 0 };
}

/** The upstream takes these passwords from now on. */
function accept({ simulator }: Scene, password: string, ...otherPasswords: string[]): void {
  simulator.set(NAME, { accounts: [account(password, ...otherPasswords)] });
}

function account(password: string, ...otherPasswords: string[]) {
  return { username: 'demo-user', password, otherPasswords, sites: ['demo'] };
}

const refusals = ({ simulator }: Scene): number => simulator.counts(NAME).refused['wrong-response'];

/** Sends requests on new connections, which the workers share among them; each is served. */
async function served({ gateway }: Scene, count = 16): Promise<void> {
  for (let sent = 0; sent < count; sent += 1) {
    const status = await new Promise((resolve, reject) => {
      request(`${gateway.origin}${authors}`, { agent: false }, (response) => {
        response.resume().once('end', () => resolve(response.statusCode));
      })
        .once('error', reject)
        .end();
    });
    expect(status).toBe(200);
  }
}

/** The versions of the credential, each with its state at this deployment. */
async function states({ control, name }: Scene, deployment = name): Promise<string[]> {
  const answer = await fetch(`${control}/api/snapshot`, { headers: OF_PROGRAM });
  const { deployments } = (await answer.json()) as Snapshot;
  const found = deployments.find((each) => each.name === deployment);
  return found?.credentials.map(({ version, state }) => `${version} ${state}`) ?? [];
}

/** The values of these members in the records of actions. */
async function recorded({ log, actionsBefore }: Scene, ...keys: string[]): Promise<unknown[][]> {
  const records = await actionsIn(log);
  return records.slice(actionsBefore).map((record) => keys.map((key) => record[key]));
}

async function actionsIn(log: string): Promise<Record<string, unknown>[]> {
  const records = await recordsIn(log);
  return records.filter(({ event }) => event === 'action' || event === 'action-result');
}

const versionOf = ({ name }: Scene) => ({ deployment: name, credential: name });

describe.each([1, 2])('with %d workers', (workers) => {
  const startWith = (): Promise<Scene> => (workers === 1 ? start(1) : startShared());

  test('a version is promoted and rolled back in all of them', async () => {
    const scene = await startWith();
    accept(scene, OLD, NEW);
    const promoted = await act(scene.control, { action: 'promote', ...versionOf(scene), version: '2' });
    expect(promoted).toEqual({
      status: 200,
      json: {
        action: 'promote',
        result: `Version 2 of ${scene.name} is in use at ${scene.name}.`,
        notes: [],
      },
    });
    // If one of them sent the old password, the upstream would count it.
    accept(scene, NEW);
    await served(scene);
    expect(refusals(scene)).toBe(0);
    accept(scene, OLD, NEW);
    expect(await act(scene.control, { action: 'roll-back', ...versionOf(scene) })).toMatchObject({
      status: 200,
      json: { result: `Version 1 of ${scene.name} is in use at ${scene.name}.` },
    });
    accept(scene, OLD);
    await served(scene);
    expect(refusals(scene)).toBe(0);
    expect(await recorded(scene, 'event', 'action', 'version', 'by', 'address', 'result')).toEqual([
      ['action', 'promote', '2', 'token', '127.0.0.1', undefined],
      ['action-result', 'promote', '2', undefined, undefined, 'success'],
      ['action', 'roll-back', '1', 'token', '127.0.0.1', undefined],
      ['action-result', 'roll-back', '1', undefined, undefined, 'success'],
    ]);
  });

  test('a version that the upstream refuses stays out of use, and costs one attempt', async () => {
    const scene = await startWith();
    accept(scene, OLD);
    expect(await act(scene.control, { action: 'promote', ...versionOf(scene), version: '2' })).toMatchObject({
      status: 409,
      json: { code: 'version-refused' },
    });
    expect(refusals(scene)).toBe(1);
    await served(scene, 4);
    expect(await recorded(scene, 'event', 'result', 'code')).toEqual([
      ['action', undefined, undefined],
      ['action-result', 'failure', 'version-refused'],
    ]);
  });

  test('a program promotes the next version with the token alone', async () => {
    const scene = await start(workers, { control: { port: 0, tokenSha256: TOKEN_HASHES.tokenSha256 } });
    const promote = (name = NAME, body = {}): Promise<Told> =>
      post(`${scene.control}/api/credentials/${name}/promote`, body, OF_PROGRAM);
    accept(scene, OLD);
    expect(await promote()).toMatchObject({ status: 409, json: { code: 'version-refused' } });
    expect(await promote('other')).toMatchObject({ status: 404, json: { code: 'target-unknown' } });
    expect(await promote(NAME, { version: '9' })).toMatchObject({
      status: 404,
      json: { code: 'target-unknown' },
    });
    accept(scene, OLD, NEW);
    const promoted = { result: 'success', credential: NAME, version: '2', deployments: [NAME] };
    expect(await promote(NAME, { version: '2' })).toEqual({ status: 200, json: promoted });
    accept(scene, NEW);
    await served(scene);
    expect(refusals(scene)).toBe(1);
    expect(await promote()).toMatchObject({ status: 409, json: { code: 'no-next-version' } });
    expect(await promote(NAME, { version: '2' })).toMatchObject({
      status: 409,
      json: { code: 'version-in-use' },
    });
    const what = ['event', 'credential', 'version', 'deployments'];
    const records = await recorded(scene, ...what, 'by', 'address', 'result', 'code');
    const begun = ['action', NAME, '2', [NAME], 'token', '127.0.0.1', undefined, undefined];
    const ended = ['action-result', NAME, '2', [NAME], undefined, undefined];
    expect(records).toEqual([
      begun,
      [...ended, 'failure', 'version-refused'],
      begun,
      [...ended, 'success', undefined],
    ]);
  });

  test('nothing is done that cannot be recorded', async () => {
    const scene = await startWith();
    accept(scene, OLD, NEW);
    const { json } = await post(
      `${scene.control}/api/actions`,
      { action: 'promote', ...versionOf(scene), version: '2' },
      OF_PROGRAM,
    );
    // A file in the place of the folder: nothing can be opened there. At once, since the gateway makes the folder again.
    await writeFile(`${scene.log}-file`, '');
    renameSync(scene.log, `${scene.log}-away`);
    renameSync(`${scene.log}-file`, scene.log);
    const told = (text: string): boolean =>
      // Actions are recorded by the primary, in a log of its own.
      scene.gateway.logged.some(({ msg, worker }) => msg === text && worker === undefined);
    await until(() => told('requests are refused until the audit log can be written'));
    expect(await post(`${scene.control}/api/actions/${json.id}/confirm`, {}, OF_PROGRAM)).toMatchObject({
      status: 503,
      json: { code: 'audit-unavailable' },
    });
    expect(await act(scene.control, { action: 'drain' })).toMatchObject({
      status: 503,
      json: { code: 'audit-unavailable' },
    });
    // The gateways make the folder again, so that its old one cannot be put back.
    await rm(scene.log);
    await until(() => told('audit log writable again'));
    expect(await states(scene)).toEqual(['1 in use', '2 waits to be tried']);
    expect((await act(scene.control, { action: 'promote', ...versionOf(scene), version: '2' })).status).toBe(
      200,
    );
    expect(await states(scene)).toEqual(['2 in use', '1 kept as fallback']);
  });
});

test('a version is promoted at every deployment that has its credential, or at none', async () => {
  const scene = await start(1, {}, { match: { pathPrefix: '/api/abstracts/' }, credential: NAME });
  const { simulator, control } = scene;
  const promote = (): Promise<Told> => post(`${control}/api/credentials/${NAME}/promote`, {}, OF_PROGRAM);
  const wrong = (): number => simulator.counts('abstracts').refused['wrong-response'];
  const all = async (): Promise<string[]> =>
    (await Promise.all(BOTH.map((name) => states(scene, name)))).flat();
  accept(scene, OLD, NEW);
  simulator.set('abstracts', { accounts: [account(OLD)] });
  expect(await promote()).toMatchObject({ status: 409, json: { code: 'version-refused' } });
  const unchanged = ['1 in use', '2 waits to be tried'];
  expect([await states(scene), (await states(scene, 'abstracts'))[0], wrong()]).toEqual([
    unchanged,
    '1 in use',
    1,
  ]);
  simulator.set('abstracts', { accounts: [account(OLD, NEW)] });
  const promoted = await promote();
  expect([promoted.status, promoted.json.deployments.toSorted()]).toEqual([200, BOTH]);
  const used = ['2 in use', '1 kept as fallback'];
  expect(await all()).toEqual([...used, ...used]);
});

test('a worker that takes the place of another one uses the version that was promoted', async () => {
  const scene = await startShared();
  accept(scene, OLD, NEW);
  expect((await act(scene.control, { action: 'promote', ...versionOf(scene), version: '2' })).status).toBe(
    200,
  );
  const [first = 0] = await scene.gateway.workers();
  process.kill(first, 'SIGKILL');
  const replaced = 'worker replaced';
  await until(() => scene.gateway.logged.some(({ msg }) => msg === replaced));
  accept(scene, NEW);
  await served(scene, 32);
  expect(refusals(scene)).toBe(0);
});

test('a reload uses the files that were described, those that are included for the first time among them', async () => {
  const scene = await start(1);
  const { configFile } = scene.gateway;
  const part = join(dirname(configFile), 'part.yaml');
  const client = (id: string) => stringify({ clients: [{ id, identify: { addresses: ['10.0.0.1'] } }] });
  const before = await readFile(configFile, 'utf8');
  await writeFile(part, client('agreed'));
  await writeFile(configFile, `${before}\ninclude: part.yaml\n`);
  const describe = () => post(`${scene.control}/api/actions`, { action: 'reload' }, OF_PROGRAM);
  const confirm = ({ json }: Told) => post(`${scene.control}/api/actions/${json.id}/confirm`, {}, OF_PROGRAM);
  const clients = async (): Promise<string> => {
    const response = await fetch(`${scene.control}/api/configuration`, { headers: OF_PROGRAM });
    return ((await response.json()) as { yaml: string }).yaml;
  };
  const agreed = await describe();
  await writeFile(part, client('other'));
  expect((await describe()).json.effects).not.toEqual(agreed.json.effects);
  expect(await confirm(agreed)).toMatchObject({ status: 409, json: { code: 'reload-impossible' } });
  expect(await clients()).not.toContain('other');
  // What was refused when it was described is not used either when it is right later.
  await writeFile(part, 'clients: 1');
  const broken = await describe();
  expect(broken.json.effects.at(-1)).toMatch(
    /^Its files are refused as they are: .*part\.yaml:1:\d+ clients: [^;]+$/,
  );
  await writeFile(part, client('other'));
  expect((await confirm(broken)).status).toBe(409);
  await writeFile(part, client('agreed'));
  expect((await confirm(await describe())).status).toBe(200);
  expect(await clients()).toContain('agreed');
});

test('reload and doctor tell what they found', async () => {
  const scene = await start(1);
  expect(await act(scene.control, { action: 'reload' })).toMatchObject({
    status: 200,
    json: { result: 'Reloaded: nothing has changed.' },
  });
  await writeFile(scene.gateway.configFile, 'listen: { port: x }');
  const refused = await act(scene.control, { action: 'reload' });
  expect(refused).toMatchObject({ status: 422, json: { code: 'reload-refused' } });
  expect(refused.json.detail).toContain('listen.port');
  accept(scene, OLD);
  const { status, json } = await act(scene.control, { action: 'doctor', deployment: NAME });
  expect([status, json.result]).toEqual([200, expect.stringMatching(/^1 failure, /)]);
  const marks = json.findings.map(({ check, subject, mark }: Record<string, string>) => [
    check,
    subject,
    mark,
  ]);
  expect(marks).toContainEqual(['credential', 'submissions', 'ok']);
  expect(marks).toContainEqual(['credential', 'submissions (next)', 'fail']);
  expect(JSON.stringify(json)).not.toContain(OLD);
  expect(await act(scene.control, { action: 'doctor', deployment: 'other' })).toMatchObject({
    status: 404,
    json: { code: 'target-unknown' },
  });
});

test('doctor ends when its client goes', async () => {
  const scene = await start(1);
  scene.simulator.set(NAME, { faults: [{ kind: 'delay', ms: 3_000 }] });
  const { json } = await post(`${scene.control}/api/actions`, { action: 'doctor' }, OF_PROGRAM);
  const gone = new AbortController();
  const begun = scene.simulator.counts(NAME).requests;
  const confirmed = fetch(`${scene.control}/api/actions/${json.id}/confirm`, {
    method: 'POST',
    headers: { ...OF_PROGRAM, 'content-type': 'application/json' },
    body: '{}',
    signal: gone.signal,
  }).catch((error) => error.name);
  await until(() => scene.simulator.counts(NAME).requests > begun);
  gone.abort();
  expect(await confirmed).toBe('AbortError');
  await until(async () => (await recorded(scene, 'event')).length === 2);
  await until(() => scene.simulator.counts(NAME).aborted === 1);
  expect(scene.simulator.counts(NAME).requests).toBe(begun + 1);
});

// The last one for the fleet, which ends with it.
test.each([1, 2])('a drain ends the process of %d workers, and no request is lost', async (workers) => {
  const scene = await (workers === 1 ? startProcess(1, DRAIN) : startShared(takeFleet));
  closing.push(() => scene.close());
  const pool = new Pool(scene.gateway.origin, { connections: 8, pipelining: 1 });
  closing.push(() => pool.destroy());
  const outcomes = new Map<string, string[]>();
  let sent = 0;
  const client = async (): Promise<void> => {
    for (;;) {
      sent += 1;
      const requestId = `drained-${sent}`;
      const headers = { 'x-request-id': requestId };
      const outcome = await pool.request({ path: authors, method: 'GET', headers }).then(
        async ({ statusCode, body }) => {
          await body.text();
          return String(statusCode);
        },
        (error) => String(error.code),
      );
      outcomes.set(outcome, [...(outcomes.get(outcome) ?? []), requestId]);
      if (outcome !== '200') return;
    }
  };
  const clients = Promise.all(Array.from({ length: 8 }, client));
  await until(() => (outcomes.get('200')?.length ?? 0) > 50);
  const begun = await post(`${scene.control}/api/actions`, { action: 'drain' }, OF_PROGRAM);
  expect(begun.json.effects.join(' ')).toContain('supervisor');
  const confirmed = await post(`${scene.control}/api/actions/${begun.json.id}/confirm`, {}, OF_PROGRAM);
  expect(confirmed).toMatchObject({ status: 200, json: { result: 'The gateway is shutting down.' } });
  await until(async () => (await fetch(`${scene.control}/readyz`)).status === 503);
  expect(await scene.gateway.ended).toBe(0);
  await clients;
  // A client meets the closed port once: its connection is refused, or reset while it waits to be accepted.
  const {
    200: _served,
    ECONNREFUSED: refused = [],
    ECONNRESET: reset = [],
    ...others
  } = Object.fromEntries(outcomes);
  expect([refused.length + reset.length, others]).toEqual([8, {}]);
  const records = await recordsIn(scene.log);
  // No request that the gateway had taken was lost.
  expect(records.filter(({ requestId }) => reset.includes(String(requestId)))).toEqual([]);
  const events = records.flatMap(({ kind, event }) => (kind === 'admin' ? [event] : []));
  const own = events.filter((event) => event !== 'worker-heads');
  expect(own.slice(-3)).toEqual(['action', 'action-result', 'stop']);
});
