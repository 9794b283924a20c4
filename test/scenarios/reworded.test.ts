import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import type { Readiness } from '../../src/control/readiness.ts';
import type { Snapshot } from '../../src/control/view.ts';
import { WORDS } from '../../src/control/words.ts';
import { SetupSource } from '../../src/setup/setup.ts';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { AUDIT_KEY, useFolders } from '../support/audit-log.ts';
import { builtConsole } from '../support/browser.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { startGateway, writeConfig } from '../support/gateway.ts';
import { act, OF_PROGRAM, post, signIn, TOKEN, TOKEN_HASHES } from '../support/operator.ts';
import { LOOKS, usePages } from '../support/pages.ts';
import { startSimulator } from '../support/simulator.ts';

const folderOf = useFolders();
const openPage = usePages();
const NAME = 'submissions';
const VERSION = { deployment: NAME, credential: NAME };
const OTHER = 'other words';

/** Replaces every sentence of the views by the same words, until the end of the test: others share the module. */
function reword(words: Record<string, unknown>): void {
  const before = { ...words };
  closing.push(async () => void Object.assign(words, before));
  for (const [key, word] of Object.entries(before)) {
    if (typeof word === 'object') reword(word as Record<string, unknown>);
    else words[key] = typeof word === 'function' ? () => OTHER : OTHER;
  }
}

test('every action works whatever the words of the views', async () => {
  const folder = await folderOf();
  const { deployments } = defaultSettings();
  const simulator = await closedAtEnd(startSimulator({ deployments }));
  const { origin } = simulator.deployments.submissions;
  const file = await writeConfig(
    folder,
    { [NAME]: { origin, ca: simulator.ca } },
    {
      control: { port: 0, actions: true, ...TOKEN_HASHES },
      audit: { directory: join(folder, 'log'), keyFile: await keyIn(folder), replica: 'r1' },
      credentials: {
        [NAME]: {
          username: { value: 'demo-user' },
          password: { value: 'demo-api-key' },
          next: { password: { value: 'another-api-key' } },
        },
      },
    },
  );
  simulator.set(NAME, {
    accounts: [
      {
        username: 'demo-user',
        password: 'demo-api-key',
        otherPasswords: ['another-api-key'],
        sites: ['demo'],
      },
    ],
  });
  const source = new SetupSource(file, { environment: {} });
  const setup = await source.readAtStart();
  await using gateway = await startGateway(
    {},
    {},
    { read: { source, setup }, consoleFolder: await builtConsole() },
  );
  const { control, app } = gateway;
  const get = async (path: string) => (await fetch(`${control}${path}`, { headers: OF_PROGRAM })).json();
  const statuses = async (): Promise<string[]> => {
    const { deployments: shown } = (await get('/api/snapshot')) as Snapshot;
    const credentials = shown.flatMap((each) => each.credentials);
    expect(credentials.map(({ state }) => state)).toEqual([OTHER, OTHER]);
    return credentials.map(({ version, status }) => `${version} ${status}`);
  };
  reword(WORDS);

  expect(await statuses()).toEqual(['1 in-use', '2 candidate']);
  const promoted = await post(`${control}/api/credentials/${NAME}/promote`, {}, OF_PROGRAM);
  expect(promoted).toMatchObject({ status: 200, json: { version: '2' } });
  expect(await statuses()).toEqual(['2 in-use', '1 fallback']);
  const { page } = await openPage(LOOKS[0]);
  const [name = '', value = ''] = (await signIn(control, TOKEN)).split('=');
  await page.context().addCookies([{ name, value, url: control }]);
  await page.goto(`${control}/#/deployments/${NAME}`);
  await page.getByRole('button', { name: `Roll back to version 1 of ${NAME}` }).waitFor();
  expect(await page.getByRole('button', { name: /^Promote/ }).count()).toBe(0);
  expect(await act(control, { action: 'promote', ...VERSION, version: '2' })).toMatchObject({
    status: 409,
    json: { code: 'version-in-use' },
  });
  expect((await act(control, { action: 'roll-back', ...VERSION })).status).toBe(200);
  expect((await statuses()).toSorted()).toEqual(['1 in-use', '2 fallback']);

  const good = await readFile(file, 'utf8');
  await writeFile(file, 'listen: { port: x }');
  expect((await act(control, { action: 'reload' })).status).toBe(422);
  const refused = (await get('/readyz')) as Readiness;
  expect([refused.status, refused.checks.find(({ ok }) => !ok)]).toEqual([
    'degraded',
    { name: 'configuration', ok: false, detail: OTHER, state: 'degraded', next: OTHER },
  ]);
  // Tried again.
  await writeFile(file, good);
  expect((await act(control, { action: 'reload' })).status).toBe(200);
  expect(await get('/readyz')).toMatchObject({ status: 'ok' });

  expect((await act(control, { action: 'doctor', deployment: NAME })).status).toBe(200);
  expect((await act(control, { action: 'drain' })).status).toBe(200);
  await app.drainRequested;
});

async function keyIn(folder: string): Promise<string> {
  const keyFile = join(folder, 'audit.key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  return keyFile;
}
