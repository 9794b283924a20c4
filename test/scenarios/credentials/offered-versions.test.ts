import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { pino } from 'pino';
import { parse, stringify } from 'yaml';
import { Reloads } from '../../../src/app/reloads.ts';
import { noAudit } from '../../../src/audit/audit.ts';
import { NO_FORMER } from '../../../src/control/state.ts';
import { Metrics } from '../../../src/metrics/metrics.ts';
import { type AppSetup, SetupSource } from '../../../src/setup/setup.ts';
import { useFolders } from '../../support/audit-log.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { setupFor, startGateway, writeConfig } from '../../support/gateway.ts';
import { until } from '../../support/until.ts';

const ORIGIN = 'https://a.example.org';

const folderOf = useFolders();

interface Activated {
  readonly settled: Promise<void>;
}

/** Reloads of a gateway whose passwords are in files; `activate` takes a setup in use, or throws. */
async function watching(activate: (setup: AppSetup) => Activated | Promise<Activated>) {
  const folder = await folderOf();
  const secret = join(folder, 'secret');
  const other = join(folder, 'other');
  for (const path of [secret, other]) await writeFile(path, 'one', { mode: 0o600 });
  const from = (path: string) => ({ username: { value: 'me' }, password: { file: path } });
  const file = await writeConfig(
    folder,
    { a: { origin: ORIGIN } },
    { credentials: { a: from(secret), b: from(other) } },
  );
  const source = new SetupSource(file, { environment: {} });
  const logged: Record<string, unknown>[] = [];
  const setup = await source.readAtStart();
  const flightFiles: { folder: string | undefined } = { folder: undefined };
  const reloads = new Reloads(setup, {
    source,
    watchFile: false,
    log: pino({}, { write: (line: string) => logged.push(JSON.parse(line)) }),
    metrics: new Metrics({ version: 'test', node: 'v0' }),
    audit: noAudit,
    flightFiles,
    serviceManager: undefined,
    workers: {
      activate: async (next) => ({ changed: [], ...(await activate(next)) }),
      renewTls: () => {},
      states: async () => ({ states: [], former: NO_FORMER, primary: null }),
    },
  });
  closing.push(() => reloads.close());
  reloads.start();
  const refused = 'configuration refused; keeping the current one';
  return {
    file,
    flightFiles,
    reloads,
    rotate: (content: string) => writeFile(secret, content),
    other,
    refusals: () => logged.filter(({ msg }) => msg === refused).length,
  };
}

const versionOf = ({ credentials }: AppSetup, name = 'a') => credentials.get(name)?.current.version;

test('a credential that cannot be read keeps the version that another reload has brought meanwhile', async () => {
  const activated = Promise.withResolvers<void>();
  const seen: (string | undefined)[][] = [];
  const { reloads, rotate, other } = await watching(async (setup) => {
    seen.push([versionOf(setup), versionOf(setup, 'b')]);
    await activated.promise;
    return { settled: Promise.resolve() };
  });
  await writeFile(other, 'two');
  await until(() => seen.length === 1);
  await rm(other);
  await rotate('two');
  const read = reloads.readCredentials();
  await until(() => reloads.state.unreadable !== null);
  activated.resolve();
  await read;
  expect(seen).toEqual([
    ['1', '2'],
    ['2', '2'],
  ]);
});

test('a rotated secret whose activation fails is activated again until it is in use', async () => {
  const seen: (string | undefined)[] = [];
  const { reloads, rotate, refusals } = await watching((setup) => {
    seen.push(versionOf(setup));
    if (seen.length < 3) throw new Error('a worker has ended');
    return { settled: Promise.resolve() };
  });
  await rotate('two');
  await until(() => reloads.state.refused === null && seen.length === 3);
  expect(seen).toEqual(['2', '2', '2']);
  // Logged once, not at each attempt.
  expect(refusals()).toBe(1);
  await rotate('three');
  await until(() => seen.length === 4);
  expect(seen[3]).toBe('3');
});

test('a rotated secret whose activation failed is refused no more once the one before is put back', async () => {
  let fails = true;
  const seen: (string | undefined)[] = [];
  const { reloads, rotate, refusals } = await watching((setup) => {
    if (fails) throw new Error('a worker has ended');
    seen.push(versionOf(setup));
    return { settled: Promise.resolve() };
  });
  await rotate('two');
  await until(() => refusals() === 1);
  fails = false;
  await rotate('one');
  await until(() => reloads.state.refused === null);
  expect(seen.at(-1)).toBe('1');
});

test('a rotated secret that was offered to some deployments only is activated again', async () => {
  const seen: (string | undefined)[] = [];
  const { rotate } = await watching((setup) => {
    seen.push(versionOf(setup));
    return { settled: seen.length === 1 ? Promise.reject(new Error('no room')) : Promise.resolve() };
  });
  await rotate('two');
  await until(() => seen.length === 2);
  expect(seen).toEqual(['2', '2']);
});

test('a configuration that is prepared and abandoned leaves no credential behind', async () => {
  const settings = { siteParameter: 'site', credential: undefined, sites: { one: { credential: 'a' } } };
  const gateway = await closedAtEnd(startGateway({ a: { origin: ORIGIN, settings } }));
  const more = { ...settings, sites: { ...settings.sites, two: { credential: 'b' } } };
  const b = { username: { value: 'b' }, password: { value: 'secret' } };
  const next = await setupFor({ a: { origin: ORIGIN, settings: more } }, { credentials: { b } });
  const credentials = async (): Promise<string[]> => {
    const { deployments } = await gateway.plane.state();
    return deployments.flatMap((each) => each.credentials.map(({ credential }) => credential));
  };
  const prepared = await gateway.plane.prepare(next);
  expect(await credentials()).toEqual(['a', 'b']);
  gateway.plane.abandon(prepared);
  expect(await credentials()).toEqual(['a']);
});

test('a reload moves the flight records of a process without a data plane, too', async () => {
  const { file, flightFiles, reloads } = await watching(() => ({ settled: Promise.resolve() }));
  const config = parse(await readFile(file, 'utf8'));
  await writeFile(file, stringify({ ...config, log: { flightRecords: '/var/flights' } }));
  expect(await reloads.reload(undefined, { by: 'signal' })).toMatchObject({ result: 'success' });
  expect(flightFiles.folder).toBe('/var/flights');
});
