/**
 * Whether a console that is left open grows: `node test/bench/console.ts [minutes]`. A gateway in front of the
 * simulator with traffic, its page in Chromium at ten times its pace; the page's heap, nodes and listeners after
 * collecting, and the gateway's CPU time with nobody looking and with one.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { CONSOLE_PACE } from '../../src/control/console.ts';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { startSimulator } from '../../src/simulator/simulator.ts';
import { buildConsole, openBrowser, openPage } from '../support/browser.ts';
import { startGateway } from '../support/gateway.ts';

const FASTER = 10;
const TARGET =
  '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?ids=%27DEMO-2026-0001%27&site_name=demo';
const minutes = Number(process.argv[2] ?? 3);

const built = await buildConsole();
const simulator = await startSimulator(defaultSettings());
const gateway = await startGateway(
  { submissions: { origin: simulator.deployments.submissions.origin, ca: simulator.ca } },
  {},
  {
    consoleFolder: built.folder,
    consolePace: { sampleMs: CONSOLE_PACE.sampleMs / FASTER, tickMs: CONSOLE_PACE.tickMs / FASTER },
  },
);
const traffic = setInterval(async () => {
  await (await fetch(`${gateway.origin}${TARGET}`)).arrayBuffer();
  await (await fetch(`${gateway.origin}/api`, { headers: { 'x-request-id': '!' } })).arrayBuffer();
}, 50);

const browser = await openBrowser();
try {
  console.log(`CPU of the process with nobody looking: ${await cpuShare(10_000)} %`);
  const { page, pageErrors } = await openPage(browser, { width: 1400, scheme: 'light' });
  await page.goto(gateway.control);
  await page.getByText('live', { exact: true }).waitFor();
  console.log(`CPU of the process with one console at ${FASTER} ticks a second: ${await cpuShare(10_000)} %`);
  const inspector = await page.context().newCDPSession(page);
  console.log('minutes of a console | heap KB | nodes | listeners');
  for (let passed = 0; passed <= minutes; passed += 0.5) {
    await inspector.send('HeapProfiler.collectGarbage');
    const { usedSize } = await inspector.send('Runtime.getHeapUsage');
    const { nodes, jsEventListeners } = await inspector.send('Memory.getDOMCounters');
    console.log([passed * FASTER, Math.round(usedSize / 1024), nodes, jsEventListeners].join(' | '));
    await delay(30_000);
  }
  console.log(`errors of the page: ${pageErrors.length === 0 ? 'none' : pageErrors.join('; ')}`);
} finally {
  clearInterval(traffic);
  await browser.close();
  await gateway.close();
  await simulator.close();
  await built.remove();
}

async function cpuShare(ms: number): Promise<string> {
  const begun = process.cpuUsage();
  await delay(ms);
  const { user, system } = process.cpuUsage(begun);
  return (((user + system) / 1000 / ms) * 100).toFixed(1);
}
