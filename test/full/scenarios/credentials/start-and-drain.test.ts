import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { SetupSource } from '../../../../src/setup/setup.ts';
import { defaultSettings } from '../../../../src/simulator/settings.ts';
import { useFolders } from '../../../support/audit-log.ts';
import { closedAtEnd } from '../../../support/closing.ts';
import { startGateway, writeConfig } from '../../../support/gateway.ts';
import { startScene } from '../../../support/scene.ts';
import { authors, startSimulator } from '../../../support/simulator.ts';
import { until } from '../../../support/until.ts';

const newFolder = useFolders();

/** A password in a file, and accounts of the upstream that have another one. */
async function setPassword() {
  const folder = await newFolder();
  const file = join(folder, 'password');
  const write = (password: string): Promise<void> => writeFile(file, password, { mode: 0o600 });
  await write('one');
  return {
    folder,
    write,
    credential: { username: { value: 'demo-user' }, password: { file } },
    accountsWith: (password: string) => [{ username: 'demo-user', password, sites: ['demo'] }],
  };
}

async function status(origin: string): Promise<number> {
  const response = await fetch(`${origin}${authors}`, { headers: { connection: 'close' } });
  await response.arrayBuffer();
  return response.status;
}

test('a gateway that starts during a rotation is ready with the new secret', async () => {
  const { folder, write, credential, accountsWith } = await setPassword();
  const simulator = await closedAtEnd(startSimulator(defaultSettings()));
  const { origin } = simulator.deployments.submissions;
  const top = { credentials: { submissions: credential } };
  const file = await writeConfig(folder, { submissions: { origin, ca: simulator.ca } }, top);
  const uid = process.geteuid?.();
  const source = new SetupSource(file, { environment: {}, ...(uid !== undefined && { uid }) });
  const setup = await source.readAtStart();
  await write('two');
  simulator.set('submissions', { accounts: accountsWith('two') });
  await using gateway = await startGateway({}, {}, { read: { source, setup } });
  expect(await status(gateway.origin)).toBe(200);
});

test.each([1, 2])('a gateway that drains takes a new secret, with %i workers', async (workers) => {
  const { write, credential, accountsWith } = await setPassword();
  const scene = await startScene({
    workers,
    behaviour: { accounts: accountsWith('one') },
    top: { credentials: { submissions: credential }, drain: { delay: '1h', timeout: '20s' } },
  });
  const { gateway, simulator } = scene;
  expect(await status(gateway.origin)).toBe(200);
  process.kill(gateway.pid, 'SIGTERM');
  await until(async () => (await fetch(`${gateway.control}/readyz`)).status === 503);
  await write('two');
  simulator.set('submissions', { accounts: accountsWith('two') });
  await until(() => gateway.logged.some(({ msg }) => msg === 'configuration reloaded'));
  expect(await status(gateway.origin)).toBe(200);
});
