import { execFile } from 'node:child_process';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { parse, stringify } from 'yaml';
import { useFolders } from '../../../support/audit-log.ts';
import { closedAtEnd, closing } from '../../../support/closing.ts';
import { type GatewayProcess, startGatewayProcess } from '../../../support/gateway-process.ts';
import { startScene } from '../../../support/scene.ts';
import { until } from '../../../support/until.ts';

const folder = useFolders();
const execute = promisify(execFile);

const lines = ({ logged }: GatewayProcess, msg: string): Record<string, unknown>[] =>
  logged.filter((line) => line['msg'] === msg);

const reloads = (gateway: GatewayProcess) => lines(gateway, 'configuration reloaded');

/** How often a reload changed the deployment. */
const changes = (gateway: GatewayProcess): number =>
  reloads(gateway).filter(({ changed }) => (changed as string[]).includes('deployments.upstream')).length;

/** Reads the configuration again. */
const hangUp = (gateway: GatewayProcess) => process.kill(gateway.pid, 'SIGHUP');

test('a reload right after the start is made', async () => {
  const { simulator } = await startScene();
  const { origin } = simulator.deployments.submissions;
  const gateway = await closedAtEnd(startGatewayProcess({ upstream: { origin, ca: simulator.ca } }));
  hangUp(gateway);
  await until(() => reloads(gateway).length === 1);
});

/** A gateway whose password is in this file. */
async function serve(): Promise<{ gateway: GatewayProcess; file: string }> {
  const { simulator } = await startScene();
  const file = join(await folder(), 'password');
  await writeFile(file, 'password-0', { mode: 0o600 });
  const gateway = await startGatewayProcess(
    { upstream: { origin: simulator.deployments.submissions.origin, ca: simulator.ca } },
    { credentials: { upstream: { username: { value: 'demo-user' }, password: { file } } } },
  );
  closing.push(() => gateway.close());
  return { gateway, file };
}

test('a shutdown during a reload ends the process', async () => {
  const { gateway } = await serve();
  hangUp(gateway);
  await gateway.close();
});

test('a changed password with white space at an end is a warning that does not quote it', async () => {
  const { gateway, file } = await serve();
  await writeFile(file, 'hunter2 \n', { mode: 0o600 });
  const warning =
    'credentials.upstream.password: has white space at an end: all of it is the password; remove what does not belong to it';
  await until(() => lines(gateway, warning).length === 1);
  await until(() => reloads(gateway).length === 1);
  expect(JSON.stringify(gateway.logged)).not.toContain('hunter2');
});

test('credentials that change while a configuration is read do not restore the old one', async () => {
  const { gateway, file } = await serve();
  const config = parse(await readFile(gateway.configFile, 'utf8'));
  config.deployments.upstream.connections = 65;
  // Reading a pipe lasts until it is written, so that the credentials change in between.
  const pipe = `${gateway.configFile}.pipe`;
  await execute('mkfifo', [pipe]);
  await rename(pipe, gateway.configFile);
  hangUp(gateway);
  await writeFile(file, 'password-1', { mode: 0o600 });
  await until(() => lines(gateway, 'credentials changed: reloading').length === 1);
  await writeFile(gateway.configFile, stringify(config));
  await until(() => changes(gateway) >= 1);
  await rm(gateway.configFile);
  await writeFile(gateway.configFile, stringify(config));
  // Reloads follow one another, so whatever came before this one is over.
  const { length } = reloads(gateway);
  hangUp(gateway);
  await until(() => reloads(gateway).length > length);
  expect(changes(gateway)).toBe(1);
});
