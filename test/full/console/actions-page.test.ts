import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { parse } from 'yaml';
import { toPieces } from '../../../src/config/transfer.ts';
import { AUDIT_KEY, auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { builtConsole, type Look } from '../../support/browser.ts';
import { closing } from '../../support/closing.ts';
import { READ_TOKEN, signIn, TOKEN, TOKEN_HASHES } from '../../support/operator.ts';
import { checkLooks, LOOKS, usePages } from '../../support/pages.ts';
import { authors, openScene, type RunningScene } from '../../support/scene.ts';

const NAME = 'submissions';
const [OLD, NEW] = ['demo-api-key', 'another-api-key'];
const folderOf = useFolders();
const openPage = usePages();
const [PHONE, WIDE] = LOOKS;
let consoleFolder: string;

beforeAll(async () => {
  consoleFolder = await builtConsole();
});

interface Scene extends RunningScene {
  /** Folder of the audit log. */
  readonly log: string;
}

/** A gateway in front of the simulator, which accepts both versions of the credential. */
async function start(control: Record<string, unknown> = { actions: true }): Promise<Scene> {
  const folder = await folderOf();
  const keyFile = join(folder, 'audit.key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const log = join(folder, 'log');
  const pair = await openScene({
    behaviour: {
      accounts: [{ username: 'demo-user', password: OLD, otherPasswords: [NEW], sites: ['demo'] }],
    },
    credential: {
      username: { value: 'demo-user' },
      password: { value: OLD },
      next: { password: { value: NEW } },
    },
    top: {
      control: { port: 0, ...TOKEN_HASHES, ...control },
      audit: { directory: log, keyFile },
      clients: [
        {
          id: 'reporting',
          identify: { addresses: ['127.0.0.0/8'] },
          allow: [
            { deployment: NAME, methods: ['GET'] },
            { deployment: NAME, operations: ['none'] },
          ],
          limits: { rate: '50/s', daily: 1000, concurrent: 20 },
        },
      ],
    },
    settings: {
      operations: { none: { method: 'POST', path: '/api/none' } },
      digest: { attemptsWhenRefused: 60 },
    },
    audit: auditOptions(log),
    consoleFolder,
    consolePace: { sampleMs: 1_000, tickMs: 100 },
  });
  closing.push(pair.close);
  return { ...pair, log };
}

/** A page of the console in a session that this token opened. */
async function signedIn(scene: Scene, path: string, look: Look = WIDE, token = TOKEN) {
  const { page, pageErrors } = await openPage(look);
  const [name = '', value = ''] = (await signIn(scene.gateway.control, token)).split('=');
  await page.context().addCookies([{ name, value, url: scene.gateway.control }]);
  await page.goto(`${scene.gateway.control}/#${path}`);
  await page.getByText('live', { exact: true }).waitFor();
  return { page, pageErrors };
}

/** Presses a button, reads what the action will do, and confirms it. */
async function confirmed(page: Page, button: string): Promise<string> {
  await page.getByRole('button', { name: button, exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('listitem').first().waitFor();
  const effects = await dialog.getByRole('list').innerText();
  await dialog.getByRole('button', { name: 'Confirm' }).click();
  await dialog.waitFor({ state: 'detached' });
  return effects;
}

const actionsIn = async ({ log }: Scene): Promise<unknown[]> =>
  (await recordsIn(log)).filter(({ event }) => event === 'action').map(({ action, by }) => `${action} ${by}`);

describe('actions', () => {
  test('a version is promoted and rolled back, which the records and the upstream show', async () => {
    const scene = await start();
    const { page, pageErrors } = await signedIn(scene, '/actions');
    const effects = await confirmed(page, `Promote version 2 of ${NAME} at ${NAME}`);
    expect(effects).toMatch(/tests version 2 of submissions[\s\S]+Otherwise nothing changes/);
    await page.getByText('Version 2 of submissions is in use at submissions.').waitFor();
    await page.getByRole('row', { name: /^submissions 2 .*in use/ }).waitFor();
    scene.simulator.set(NAME, { accounts: [{ username: 'demo-user', password: NEW, sites: ['demo'] }] });
    expect((await scene.get(authors)).status).toBe(200);
    expect(scene.simulator.counts(NAME).refused['wrong-response']).toBe(0);
    scene.simulator.set(NAME, { accounts: [{ username: 'demo-user', password: OLD, sites: ['demo'] }] });
    await page.goto(`${scene.gateway.control}/#/deployments/${NAME}`);
    await confirmed(page, `Roll back to version 1 of ${NAME} at ${NAME}`);
    await page.getByText('Version 1 of submissions is in use at submissions.').waitFor();
    expect((await scene.get(authors)).status).toBe(200);
    expect(scene.simulator.counts(NAME).refused['wrong-response']).toBe(0);
    expect(await actionsIn(scene)).toEqual(['promote session', 'roll-back session']);
    expect(pageErrors).toEqual([]);
  });

  test('a refused credential is retried, and a next version of the configuration is not withdrawn here', async () => {
    const scene = await start();
    scene.simulator.set(NAME, { accounts: [{ username: 'demo-user', password: 'lost', sites: ['demo'] }] });
    expect((await scene.get(authors)).status).toBe(502);
    const { page, pageErrors } = await signedIn(scene, `/deployments/${NAME}`);
    await page.getByRole('button', { name: `Withdraw version 2 of ${NAME}` }).click();
    await page.getByText(`remove it there, and reload`).waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    scene.simulator.set(NAME, { accounts: [{ username: 'demo-user', password: OLD, sites: ['demo'] }] });
    const effects = await confirmed(page, `Retry ${NAME} now`);
    expect(effects).toMatch(/asks submissions with requests of its own/);
    await page.getByText('The credential is accepted again at submissions.').waitFor();
    await page.getByRole('row', { name: /^submissions 1 .*in use/ }).waitFor();
    expect((await scene.get(authors)).status).toBe(200);
    expect(await actionsIn(scene)).toEqual(['retry session']);
    // The browser notes the refusal.
    expect(pageErrors).toEqual([expect.stringContaining('status of 409')]);
  });

  test('reload and doctor show their results, and drain ends the gateway', async () => {
    const scene = await start();
    const { page } = await signedIn(scene, '/actions');
    await page.getByRole('button', { name: 'Reload' }).click();
    await page.getByRole('button', { name: 'Confirm' }).click();
    // This gateway was not started from a file.
    await page
      .getByRole('alert')
      .getByText(/not in a file/)
      .waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    scene.simulator.set(NAME, { accounts: [{ username: 'demo-user', password: OLD, sites: ['demo'] }] });
    await page.getByLabel('Deployment').selectOption(NAME);
    await confirmed(page, 'Run doctor');
    const result = page.getByRole('region', { name: 'Result of doctor' });
    // Wrong findings are shown, and the others after a click.
    await result.getByText(/submissions · credential · submissions \(next\)/).waitFor();
    expect(await result.innerText()).not.toMatch(/submissions · tls/);
    await result.getByText(/^\d+ checks ok$/).click();
    expect(await result.innerText()).toMatch(/ok\s+submissions · tls/);
    const asked = scene.gateway.app.drainRequested;
    const effects = await confirmed(page, 'Drain');
    expect(effects).toContain('supervisor');
    await page.getByText('The gateway is shutting down.').waitFor();
    await asked;
    expect(await actionsIn(scene)).toEqual(['reload session', 'doctor session', 'drain session']);
  });

  test('the dialog is used by keyboard: it begins at Cancel, Escape closes it, the button has the focus again; its result shows although it was closed, and goes with its page; a gateway that does not respond is told, and can be tried again', async () => {
    const scene = await start();
    const { page } = await signedIn(scene, '/actions');
    const drain = page.getByRole('button', { name: 'Drain' });
    await drain.focus();
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog');
    await page.getByRole('dialog', { name: 'Drain' }).getByRole('listitem').first().waitFor();
    const focused = () => page.evaluate('document.activeElement?.textContent');
    expect(await focused()).toBe('Cancel');
    await page.keyboard.press('Tab');
    expect(await focused()).toBe('Confirm');
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    expect(await focused()).toBe('Drain');
    expect(await actionsIn(scene)).toEqual([]);

    const held = Promise.withResolvers<void>();
    await page.route('**/confirm', async (route) => {
      await held.promise;
      await route.continue();
    });
    await page.getByRole('button', { name: 'Run doctor' }).click();
    await dialog.getByRole('listitem').first().waitFor();
    await dialog.getByRole('button', { name: 'Confirm' }).click();
    await dialog.getByRole('button', { name: 'Close' }).waitFor();
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    held.resolve();
    const result = page.getByRole('region', { name: 'Result of doctor' });
    await result.waitFor();
    await page.goto(`${scene.gateway.control}/#/deployments/${NAME}`);
    await page.getByRole('table', { name: 'Credentials' }).waitFor();
    // The page of actions, where the result is, has a table of that name, too.
    await result.waitFor({ state: 'detached' });

    await page.route('**/api/actions', (route) => route.abort());
    await page.goto(`${scene.gateway.control}/#/actions`);
    await page.getByRole('alert').getByText('The gateway is not reachable.').waitFor();
    await page.unroute('**/api/actions');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('button', { name: 'Run doctor' }).waitFor();
  });

  test('a session for reading, and a gateway without actions, tell why there are none', async () => {
    const scene = await start();
    const { page } = await signedIn(scene, '/actions', WIDE, READ_TOKEN);
    await page.getByText(/may only read/).waitFor();
    expect(await page.getByRole('main').getByRole('button').count()).toBe(0);
    const off = await start({});
    const without = await signedIn(off, '/actions');
    await without.page.getByText(/Actions are off/).waitFor();
    await without.page.goto(`${off.gateway.control}/#/deployments/${NAME}`);
    await without.page.getByRole('table', { name: 'Credentials' }).waitFor();
    expect(await without.page.getByRole('button', { name: /Promote/ }).count()).toBe(0);
  });
});

test('the form explains a request, and its address can be shared; the page of a client tells what it may do, uses and was refused', async () => {
  const scene = await start();
  const { page, pageErrors } = await signedIn(scene, '/policy');
  await page.getByLabel('Client').selectOption('reporting');
  await page.getByLabel('Target').fill(authors);
  await page.keyboard.press('Enter');
  await page.getByText('● allowed').waitFor();
  const main = page.getByRole('main');
  expect(await main.innerText()).toMatch(
    /Decided by\s+clients\[0\]\.allow\[0\][\s\S]+Sends\s+GET https[\s\S]+client reporting: 50 requests per second/,
  );
  const address = page.url();
  expect(address).toContain('client=reporting');
  await page.getByLabel('Method').selectOption('DELETE');
  await page.getByRole('button', { name: 'Explain' }).click();
  await page.getByText('■ refused: 403 client-forbidden').waitFor();
  expect(await main.innerText()).toContain('clients[0].allow');
  await page.goto('about:blank');
  await page.goto(address);
  await page.getByText('● allowed').waitFor();
  expect(await page.getByLabel('Target').inputValue()).toBe(authors);

  expect((await scene.get(authors)).status).toBe(200);
  expect((await scene.get(authors, { method: 'DELETE' })).status).toBe(403);
  await page.goto(`${scene.gateway.control}/#/clients`);
  await page.getByRole('link', { name: 'reporting' }).click();
  await page.getByRole('heading', { level: 1, name: 'reporting' }).waitFor();
  await main.getByText('1 of 1,000 requests, UTC').waitFor();
  expect(await main.innerText()).toMatch(/Recognised by\s+address 127\.0\.0\.0\/8/);
  await page.getByRole('row', { name: /clients\[0\]\.allow\[1\].*none POST \/api\/none/ }).waitFor();
  await page.getByRole('row', { name: /client-forbidden 1 .* may not use the method DELETE/ }).waitFor();
  expect(pageErrors).toEqual([]);
  await page.goto(`${scene.gateway.control}/#/clients/nobody`);
  await page.getByText('The configuration has no client of this name.').waitFor();
  // The browser notes the 404.
  expect(pageErrors).toEqual([expect.stringContaining('404')]);
});

test('listeners and the configuration in use are shown with defaults and without secrets, to those who may read', async () => {
  const scene = await start();
  const { page, pageErrors } = await signedIn(scene, '/configuration', WIDE, READ_TOKEN);
  const yaml = page.getByRole('region', { name: 'Configuration in use' }).locator('pre');
  await yaml.waitFor();
  const text = await yaml.innerText();
  expect(parse(text)).toMatchObject({
    readiness: 'gateway',
    control: { tokenSha256: '<secret>', readTokenSha256: '<secret>' },
    credentials: { [NAME]: { password: { value: '<secret>' } } },
    deployments: { [NAME]: { health: { failback: '30s' } } },
  });
  expect(text).not.toMatch(/demo-user|api-key/);
  const { setup, app } = scene.gateway;
  await app.reload(async () => {
    const source = {
      ...setup.source,
      config: toPieces({ ...(parse(text) as object), readiness: 'any-upstream' }),
    };
    return { ...setup, source };
  });
  await yaml.getByText('readiness: any-upstream').waitFor();
  await page.goto(`${scene.gateway.control}/#/workers`);
  const listeners = page.getByRole('table', { name: 'Listeners' });
  await listeners.waitFor();
  expect(await listeners.getByRole('row').allInnerTexts()).toEqual([
    expect.stringContaining('Listener'),
    expect.stringMatching(new RegExp(`^127\\.0\\.0\\.1:${scene.gateway.port}\\tnone\\t–\\t\\d+$`)),
  ]);
  expect(await page.getByRole('row', { name: `pid ${process.pid}` }).count()).toBe(1);
  expect(pageErrors).toEqual([]);
  expect((await fetch(`${scene.gateway.control}/api/configuration`)).status).toBe(401);
});

test('the pages fit and are accessible, the dialog too', async () => {
  const scene = await start();
  await scene.get(authors);
  await scene.get(authors, { method: 'DELETE' });
  const { page } = await signedIn(scene, '/actions', PHONE);
  await page.getByRole('button', { name: 'Run doctor' }).waitFor();
  await checkLooks(page);
  await confirmed(page, 'Run doctor');
  await page.getByRole('region', { name: 'Result of doctor' }).waitFor();
  await checkLooks(page);
  await page.getByRole('button', { name: 'Drain' }).click();
  await page.getByRole('dialog').getByRole('listitem').first().waitFor();
  await checkLooks(page);
  await page.keyboard.press('Escape');
  const target = encodeURIComponent(authors);
  await page.goto(`${scene.gateway.control}/#/policy?client=reporting&method=GET&target=${target}`);
  await page.getByText('● allowed').waitFor();
  await checkLooks(page);
  await page.goto(`${scene.gateway.control}/#/clients/reporting`);
  await page.getByRole('table', { name: 'Refusals' }).waitFor();
  await checkLooks(page);
  await page.goto(`${scene.gateway.control}/#/configuration`);
  await page.locator('pre').waitFor();
  await checkLooks(page);
});
