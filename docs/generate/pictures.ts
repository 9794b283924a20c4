/**
 * Makes the pictures of the console in docs/pictures/: `node docs/generate/pictures.ts [minutes]`. A gateway before the
 * simulator gets traffic for this time, so that the charts are full after 16 minutes; then Debian's Chromium takes the
 * pictures.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { load, startScene, startTraffic } from '../../lab/bench/console-scene.ts';
import { Secret } from '../../src/base/secret.ts';
import { builtConsole, openBrowser, openPage } from '../../test/support/browser.ts';

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

/** Files, pages, widths and themes. */
const PICTURES = [
  { file: 'console.png', path: '/', width: 1400, scheme: 'light' },
  { file: 'console-dark.png', path: '/', width: 1400, scheme: 'dark' },
  { file: 'console-deployment.png', path: '/deployments/submissions', width: 1400, scheme: 'light' },
  { file: 'console-deployment-dark.png', path: '/deployments/submissions', width: 1400, scheme: 'dark' },
  { file: 'console-phone.png', path: '/', width: 360, scheme: 'light' },
  { file: 'console-phone-dark.png', path: '/deployments/submissions', width: 360, scheme: 'dark' },
] as const;

const consoleFolder = await builtConsole();
const folder = await mkdtemp(join(tmpdir(), 'pictures-'));
const scene = await startScene({
  deployments: 6,
  consoleFolder,
  audit: {
    directory: folder,
    replica: 'pictures',
    key: new Secret(randomBytes(32).toString('hex')),
    durability: 'write',
    onFailure: 'refuse',
    parameters: ['ids', 'site_name'],
    segment: { size: 2 ** 28, age: 86_400_000, keep: 86_400_000 },
  },
  top: { anonymous: false, clients },
});
const { simulator, names, urlOf } = scene;
simulator.set('submissions', { nonceLifetimeMs: 60_000, testPaths: true });

/** Most requests succeed, some find nothing, and clients without a rule for reviews are refused. */
async function send(name: string): Promise<void> {
  const client = CLIENTS[Math.floor(Math.random() * CLIENTS.length)] ?? '';
  const chance = Math.random();
  const path = chance < 0.06 ? '/status/404' : chance < 0.08 ? '/status/503' : undefined;
  await load(urlOf(name, path), { 'x-api-key': keyOf(client) });
}

const traffic = names.map((name, index) => startTraffic(() => send(name), 200 + 250 * index));
const browser = await openBrowser();
try {
  await delay(minutes * 60_000);
  for (const { file, path, width, scheme } of PICTURES) {
    const { page } = await openPage(browser, { width, scheme });
    await page.goto(`${scene.gateway.control}/#${path}`);
    await page.getByText('live', { exact: true }).waitFor();
    await page.locator('.sparkline, .canvas canvas').first().waitFor();
    // A phone shows its first screen; the others show the whole page.
    if (width <= 400) await page.setViewportSize({ width, height: 760 });
    await page.screenshot({ path: join(docs, file), fullPage: width > 400 });
    await page.context().close();
  }
} finally {
  await Promise.all(traffic.map((each) => each.stop()));
  await browser.close();
  await scene.close();
  await rm(folder, { recursive: true });
}
