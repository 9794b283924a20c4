/**
 * Measures the console: `node lab/bench/console.ts [minutes] [deployments]`, 10 minutes and 200 deployments unless
 * given. A gateway in front of the simulator with traffic, its page in Chromium at three times its pace: the size of
 * what it loads, the time to its first paint and to its table, the heap, nodes and listeners of the page after
 * collecting, alternating between overview and a deployment, the gateway's CPU time and memory, and the memory of
 * full histories.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { gzipSync } from 'node:zlib';
import { CONSOLE_PACE } from '../../src/control/console.ts';
import { Histories } from '../../src/control/history.ts';
import { noTotals } from '../../src/control/totals.ts';
import { builtConsole, openBrowser, openPage } from '../../test/support/browser.ts';
import { load, startScene, startTraffic } from './console-scene.ts';

const FASTER = 3;
const LOADS = 5;
/** Samples of a day and a half. */
const SAMPLES = 26_000;
const minutes = Number(process.argv[2] ?? 10);
const deployments = Number(process.argv[3] ?? 200);

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

tellMemoryOfHistories();
const consoleFolder = await builtConsole();
tellSize(consoleFolder);
const scene = await startScene({
  deployments,
  consoleFolder,
  consolePace: { sampleMs: CONSOLE_PACE.sampleMs / FASTER, tickMs: CONSOLE_PACE.tickMs / FASTER },
});
const { gateway, names, urlOf } = scene;
const traffic = startTraffic(async () => {
  const name = names[Math.floor(Math.random() * names.length)] ?? '';
  await load(urlOf(name, Math.random() < 0.1 ? '/status/404' : undefined));
}, 20);

const browser = await openBrowser();
try {
  console.log(`CPU of the process with nobody looking: ${await cpuShare(10_000)} %`);
  await tellPaint();
  const { page, pageErrors } = await openPage(browser, { width: 1400, scheme: 'light' });
  await page.goto(gateway.control);
  await page.getByText('live', { exact: true }).waitFor();
  console.log(`CPU of the process with one console, ${FASTER} ticks a second: ${await cpuShare(10_000)} %`);
  const inspector = await page.context().newCDPSession(page);
  console.log('minutes of a console | heap KB | nodes | listeners | gateway MiB');
  for (let passed = 0; passed <= minutes; passed += 0.5) {
    await page.goto(`${gateway.control}/#/deployments/${names[0]}`);
    await page.locator('.canvas canvas').first().waitFor();
    await delay(10_000);
    await page.goto(`${gateway.control}/#/`);
    await page.locator('.sparkline').first().waitFor();
    await inspector.send('HeapProfiler.collectGarbage');
    const { usedSize } = await inspector.send('Runtime.getHeapUsage');
    const { nodes, jsEventListeners } = await inspector.send('Memory.getDOMCounters');
    const resident = Math.round(process.memoryUsage.rss() / 2 ** 20);
    console.log(
      [passed * FASTER, Math.round(usedSize / 1024), nodes, jsEventListeners, resident].join(' | '),
    );
    await delay(20_000);
  }
  console.log(`errors of the page: ${pageErrors.length === 0 ? 'none' : pageErrors.join('; ')}`);
} finally {
  await traffic.stop();
  await browser.close();
  await scene.close();
}

function tellSize(folder: string): void {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((file) => file.isFile());
  const sizes = files.map(({ parentPath, name }) => {
    const content = readFileSync(join(parentPath, name));
    return [content.length, gzipSync(content).length] as const;
  });
  const sum = (index: 0 | 1): string =>
    (sizes.reduce((total, size) => total + size[index], 0) / 1000).toFixed(1);
  console.log(`size of all files: ${sum(0)} KB, with gzip ${sum(1)} KB`);
}

/** Each load is in a browser context of its own, so that nothing is cached. */
async function tellPaint(): Promise<void> {
  for (let count = 0; count < LOADS; count += 1) {
    const { page } = await openPage(browser, { width: 1400, scheme: 'light' });
    await page.goto(gateway.control);
    await page.locator('tbody tr').first().waitFor();
    const [painted, filled] = (await page.evaluate(
      "[performance.getEntriesByName('first-contentful-paint')[0].startTime, performance.now()]",
    )) as [number, number];
    console.log(`first paint after ${Math.round(painted)} ms, the table after ${Math.round(filled)} ms`);
    await page.context().close();
  }
}

function tellMemoryOfHistories(): void {
  collect();
  const before = process.memoryUsage();
  const histories = new Histories();
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    const totals = { ...noTotals(), classes: new Map([['2', sample]]) };
    const all = Array.from({ length: deployments }, (_, at) => [`deployment-${at}`, totals] as const);
    histories.add({
      at: sample * CONSOLE_PACE.sampleMs,
      deployments: new Map(all),
      clients: new Map(),
      flows: new Map(),
    });
  }
  collect();
  const after = process.memoryUsage();
  const grown = after.heapUsed - before.heapUsed + after.arrayBuffers - before.arrayBuffers;
  const points = histories.read('deployment-0', '24h').times.length;
  console.log(
    `memory of full histories of ${deployments} deployments: ${(grown / 2 ** 20).toFixed(1)} MiB (${points} points of a day)`,
  );
}

async function cpuShare(ms: number): Promise<string> {
  const begun = process.cpuUsage();
  await delay(ms);
  const { user, system } = process.cpuUsage(begun);
  return (((user + system) / 1000 / ms) * 100).toFixed(1);
}
