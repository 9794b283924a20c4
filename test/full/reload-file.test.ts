import { createHash } from 'node:crypto';
import { readFile, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { parse, stringify } from 'yaml';
import type { Readiness } from '../../src/control/readiness.ts';
import type { Snapshot } from '../../src/control/view.ts';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { AUDIT_KEY, recordsIn, useFolders } from '../support/audit-log.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import {
  type ConfiguredGateway,
  metricOf,
  startConfiguredGateway,
  type TestDeployment,
  type TopLevel,
} from '../support/gateway.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { authors } from '../support/scene.ts';
import { startSimulator } from '../support/simulator.ts';
import { until } from '../support/until.ts';

const newFolder = useFolders();

const NAME = 'upstream';
const token = 'a-long-random-token';
const tokenSha256 = createHash('sha256').update(token).digest('hex');
const headers = { authorization: `Bearer ${token}` };

interface Config {
  readonly deployments: Record<string, Record<string, unknown>>;
  readonly [section: string]: unknown;
}

interface Scene<Gateway extends ConfiguredGateway = ConfiguredGateway> {
  readonly gateway: Gateway;
  readonly auditFolder: string;
  /** A folder for files that a test writes. */
  readonly folder: string;
  /** The configuration of the start, with changes of its deployment and other sections. */
  changed(deployment: object, sections?: object): Config;
  write(config: object): Promise<void>;
  post(): Promise<Response>;
  ready(): Promise<Readiness>;
  check(): Promise<Readiness['checks'][number] | undefined>;
  metric(name: string, labels?: Record<string, string>): Promise<number>;
  /** How many lines of the log have this message. */
  lines(msg: string): Record<string, unknown>[];
}

/** Starts a gateway in a process of its own, with these arguments. */
const startProcess = (args: readonly string[] = [], top: object = {}): Promise<Scene<GatewayProcess>> =>
  startWith((deployments, sections) => startGatewayProcess(deployments, { ...sections, ...top }, { args }));

const start = (options: { readonly watchFile?: boolean } = {}): Promise<Scene> =>
  startWith((deployments, sections) => startConfiguredGateway(deployments, sections, options));

async function startWith<Gateway extends ConfiguredGateway>(
  startOne: (deployments: Record<string, TestDeployment>, sections: TopLevel) => Promise<Gateway>,
): Promise<Scene<Gateway>> {
  const simulator = await closedAtEnd(startSimulator(defaultSettings()));
  const folder = await newFolder();
  const auditFolder = join(folder, 'audit');
  const keyFile = join(folder, 'key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const gateway = await startOne(
    { [NAME]: { origin: simulator.deployments.submissions.origin, ca: simulator.ca } },
    {
      control: { port: 0, tokenSha256 },
      audit: { directory: auditFolder, keyFile, replica: 'r1' },
    },
  );
  closing.push(() => gateway.close());
  const first: Config = parse(await readFile(gateway.configFile, 'utf8'));
  const ready = async () => (await (await fetch(`${gateway.control}/readyz`)).json()) as Readiness;
  return {
    gateway,
    auditFolder,
    folder,
    changed: (deployment, sections = {}) => ({
      ...first,
      deployments: { [NAME]: { ...first.deployments[NAME], ...deployment } },
      ...sections,
    }),
    write: (config) => writeFile(gateway.configFile, stringify(config)),
    post: () => fetch(`${gateway.control}/api/reload`, { method: 'POST', headers }),
    ready,
    check: async () => (await ready()).checks.find(({ name }) => name === 'configuration'),
    metric: (name, labels) => metricOf(gateway.control, `digest_gateway_${name}`, labels, headers),
    lines: (msg) => gateway.logged.filter((line) => line['msg'] === msg),
  };
}

const REFUSED = 'configuration refused; keeping the current one';
const RELOADED = 'configuration reloaded';

