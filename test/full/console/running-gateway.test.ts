import { createHash } from 'node:crypto';
import { renameSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { auditOptions, useFolders } from '../../support/audit-log.ts';
import { builtConsole } from '../../support/browser.ts';
import { closedAtEnd } from '../../support/closing.ts';
import { setupFor } from '../../support/gateway.ts';
import { startLoad } from '../../support/load.ts';
import { usePages } from '../../support/pages.ts';
import { startRedis } from '../../support/redis.ts';
import { redisOptions, single } from '../../support/redis-store.ts';
import { authors, type RunningScene, type SceneOptions, startScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const folder = useFolders();
const openPage = usePages();
let consoleFolder: string;

beforeAll(async () => {
  consoleFolder = await builtConsole();
});

/** A gateway before the simulator, and the page of its deployment in a browser, which has nothing to complain of. */
async function watch(
  options: SceneOptions,
  act: (pair: RunningScene, page: Page) => Promise<void>,
): Promise<void> {
  // Requests are shown for twelve samples, in which a busy browser has to show them once.
  const consolePace = { sampleMs: 3_000, tickMs: 100 };
  const pair = await startScene({ ...options, consoleFolder, consolePace });
  const { page, pageErrors } = await openPage({ width: 1400, scheme: 'light' });
  await page.goto(`${pair.gateway.control}/#/deployments/submissions`);
  await page.getByText('live', { exact: true }).waitFor();
  await act(pair, page);
  await page.close();
  expect(pageErrors).toEqual([]);
}

const CLIENTS = ['reporting', 'archive'].map((id) => ({
  id,
  identify: { apiKeySha256: createHash('sha256').update(`${id}-key`).digest('hex') },
  allow: id === 'reporting' ? [{ deployment: 'submissions' }] : [],
}));

/** One thing that is told of the deployment. */
function fact(page: Page, term: string, text: RegExp) {
  return card(page)
    .locator('dl > div')
    .filter({ hasText: new RegExp(`^${term}`) })
    .getByText(text);
}

/** A row of one of the page's tables. */
function row(page: Page, table: string, name: RegExp) {
  return page.getByRole('table', { name: table }).getByRole('row', { name });
}

/** A line of the banner. */
function problem(page: Page, text: RegExp) {
  return page.getByRole('region', { name: 'Problems now' }).getByRole('listitem').filter({ hasText: text });
}

function card(page: Page) {
  return page.getByRole('main', { name: 'submissions' });
}

/** Goes to another page by the navigation bar. */
async function open(page: Page, name: string): Promise<void> {
  await page.getByRole('navigation').getByRole('link', { name }).click();
}

/** The age of the nonce in seconds, as the page shows it. */
async function nonceAge(page: Page): Promise<number> {
  return Number.parseInt((await fact(page, 'Age', /^\d+ s old$/).textContent()) ?? '', 10);
}

test('traffic: rates, latency, the nonce and the credential', () =>
  watch({}, async (pair, page) => {
    await card(page).getByText('● ok').first().waitFor();
    // Rates are those of the last seconds, which are over before a slow browser shows them all.
    const load = startLoad([pair.gateway.origin]);
    await fact(page, 'Requests', /^[0-9.]*[1-9][0-9.]* per second/).waitFor();
    await fact(page, 'Latency', /^p50 [0-9.]+ ms, p95 [0-9.]+ ms, p99 [0-9.]+ ms$/).waitFor();
    await card(page)
      .getByText(/^[1-9]\d* requests? in the last .*: none failed\.$/)
      .waitFor();
    const { answers, failures } = await load.end();
    expect(failures).toEqual([]);
    await fact(page, 'Age', /^\d+ s old$/).waitFor();
    await fact(page, 'Policy', /^shared: used concurrently$/).waitFor();
    await fact(page, 'Connections', /^\d+ open, 0 busy, 64 at most$/).waitFor();
    await row(page, 'Credentials', /^submissions 1 \(current\) in use/).waitFor();
    await row(page, 'Addresses', /^127\.0\.0\.1:\d+ ● ok \d+ s closed$/).waitFor();
    // The page asks for certificates rarely; it may have done so before there was a connection.
    await page.reload();
    await row(page, 'Certificates', /^CN=Simulator CN=Simulator CA /).waitFor();
    await open(page, 'Clients');
    await page
      .getByRole('row', { name: /^anonymous/ })
      .locator('[data-label="Total"]')
      .getByText(answers.toLocaleString('en-US'), { exact: true })
      .waitFor();
  }));

test('an upstream that is gone: down, why, and what to do', () =>
  watch({}, async (pair, page) => {
    await pair.get(authors);
    await pair.simulator.close();
    for (let count = 0; count < 3; count += 1) expect((await pair.get(authors)).status).toBe(502);
    await card(page)
      .getByText(/3 of 4 requests in the last .* failed: Upstream unreachable \(3\)\./)
      .waitFor();
    await problem(page, /^■ down submissions: /).waitFor();
    await fact(page, 'Errors', /^[0-9.]*[1-9][0-9.]* per second/).waitFor();
    await open(page, 'Overview');
    const fault = page.getByRole('region', { name: 'Recent errors' }).getByRole('listitem');
    await fault.getByText('submissions: Upstream unreachable').waitFor();
    await fault.getByText(/^3 times, /).waitFor();
  }));

test('an upstream that never was there: every request failed', () =>
  watch({}, async (pair, page) => {
    await pair.simulator.close();
    await pair.get(authors);
    await card(page).getByText('■ down').first().waitFor();
    await card(page)
      .getByText(/Every request of the last .* failed: Upstream unreachable \(1\)\.$/)
      .waitFor();
  }));

test('outcomes: how often in the last minute, and a pause', () => {
  const outcomes = [
    { name: 'throttled', status: 400, bodyContains: 'Too many calls', pause: '1h' },
    { name: 'maintenance', status: 503 },
  ];
  return watch({ settings: { outcomes } }, async (pair, page) => {
    await fact(page, 'Outcomes', /^throttled 0, maintenance 0 in the last minute$/).waitFor();
    pair.simulator.set('submissions', { faults: [{ kind: 'throttle' }] });
    expect([(await pair.get(authors)).status, (await pair.get(authors)).status]).toEqual([400, 503]);
    await fact(page, 'Outcomes', /^throttled 1, maintenance 0 in the last minute$/).waitFor();
    await card(page)
      .getByText(
        /^Paused until .*Z, by outcome throttled\. 1 of 2 requests .* failed: Upstream paused \(1\)\.$/,
      )
      .waitFor();
    await problem(page, /^▲ degraded submissions$/).waitFor();
  });
});

test('an expired nonce: a challenge, and a young nonce in use', () =>
  watch({}, async (pair, page) => {
    await pair.get(authors);
    await fact(page, 'Challenges', /^[0-9.]*[1-9][0-9.]* per second$/).waitFor();
    await fact(page, 'Challenges', /^0 per second$/).waitFor();
    await fact(page, 'Age', /^[1-9]\d* s old$/).waitFor();
    const before = await nonceAge(page);
    pair.simulator.reset('submissions');
    expect((await pair.get(authors)).status).toBe(200);
    await fact(page, 'Challenges', /^[0-9.]*[1-9][0-9.]* per second$/).waitFor();
    await until(async () => (await nonceAge(page)) < before);
  }));

test('a refused credential: down, and the circuit is open', () =>
  watch({ password: 'wrong' }, async (pair, page) => {
    expect((await pair.get(authors)).status).toBe(502);
    await card(page).getByText('■ down').first().waitFor();
    await card(page)
      .getByText(/^The upstream refuses the credential submissions\./)
      .waitFor();
    await row(page, 'Credentials', /^submissions 1 \(current\) refused: tried twice a minute only/).waitFor();
    await problem(page, /^■ down submissions: /).waitFor();
  }));

test('a refused client: what was refused, and how often', () =>
  watch({ top: { anonymous: false, clients: CLIENTS } }, async (pair, page) => {
    const ask = (key: string) => pair.get(authors, { headers: { 'x-api-key': key } });
    for (let count = 0; count < 3; count += 1) expect((await ask('archive-key')).status).toBe(403);
    expect((await ask('nobody-key')).status).toBe(401);
    await card(page).getByText('● ok').first().waitFor();
    await open(page, 'Clients');
    await page
      .getByRole('row', { name: /^archive/ })
      .getByText('client-forbidden 3')
      .waitFor();
    await page
      .getByRole('row', { name: /^unknown/ })
      .getByText('client-unknown 1')
      .waitFor();
    await page
      .getByRole('row', { name: /^reporting/ })
      .getByText('none')
      .waitFor();
  }));

test('an upstream that cannot be reached: failing, with the circuit open', () =>
  watch(
    {
      behaviour: { tls: 'expired' },
      settings: { health: { interval: '100ms' }, circuit: { minimum: 2 } },
    },
    async (pair, page) => {
      await row(page, 'Addresses', /^127\.0\.0\.1:\d+ ■ down \d+ s /).waitFor();
      await card(page).getByText('■ down').first().waitFor();
      await card(page).getByText('its certificate has expired').first().waitFor();
      for (let count = 0; count < 2; count += 1) expect((await pair.get(authors)).status).toBe(502);
      await row(page, 'Addresses', /(?:half-)?open: one request at a time, until it responds$/).waitFor();
    },
  ));

test('a refused reload stands in the banner of every page with its reason, until one is accepted; then deployments come and go', () =>
  watch({}, async (pair, page) => {
    await card(page).waitFor();
    const { setup, app } = pair.gateway;
    const { origin } = pair.simulator.deployments.submissions;
    await app.reload(() => setupFor({ submissions: { origin, settings: { connections: 0 } } }));
    const refused = problem(
      page,
      /^▲ degraded The new configuration is refused, .* deployments\.submissions\.connections/,
    );
    await refused.waitFor();
    await open(page, 'Clients');
    await refused.waitFor();
    await app.reload(async () => setup);
    await page.getByRole('region', { name: 'Problems now' }).waitFor({ state: 'detached' });

    // A request of the page about a deployment that is gone fails.
    await Promise.all([
      page.waitForResponse('**/api/deployments/submissions'),
      page.waitForResponse('**/api/history?*'),
      page.goBack(),
    ]);
    await card(page).waitFor();
    const { submissions } = setup.config.deployments;
    if (submissions === undefined) throw new Error('the pair has no such deployment');
    const renamed = { ...submissions, match: { pathPrefix: '/renamed/' } };
    await app.reload(async () => ({ ...setup, config: { ...setup.config, deployments: { renamed } } }));
    await page.getByText('The gateway has no deployment of this name.').waitFor();
    await open(page, 'Overview');
    await page.getByRole('row', { name: /^renamed/ }).waitFor();
    expect(await page.getByRole('table', { name: 'Deployments' }).getByText('submissions').count()).toBe(0);
  }));

test('the audit log: each answer as it leaves, and that its chain holds; while it cannot be written, that stands in the banner', async () => {
  const directory = join(await folder(), 'audit');
  const audit = auditOptions(directory);
  await watch({ audit }, async (pair, page) => {
    expect((await pair.get(authors)).status).toBe(200);
    await open(page, 'Audit');
    const log = page.getByRole('main', { name: 'Audit' });
    await log.getByText(/^Chain intact: the newest segment was verified at the start/).waitFor();
    await log.getByText(/^[2-9] records since the start, 0 not written\.$/).waitFor();
    await log.getByRole('row', { name: /anonymous submissions GET \/api\/manuscripts.* 200$/ }).waitFor();
    // A file in the place of the folder keeps the log from beginning another one.
    await writeFile(`${directory}-file`, '');
    renameSync(directory, `${directory}-away`);
    renameSync(`${directory}-file`, directory);
    await until(async () => (await pair.get(authors)).status === 503);
    await problem(page, /^■ down The audit log cannot be written: /).waitFor();
    await rm(directory);
    await until(async () => (await pair.get(authors)).status === 200);
    await problem(page, /audit log/).waitFor({ state: 'detached' });
  });
});

test('a Redis that is gone stands in the banner, until it is back', async () => {
  const redis = await closedAtEnd(startRedis());
  await watch({ redis: redisOptions(single(redis.port)) }, async (pair, page) => {
    expect((await pair.get(authors)).status).toBe(200);
    await redis.kill();
    await problem(page, /^▲ degraded Redis is unreachable \(.*\): nonces are not shared/).waitFor();
    await redis.restart();
    await page.getByRole('region', { name: 'Problems now' }).waitFor({ state: 'detached' });
  });
});
