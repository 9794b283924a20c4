import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { parse, stringify } from 'yaml';
import { Secret } from '../../src/base/secret.ts';
import type { Readiness } from '../../src/control/readiness.ts';
import { changeEntries, makeIdentity, setNext, setTo } from '../../src/credentials/sealing.ts';
import { SourceReader } from '../../src/credentials/sources.ts';
import { AUDIT_KEY, useFolders } from '../support/audit-log.ts';
import { metricOf } from '../support/gateway.ts';
import { OF_PROGRAM, post, TOKEN_HASHES } from '../support/operator.ts';
import { authors, startSceneWith } from '../support/scene.ts';
import { until } from '../support/until.ts';

const makeFolder = useFolders();

const OLD = 'demo-api-key';
const NEW = 'another-api-key';
const UNREADABLE = 'credentials cannot be read; keeping their current versions';
const READABLE = 'every credential can be read again';
const RELOADED = 'configuration reloaded';

/** A gateway with its password in the file `submissions`, and another credential in the file `other`. */
async function start(workers: number, sections: object = {}, credentials: object = {}) {
  const folder = await makeFolder();
  const pathOf = (name: string): string => join(folder, name);
  const put = async (name: string, password: string): Promise<void> => {
    await writeFile(pathOf(`${name}.new`), password, { mode: 0o600 });
    await rename(pathOf(`${name}.new`), pathOf(name));
  };
  const of = (name: string) => ({ username: { value: 'demo-user' }, password: { file: pathOf(name) } });
  await put('submissions', OLD);
  await put('other', OLD);
  const scene = await startSceneWith(workers, {
    settings: { digest: { attemptsWhenRefused: 60 } },
    top: {
      control: { port: 0, ...TOKEN_HASHES },
      ...sections,
      credentials: { submissions: of('submissions'), other: of('other'), ...credentials },
    },
  });
  const { control, logged, configFile } = scene.gateway;
  return {
    ...scene,
    put,
    remove: (name: string) => rm(pathOf(name)),
    other: pathOf('other'),
    reload: async () => (await post(`${control}/api/reload`, {}, OF_PROGRAM)).status,
    config: async () => parse(await readFile(configFile, 'utf8')),
    write: (config: object) => writeFile(configFile, stringify(config)),
    lines: (message: string) => logged.filter(({ msg }) => msg === message),
    check: async () => {
      const { status, checks } = (await (await fetch(`${control}/readyz`)).json()) as Readiness;
      return [status, checks.find(({ name }) => name === 'configuration')];
    },
    isWell: () => metricOf(control, 'digest_gateway_config_last_reload_successful', {}, OF_PROGRAM),
    statuses: () =>
      Promise.all(
        Array.from({ length: 8 }, async () => (await fetch(`${scene.gateway.origin}${authors}`)).status),
      ),
  };
}

const WELL = ['ok', { name: 'configuration', ok: true, detail: '' }];

test.each([1, 2])(
  'a credential that cannot be read keeps no other from its rotation: %d workers',
  async (workers) => {
    const { simulator, put, remove, other, lines, check, isWell, statuses } = await start(workers);
    const reason = `credentials.other.password: ${other} does not exist: create it, or name another file`;
    await remove('other');
    await until(() => lines(UNREADABLE).length === 1);
    expect(lines(UNREADABLE)).toMatchObject([{ level: 'error', reason }]);
    const wrong = [
      'degraded',
      {
        name: 'configuration',
        ok: false,
        detail: `credentials cannot be read, and their current versions stay in use: ${reason}`,
        state: 'degraded',
        next: 'correct their sources, which are then read by themselves',
      },
    ];
    expect([await check(), await isWell()]).toEqual([wrong, 0]);

    await put('submissions', NEW);
    await until(() => lines(RELOADED).length === 1);
    expect(lines(RELOADED)).toMatchObject([{ by: 'credentials', changed: ['credentials.submissions'] }]);
    const accounts = [{ username: 'demo-user', password: NEW, otherPasswords: [], sites: ['demo'] }];
    simulator.set('submissions', { accounts });
    expect(new Set(await statuses())).toEqual(new Set([200]));
    expect([await check(), await isWell(), lines(UNREADABLE).length]).toEqual([wrong, 0, 1]);

    await put('other', OLD);
    await until(() => lines(READABLE).length === 1);
    expect([await check(), await isWell(), lines(RELOADED).length]).toEqual([WELL, 1, 1]);
    await put('other', NEW);
    await until(() => lines(RELOADED).length === 2);
    expect(lines(RELOADED)[1]).toMatchObject({ changed: ['credentials.other'] });
  },
);

test('a reload needs every credential; one that removes the unreadable one ends the error', async () => {
  const { remove, put, config, write, reload, lines, check, isWell } = await start(1);
  await remove('other');
  await until(() => lines(UNREADABLE).length === 1);
  expect(await reload()).toBe(422);
  await put('submissions', NEW);
  await until(() => lines(RELOADED).length === 1);
  const { credentials, ...rest } = await config();
  await write({ ...rest, credentials: { submissions: credentials.submissions } });
  expect(await reload()).toBe(200);
  expect([await check(), await isWell(), lines(READABLE).length]).toEqual([WELL, 1, 1]);
  await put('submissions', OLD);
  await until(() => lines(RELOADED).length === 3);
  expect(lines(UNREADABLE)).toHaveLength(1);
});

test('a next version is withdrawn although another credential cannot be read', async () => {
  const folder = await makeFolder();
  const keyFile = join(folder, 'audit.key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const audit = { directory: join(folder, 'log'), keyFile, replica: 'r1' };
  const sealed = { file: join(folder, 's.age'), identity: { file: join(folder, 'id') } };
  await makeIdentity(sealed, new Date());
  for (const step of [setTo(new Secret(OLD), new Date()), setNext(new Secret(NEW), new Date())])
    await changeEntries(sealed, new SourceReader({ environment: {} }, sealed), ['s'], step);
  const submissions = { username: { value: 'demo-user' }, password: { sealed: 's' } };
  const { gateway, put, remove, lines, check } = await start(1, { audit, sealed }, { submissions });
  await remove('other');
  await until(() => lines(UNREADABLE).length === 1);
  const withdrawn = await post(`${gateway.control}/api/credentials/submissions/withdraw`, {}, OF_PROGRAM);
  expect(withdrawn).toMatchObject({ status: 200, json: { result: 'success', version: '2' } });
  expect((await check())[0]).toBe('degraded');

  // Without the sealed file its credentials stay, and the others change.
  await rm(sealed.file);
  await until(() => lines(UNREADABLE).length === 2);
  expect(lines(UNREADABLE)[1]?.['reason']).toMatch(
    /^sealed\.file: .*\ncredentials\.other\.password: [^\n]*$/,
  );
  const { length } = lines(RELOADED);
  await put('other', NEW);
  await until(() => lines(RELOADED).length > length);
  expect(lines(RELOADED)[length]).toMatchObject({ changed: ['credentials.other'] });
  expect((await fetch(`${gateway.origin}${authors}`)).status).toBe(200);
});
