import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from '@jest/globals';
import { parse, stringify } from 'yaml';
import { type ServedGateway, serveGateway } from '../../support/served-gateway.ts';
import { startPair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';

const ROUNDS_AT_MOST = 20;

const closing: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

const lines = ({ logged }: ServedGateway, msg: string): Record<string, unknown>[] =>
  logged.filter((line) => line['msg'] === msg);

const reloads = (gateway: ServedGateway) => lines(gateway, 'configuration reloaded');

/** How often a reload changed the deployment. */
const changes = (gateway: ServedGateway): number =>
  reloads(gateway).filter(({ changed }) => (changed as string[]).includes('deployments.upstream')).length;

/** Reads the configuration again. */
async function hangUp(gateway: ServedGateway, connections?: number): Promise<void> {
  if (connections !== undefined) {
    const config = parse(await readFile(gateway.configFile, 'utf8'));
    config.deployments.upstream.connections = connections;
    await writeFile(gateway.configFile, stringify(config));
  }
  process.kill(gateway.pid, 'SIGHUP');
}

test('a reload that is asked for as soon as the gateway is up is made', async () => {
  const { simulator } = await startPair();
  const { origin } = simulator.deployments.submissions;
  const gateway = await serveGateway({ origin, ca: simulator.ca });
  closing.push(() => gateway.close());
  await hangUp(gateway);
  await until(() => reloads(gateway).length === 1);
});

/** A gateway whose password is in this file. */
async function serve(): Promise<{ gateway: ServedGateway; file: string }> {
  const { simulator } = await startPair();
  const folder = await mkdtemp(join(tmpdir(), 'secrets-'));
  closing.push(() => rm(folder, { recursive: true }));
  const file = join(folder, 'password');
  await writeFile(file, 'password-0', { mode: 0o600 });
  const gateway = await serveGateway(
    { origin: simulator.deployments.submissions.origin, ca: simulator.ca },
    { credentials: { demo: { username: { value: 'demo-user' }, password: { file } } } },
  );
  closing.push(() => gateway.close());
  return { gateway, file };
}

test('a shutdown during a reload ends the process', async () => {
  const { gateway } = await serve();
  await hangUp(gateway);
  await gateway.close();
});

test('credentials that change while the configuration is read do not bring the old one back', async () => {
  const { gateway, file } = await serve();
  const noticed = () => lines(gateway, 'credentials changed: reloading').length;

  let overlaps = 0;
  let round = 0;
  for (; overlaps < 2 && round < ROUNDS_AT_MOST; round += 1) {
    // A watch begins with each reload, and looks soon.
    const { length } = reloads(gateway);
    await hangUp(gateway);
    await until(() => reloads(gateway).length > length);
    const [before, changed] = [noticed(), changes(gateway)];
    await writeFile(file, `password-${round + 1}`, { mode: 0o600 });
    await hangUp(gateway, 65 + round);
    await until(() => changes(gateway) > changed);
    if (noticed() > before) overlaps += 1;
  }
  expect(overlaps).toBe(2);
  // Reloads follow one another, so whatever came before this one is over.
  const { length } = reloads(gateway);
  await hangUp(gateway);
  await until(() => reloads(gateway).length > length);
  expect(changes(gateway)).toBe(round);
});