describe('POST /api/reload', () => {
  test('reloads the file, and tells and records what changed', async () => {
    const { write, changed, post, auditFolder, lines, metric } = await start();
    await write(changed({ connections: 7 }));
    const response = await post();
    expect([response.status, await response.json()]).toEqual([
      200,
      {
        result: 'success',
        changed: [`deployments.${NAME}`],
        needsRestart: [],
        warnings: [expect.stringContaining(`credentials.${NAME}.password`)],
      },
    ]);
    expect(lines(RELOADED)).toMatchObject([{ by: 'api', address: '127.0.0.1' }]);
    expect(await metric('config_reloads_total', { result: 'success' })).toBe(1);
    await until(async () => (await recordsIn(auditFolder)).some(({ event }) => event === 'reload'));
    expect((await recordsIn(auditFolder)).filter(({ event }) => event === 'reload')).toMatchObject([
      {
        kind: 'admin',
        result: 'success',
        by: 'api',
        address: '127.0.0.1',
        changed: [`deployments.${NAME}`],
      },
    ]);
  });

  test('a refusal is seen everywhere, with its reason and no secret, until a reload succeeds', async () => {
    const { gateway, write, changed, post, ready, check, metric, lines, auditFolder } = await start();
    const secret = 'hunter2-hunter2';
    await write(
      changed(
        { conections: 7 },
        { credentials: { [NAME]: { username: { value: 'demo-user' }, password: { valeu: secret } } } },
      ),
    );
    const response = await post();
    const place = `${gateway.configFile}:`;
    const issue = (path: string) =>
      expect.objectContaining({ file: gateway.configFile, line: expect.any(Number), path });
    const problem = (await response.json()) as Record<string, unknown>;
    expect([response.status, problem]).toEqual([
      422,
      {
        status: 422,
        title: 'Unprocessable Entity',
        detail: expect.stringContaining(place),
        issues: expect.arrayContaining([issue(`deployments.${NAME}.conections`)]),
      },
    ]);
    const wrong = await ready();
    expect(wrong.status).toBe('degraded');
    expect(await check()).toEqual({
      name: 'configuration',
      ok: false,
      detail: expect.stringMatching(/:\d+:\d+ .*conections/),
      state: 'degraded',
      next: 'remove the cause, and reload',
    });
    expect((await fetch(`${gateway.control}/readyz`)).status).toBe(200);
    expect(await metric('config_last_reload_successful')).toBe(0);
    expect(await metric('config_reloads_total', { result: 'failure' })).toBe(1);
    const snapshot = await (await fetch(`${gateway.control}/api/snapshot`, { headers })).json();
    const { gateway: view } = snapshot as Snapshot;
    expect(view).toMatchObject({
      state: 'degraded',
      problems: expect.arrayContaining([expect.objectContaining({ text: expect.stringContaining(place) })]),
    });
    expect(lines(REFUSED)).toMatchObject([
      { by: 'api', address: '127.0.0.1', reason: expect.stringContaining(place) },
    ]);
    await until(async () => (await recordsIn(auditFolder)).some(({ event }) => event === 'reload'));
    const records = await recordsIn(auditFolder);
    expect(records.filter(({ event }) => event === 'reload')).toMatchObject([
      { result: 'failure', by: 'api', address: '127.0.0.1' },
    ]);
    expect(JSON.stringify([problem, wrong, snapshot, gateway.logged, records])).not.toContain(secret);
    expect((await fetch(`${gateway.origin}${authors}`)).status).toBe(200);

    await write(changed({ connections: 7 }));
    expect((await post()).status).toBe(200);
    expect(await check()).toEqual({ name: 'configuration', ok: true, detail: '' });
    expect(await metric('config_last_reload_successful')).toBe(1);
  });

  test('names the keys that need a restart, until the file has the old values again', async () => {
    const { gateway, write, changed, post, ready, check, lines, auditFolder } = await start();
    await write(
      changed(
        {},
        {
          listen: { port: 1, hosts: ['gateway.internal'], limits: { connections: 100 } },
          redis: { url: 'redis://127.0.0.1:1' },
          audit: {
            directory: auditFolder,
            keyFile: join(auditFolder, '../key'),
            replica: 'r2',
            parameters: ['ids'],
          },
        },
      ),
    );
    const keys = ['listen.port', 'listen.limits.connections', 'redis', 'audit.replica'];
    expect(await (await post()).json()).toMatchObject({
      result: 'success',
      changed: ['listen', 'audit'],
      needsRestart: keys,
    });
    expect(lines('these keys change with a restart only')).toMatchObject([{ level: 'warn', keys }]);
    expect([(await ready()).status, await check()]).toEqual([
      'ok',
      {
        name: 'configuration',
        ok: true,
        detail: '',
        warning: expect.stringContaining(keys.join(', ')),
      },
    ]);
    const verbose = await (await fetch(`${gateway.control}/readyz?verbose`)).text();
    expect(verbose).toContain(`: ${keys.join(', ')}\n`);
    const { gateway: view } = (await (
      await fetch(`${gateway.control}/api/snapshot`, { headers })
    ).json()) as Snapshot;
    expect(view).toMatchObject({
      state: 'ok',
      problems: [expect.objectContaining({ text: expect.stringContaining('listen.port') })],
    });
    await write(changed({}));
    expect(await (await post()).json()).toMatchObject({ result: 'success', needsRestart: [] });
    expect(await check()).toEqual({ name: 'configuration', ok: true, detail: '' });
  });

  test('is refused while the gateway drains', async () => {
    const { gateway, write, changed, post, ready, lines } = await startProcess([], {
      drain: { delay: '1h' },
    });
    await write(changed({ connections: 7 }));
    process.kill(gateway.pid, 'SIGTERM');
    await until(async () => (await ready()).status === 'down');
    const response = await post();
    expect([response.status, await response.json()]).toMatchObject([409, { title: 'Conflict' }]);
    expect(lines(RELOADED)).toEqual([]);
  });

  test('requests at the same time reload one after the other', async () => {
    const { gateway, write, changed, post, lines } = await startProcess();
    await write(changed({ connections: 7 }));
    process.kill(gateway.pid, 'SIGHUP');
    const responses = await Promise.all(Array.from({ length: 5 }, post));
    const results = await Promise.all(
      responses.map(async (each) => (await each.json()) as { changed: string[] }),
    );
    await until(() => lines(RELOADED).length === 6);
    expect(
      lines(RELOADED)
        .map(({ by }) => by)
        .sort(),
    ).toEqual(['api', 'api', 'api', 'api', 'api', 'signal']);
    const changes = lines(RELOADED).filter(({ changed: names }) => (names as string[]).length > 0);
    expect(changes).toHaveLength(1);
    expect(results.filter(({ changed: names }) => names.length > 0).length).toBeLessThanOrEqual(1);
    expect((await fetch(`${gateway.origin}${authors}`)).status).toBe(200);
  });
});

