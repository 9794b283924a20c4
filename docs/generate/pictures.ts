/**
 * Makes the pictures of the console in docs/pictures/: `node docs/generate/pictures.ts [minutes]`. A gateway before the
 * simulator gets traffic for this time, so that the charts are full after 16 minutes; then Debian's Chromium takes the
 * pictures.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';
import { load, startScene, startTraffic } from '../../lab/bench/console-scene.ts';
import { Secret } from '../../src/base/secret.ts';
import type { RequestRow, SearchView } from '../../src/control/audit-view.ts';
import { builtConsole, openBrowser, openPage } from '../../test/support/browser.ts';
import { OF_PROGRAM, signIn, TOKEN, TOKEN_HASHES } from '../../test/support/operator.ts';

const minutes = Number(process.argv[2] ?? 16);
const docs = process.argv[3] ?? fileURLToPath(new URL('../pictures', import.meta.url));

const CLIENTS = ['reporting', 'archive-sync', 'editorial'];
const keyOf = (client: string): string => `${client}-key`;
const clients = CLIENTS.map((id) => ({
  id,
  identify: { apiKeySha256: createHash('sha256').update(keyOf(id)).digest('hex') },
  allow: [
    'submissions',
    'abstracts',
    'archive',
    'licences',
    'metadata',
    ...(id === 'editorial' ? ['reviews'] : []),
  ].map((deployment) => ({ deployment })),
  ...(id === 'archive-sync' && { limits: { rate: '5/s', burst: 20 } }),
}));

interface Picture {
  readonly file: string;
  /** `REQUEST`: the page of a request that waited for a challenge. */
  readonly path: string;
  readonly scheme: 'light' | 'dark';
  /** Brings the page to what the picture shows. */
  readonly prepare?: (page: Page) => Promise<void>;
}

const TARGET =
  '/submissions/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?ids=%27DEMO-2026-0001%27';
const EXPLAINED = new URLSearchParams({ client: 'reporting', method: 'GET', target: TARGET });

const WIDTH = 1400;

/** Files, pages and themes. */
const PICTURES: readonly Picture[] = [
  { file: 'console.png', path: '/', scheme: 'light' },
  { file: 'console-dark.png', path: '/', scheme: 'dark' },
  { file: 'console-deployment.png', path: '/deployments/submissions', scheme: 'light' },
  { file: 'console-deployment-dark.png', path: '/deployments/submissions', scheme: 'dark' },
  { file: 'console-map.png', path: '/map', scheme: 'light' },
  {
    file: 'console-search.png',
    path: '/audit?client=editorial&from=3s%20ago',
    scheme: 'light',
    prepare: async (page) => {
      await page.getByRole('table', { name: 'Results' }).getByRole('row').nth(1).waitFor();
    },
  },
  { file: 'console-request.png', path: 'REQUEST', scheme: 'light' },
  { file: 'console-policy.png', path: `/policy?${EXPLAINED}`, scheme: 'light' },
  {
    file: 'console-actions.png',
    path: '/actions',
    scheme: 'light',
    prepare: async (page) => {
      await page.getByRole('button', { name: 'Drain' }).click();
      await page.getByRole('dialog').getByRole('listitem').first().waitFor();
    },
  },
];

const consoleFolder = await builtConsole();
const folder = await mkdtemp(join(tmpdir(), 'pictures-'));
const key = randomBytes(32).toString('hex');
const keyFile = join(folder, 'key');
await writeFile(keyFile, key, { mode: 0o600 });
const directory = join(folder, 'log');
const scene = await startScene({
  deployments: 6,
  consoleFolder,
  audit: {
    directory,
    replica: 'pictures',
    key: new Secret(key),
    durability: 'write',
    onFailure: 'refuse',
    parameters: ['ids', 'site_name'],
    segment: { size: 2 ** 28, age: 86_400_000, keep: 86_400_000 },
  },
  top: {
    anonymous: false,
    clients,
    control: { port: 0, actions: true, ...TOKEN_HASHES },
    // Actions need one in the configuration; its values are those above.
    audit: { directory, keyFile },
  },
});
const { simulator, names, urlOf } = scene;
simulator.set('submissions', { nonceLifetimeMs: 60_000, testPaths: true });

/** Most requests succeed, some find nothing, and clients without a rule for reviews are refused. */
async function send(name: string): Promise<void> {
  const client = CLIENTS[Math.floor(Math.random() * CLIENTS.length)] ?? '';
  const chance = Math.random();
  const path = chance < 0.06 ? '/status/404' : chance < 0.08 ? '/status/503' : undefined;
  try {
    await load(urlOf(name, path), { 'x-api-key': keyOf(client) });
  } catch (error) {
    // On a slow machine the gateway may close an idle connection just as a request is sent.
    if (!(error instanceof TypeError)) throw error;
  }
}

/** The page of the latest request that waited for a challenge. */
async function requestPath(): Promise<string> {
  const response = await fetch(`${scene.gateway.control}/api/audit/search?limit=200&status=200`, {
    headers: OF_PROGRAM,
  });
  const { rows } = (await response.json()) as SearchView;
  const requests = rows.filter((row): row is RequestRow => row.kind === 'access');
  const { requestId, time } = requests.find(({ upstream }) => upstream?.challenged) ?? requests[0] ?? {};
  return `/requests/${requestId}?at=${time}`;
}

const traffic = names.map((name, index) => startTraffic(() => send(name), 200 + 250 * index));
const browser = await openBrowser();
try {
  await delay(minutes * 60_000);
  const { control } = scene.gateway;
  const [cookie = '', session = ''] = (await signIn(control, TOKEN)).split('=');
  for (const { file, path, scheme, prepare } of PICTURES) {
    const { page } = await openPage(browser, { width: WIDTH, scheme });
    await page.context().addCookies([{ name: cookie, value: session, url: control }]);
    await page.goto(`${control}/#${path === 'REQUEST' ? await requestPath() : path}`);
    await page.getByText('live', { exact: true }).waitFor();
    await page.locator('.sparkline, .canvas canvas, main .panel').first().waitFor();
    // Charts and searches come a moment later; the map has rates from the second tick on.
    await delay(7_000);
    await prepare?.(page);
    // The whole page, with its navigation at full height.
    const height = await page.evaluate('document.documentElement.scrollHeight');
    await page.setViewportSize({ width: WIDTH, height: Number(height) });
    await page.screenshot({ path: join(docs, file), fullPage: true });
    await page.context().close();
  }
} finally {
  await Promise.all(traffic.map((each) => each.stop()));
  await browser.close();
  await scene.close();
  await rm(folder, { recursive: true });
}