describe('serve --watch', () => {
  test('reloads when the file changes, and not when it was reloaded by a signal', async () => {
    const { gateway, write, changed, lines } = await startProcess(['--watch']);
    await write(changed({ connections: 7 }));
    await until(() => lines(RELOADED).length === 1);
    expect(lines(RELOADED)).toMatchObject([{ by: 'watch', changed: [`deployments.${NAME}`] }]);
    await write(changed({ connections: 8 }));
    process.kill(gateway.pid, 'SIGHUP');
    await until(() => lines(RELOADED).length === 2);
    await write(changed({ connections: 9 }));
    await until(() => lines(RELOADED).some(({ by }, at) => at > 1 && by === 'watch'));
    // The watch may have been quicker than the signal.
    const watched = lines(RELOADED).filter(({ by }) => by === 'watch');
    expect(watched.every(({ changed: names }) => (names as string[]).length === 1)).toBe(true);
  });

  test('a file that is written slowly is in use when it is whole', async () => {
    const { gateway, write, changed, check, lines, metric } = await start({ watchFile: true });
    await truncate(gateway.configFile);
    await until(() => lines(REFUSED).length === 1);
    expect(await check()).toMatchObject({ ok: false });
    await write(changed({ connections: 7 }));
    await until(() => lines(RELOADED).length === 1);
    expect(await check()).toMatchObject({ ok: true });
    expect(await metric('config_last_reload_successful')).toBe(1);
  });

  test('a refusal ends when the missing file comes, and is told once until then', async () => {
    const { write, changed, folder, gateway, lines, metric } = await start({ watchFile: true });
    const { tls } = changed({}).deployments[NAME] ?? {};
    const ca = await readFile((tls as { caFile: string }).caFile);
    const caFile = join(folder, 'later.pem');
    await write(changed({ tls: { caFile } }));
    await until(() => lines(REFUSED).length === 1);
    await writeFile(caFile, ca);
    await until(() => lines(RELOADED).length === 1);
    expect(lines(REFUSED)).toHaveLength(1);
    expect(await metric('config_reloads_total', { result: 'failure' })).toBe(1);
    expect((await fetch(`${gateway.origin}${authors}`)).status).toBe(200);
  });

  test('changed credentials do not make a refused file right', async () => {
    const { gateway, write, changed, check, folder, lines } = await start({ watchFile: true });
    const file = join(folder, 'password');
    await writeFile(file, 'demo-api-key', { mode: 0o600 });
    const credentials = { [NAME]: { username: { value: 'demo-user' }, password: { file } } };
    await write(changed({}, { credentials }));
    await until(() => lines(RELOADED).length === 1);
    await write(changed({ conections: 7 }, { credentials }));
    await until(() => lines(REFUSED).length === 1);
    await writeFile(file, 'another');
    await until(() => lines(RELOADED).length === 2);
    expect(lines(RELOADED)[1]).toMatchObject({ by: 'credentials', changed: [`credentials.${NAME}`] });
    expect(await check()).toMatchObject({ ok: false, detail: expect.stringContaining(gateway.configFile) });
  });

  test('without it, a changed file waits for a signal', async () => {
    const { gateway, write, changed, lines } = await startProcess();
    await write(changed({ connections: 7 }));
    process.kill(gateway.pid, 'SIGHUP');
    await until(() => lines(RELOADED).length === 1);
    expect(lines(RELOADED)).toMatchObject([{ by: 'signal' }]);
  });

  test('a shutdown ends the watch', async () => {
    const { gateway } = await startProcess(['--watch']);
    await gateway.close();
    expect(await gateway.ended).toBe(0);
  });
});
