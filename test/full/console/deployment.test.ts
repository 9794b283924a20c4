import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { SERIES } from '../../../src/control/view.ts';
import type { Metrics } from '../../../src/metrics/metrics.ts';
import {
  type ControlChange,
  countedMetrics,
  expiring,
  failingDeployment,
  healthyDeployment,
  startControl,
} from '../../control/console-source.ts';
import { builtConsole } from '../../support/browser.ts';
import { closing } from '../../support/closing.ts';
import { checkLooks, LOOKS, setLook, usePages } from '../../support/pages.ts';
import { until } from '../../support/until.ts';

const openPage = usePages();
const [PHONE, WIDE] = LOOKS;
let consoleFolder: string;

beforeAll(async () => {
  consoleFolder = await builtConsole();
});

/** A control plane with these deployments, whose charts get many points in a short time. */
async function start(names: readonly string[], change: ControlChange = {}) {
  const { metrics, values } = countedMetrics();
  const state = () => ({ deployments: names.map(healthyDeployment) });
  const control = await startControl({
    consoleFolder,
    pace: { sampleMs: 20, tickMs: 200 },
    ...change,
    console: { values, state, ...change.console },
  });
  closing.push(() => control.close());
  return { origin: control.origin, metrics };
}

/** Counts a request of this duration in seconds. */
function request(metrics: Metrics, deployment: string, status = '200', seconds = 0.02): void {
  metrics.requests.inc({ deployment, operation: '', client: 'reporting', status, code: '' });
  metrics.deployment(deployment).operation('').duration.observe(seconds);
}

async function pointsOf(origin: string, deployment: string): Promise<number> {
  const response = await fetch(`${origin}/api/history?deployment=${deployment}`);
  return ((await response.json()) as { times: number[] }).times.length;
}

/** The numbers in the legend of a chart. */
function legend(page: Page, title: string): Promise<string> {
  return page.locator('figure').filter({ hasText: title }).locator('figcaption').innerText();
}

/** Interval at which the page fetches the last 15 minutes, in milliseconds. */
const REFRESH_MS = 5_000;

/** 180 points of 5 s, with as many responses per second as the number of the point, of which this is the first. */
function historyFrom(first: number) {
  const numbers = Array.from({ length: 180 }, (_, at) => first + at);
  const series = Object.fromEntries(
    SERIES.map((name) => [name, numbers.map((number) => (name === '2xx' ? number : 0))]),
  );
  return { times: numbers.map((number) => (1_800_000_000 + 5 * number) * 1000), series };
}

/** 60 points of 5 s, of which one has responses: 10 failures a second, which took 3 ms. */
function historyWithFailures() {
  const values: Record<string, number> = { '5xx': 10, p50: 0.003, p95: 0.003, p99: 0.003 };
  const series = SERIES.map((name) => [
    name,
    Array.from({ length: 60 }, (_, at) => (at === 20 ? (values[name] ?? 0) : 0)),
  ]);
  const times = Array.from({ length: 60 }, (_, at) => (1_800_000_000 + 5 * at) * 1000);
  return { times, series: Object.fromEntries(series) };
}

/** Counts the pixels of the second chart that have the colour of p50. */
const COUNT_PIXELS = `{
  const canvas = document.querySelectorAll('canvas')[1];
  const place = document.createElement('i');
  place.style.color = 'var(--blue)';
  document.body.append(place);
  const [red, green, blue] = getComputedStyle(place).color.match(/\\d+/g).map(Number);
  place.remove();
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (data[at] === red && data[at + 1] === green && data[at + 2] === blue) found += 1;
  }
  found;
}`;

function colouredPixels(page: Page): Promise<number> {
  return page.evaluate(COUNT_PIXELS);
}

test('the range is chosen by keyboard, stays in the address, and is fetched for this deployment alone', async () => {
  const { origin } = await start(['a', 'b']);
  const { page, pageErrors } = await openPage(WIDE);
  const fetched: string[] = [];
  page.on('request', (sent) => {
    if (sent.url().includes('/api/history')) fetched.push(new URL(sent.url()).search);
  });
  await page.goto(`${origin}/#/deployments/a`);
  await page.getByLabel('Latency of a, the last 15 minutes').waitFor();
  await page.getByRole('radio', { name: '15 min' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.getByLabel('Latency of a, the last 3 hours').waitFor();
  expect(page.url()).toBe(`${origin}/#/deployments/a?range=3h`);
  await page.reload();
  await page.getByLabel('Latency of a, the last 3 hours').waitFor();
  expect(await page.getByRole('radio', { name: '3 h' }).isChecked()).toBe(true);
  expect([...new Set(fetched)]).toEqual(['?deployment=a&range=15m', '?deployment=a&range=3h']);
  expect(pageErrors).toEqual([]);
});

test('one crosshair goes through all charts, by pointer and by keyboard, with its time', async () => {
  const { origin } = await start(['a']);
  const { page } = await openPage(WIDE);
  await page.route('**/api/history?*', (route) => route.fulfill({ json: historyWithFailures() }));
  await page.goto(`${origin}/#/deployments/a`);
  const slider = page.getByRole('slider', { name: 'Time' });
  await slider.waitFor();
  await page.locator('.canvas canvas').nth(2).waitFor();
  const newest = await slider.getAttribute('aria-valuetext');
  expect(await legend(page, 'Responses per second')).toMatch(/2xx 0/);

  // The crosshair of the first chart shows in the others.
  await page
    .locator('.u-over')
    .first()
    .hover({ position: { x: 10, y: 20 } });
  await until(async () => (await slider.getAttribute('aria-valuetext')) !== newest);
  const crosshairs = page.locator('.u-cursor-x');
  const places = () => crosshairs.evaluateAll((found) => found.map((each) => each.getAttribute('style')));
  expect(await crosshairs.count()).toBe(3);
  expect(new Set(await places()).size).toBe(1);
  await page.mouse.move(0, 0);
  await until(async () => Number(await slider.inputValue()) === Number(await slider.getAttribute('max')));

  // Where the requests failed, the legend of every chart shows it.
  await slider.focus();
  await page.keyboard.press('Home');
  const legends = () => page.locator('figcaption').allInnerTexts();
  let [responses] = await legends();
  for (let presses = 0; presses < 200 && !/5xx [1-9]/.test(responses ?? ''); presses += 1) {
    await page.keyboard.press('ArrowRight');
    [responses] = await legends();
  }
  expect(responses).toMatch(/5xx [1-9]/);
  // Each chart draws its own legend, not all in the same frame.
  await until(async () => /p50 \d+(\.\d+)? ms/.test((await legends())[1] ?? ''));
  expect(await slider.getAttribute('aria-valuetext')).toMatch(/\d\d:\d\d:\d\d$/);
  expect(new Set(await places()).size).toBe(1);
});

test('the crosshair keeps its time when new points take the place of old ones', async () => {
  const { origin } = await start(['a']);
  const { page } = await openPage(WIDE);
  await page.clock.install();
  let shift = 0;
  await page.route('**/api/history?*', (route) => route.fulfill({ json: historyFrom(shift) }));
  await page.goto(`${origin}/#/deployments/a`);
  await page.locator('.canvas canvas').nth(2).waitFor();
  const slider = page.getByRole('slider', { name: 'Time' });
  const crosshair = page.locator('.u-cursor-x').first();
  const responses = () => legend(page, 'Responses per second');
  await slider.focus();
  await page.keyboard.press('Home');
  for (let presses = 0; presses < 50; presses += 1) await page.keyboard.press('ArrowRight');
  const time = await slider.getAttribute('aria-valuetext');
  const place = (await crosshair.boundingBox())?.x ?? 0;
  expect(await responses()).toMatch(/2xx 50/);
  expect(place).toBeGreaterThan(0);
  shift = 20;
  await page.clock.runFor(REFRESH_MS);
  await until(async () => (await slider.inputValue()) === '30');
  expect(await slider.getAttribute('aria-valuetext')).toBe(time);
  expect(await responses()).toMatch(/2xx 50/);
  await until(async () => ((await crosshair.boundingBox())?.x ?? 0) < place - 20);
  // What is older than all points has no crosshair.
  shift = 60;
  await page.clock.runFor(REFRESH_MS);
  await until(async () => (await slider.inputValue()) === (await slider.getAttribute('max')));
  expect(await responses()).toMatch(/2xx 239/);
});

test('shows each of several local addresses, and warns of one that is passed over', async () => {
  const egress = [
    { address: '203.0.113.7', status: 'refused', outcome: 'unregistered' },
    { address: '203.0.113.8', status: 'in-use', outcome: '' },
  ] as const;
  const { origin } = await start(['a'], {
    console: { state: () => ({ deployments: [{ ...healthyDeployment('a'), egress }] }) },
  });
  const { page } = await openPage(PHONE);
  await page.goto(`${origin}/#/deployments/a`);
  const traffic = page.getByRole('region', { name: 'Traffic and connections' });
  await traffic.getByText('203.0.113.7, refused by the upstream (outcome unregistered)').waitFor();
  await traffic.getByText('203.0.113.8, in use').waitFor();
  await page.getByText(/do not leave from 203\.0\.113\.7/).waitFor();
  await checkLooks(page);
});

test('a point between two gaps is drawn', async () => {
  const { origin, metrics } = await start(['a']);
  await until(async () => (await pointsOf(origin, 'a')) > 3);
  const { page } = await openPage(WIDE);
  await page.goto(`${origin}/#/deployments/a`);
  await page.locator('.canvas canvas').nth(2).waitFor();
  expect(await colouredPixels(page)).toBe(0);
  const before = await pointsOf(origin, 'a');
  request(metrics, 'a');
  await until(async () => (await pointsOf(origin, 'a')) > before + 3);
  await page.reload();
  await page.locator('.canvas canvas').nth(2).waitFor();
  await until(async () => (await colouredPixels(page)) > 0);
});

test('a request that the page makes ends with the page', async () => {
  const { origin } = await start(['a']);
  const { page, pageErrors } = await openPage(WIDE);
  await page.route('**/api/deployments/a', () => undefined);
  const aborted = page.waitForEvent('requestfailed', (sent) => sent.url().endsWith('/api/deployments/a'));
  await page.goto(`${origin}/#/deployments/a`);
  await page.waitForRequest('**/api/deployments/a').catch(() => undefined);
  await page.getByRole('link', { name: 'Overview' }).click();
  expect((await aborted).failure()?.errorText).toBe('net::ERR_ABORTED');
  expect(pageErrors).toEqual([]);
});

test('an error of the API is told in words, and the page recovers', async () => {
  const { origin } = await start(['a']);
  const { page } = await openPage(WIDE);
  await page.clock.install();
  await page.goto(`${origin}/#/deployments/a?range=9h`);
  // A range that does not exist is the shortest one.
  await page.getByLabel('Latency of a, the last 15 minutes').waitFor();
  const response = await page.request.get(`${origin}/api/history?deployment=a&range=9h`);
  expect(response.status()).toBe(400);
  const problem = await response.text();
  await page.route('**/api/history*', (route) =>
    route.fulfill({ status: 400, contentType: 'application/problem+json', body: problem }),
  );
  await page.clock.runFor(REFRESH_MS);
  await page.getByText('range must be one of 15m, 3h, 24h.').waitFor();
  await page.unroute('**/api/history*');
  await page.clock.runFor(REFRESH_MS);
  await page.getByText('range must be one of 15m, 3h, 24h.').waitFor({ state: 'detached' });
});

test('a session that has ended leads to the sign-in', async () => {
  const tokenSha256 = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08';
  const { origin } = await start(['a'], { tokenSha256 });
  const { page } = await openPage(WIDE);
  await page.goto(origin);
  await page.getByLabel('Token of the control plane').fill('test');
  await page.keyboard.press('Enter');
  await page.getByText('live', { exact: true }).waitFor();
  // A refresh of the page would lead there before the click.
  const { promise: clicked, resolve: release } = Promise.withResolvers<void>();
  await page.route('**/api/**', async (route) => {
    await clicked;
    await route.continue();
  });
  await page.context().clearCookies();
  const ways: string[] = [];
  page.on('request', (sent) => {
    if (sent.isNavigationRequest()) ways.push(sent.url());
  });
  await page.getByRole('link', { name: 'a', exact: true }).click();
  release();
  await page.waitForURL(`${origin}/login#/deployments/a`);
  expect(ways).toEqual([`${origin}/login`]);
});

test('the API refuses what does not exist', async () => {
  const { origin } = await start(['a'], { console: { settings: () => undefined } });
  const statusOf = async (path: string): Promise<number> => (await fetch(`${origin}${path}`)).status;
  expect(await statusOf('/api/deployments/none')).toBe(404);
  expect(await statusOf('/api/history?deployment=a&deployment=b')).toBe(400);
  expect(await statusOf('/api/history?range=1h')).toBe(400);
  expect(await statusOf('/api/history?deployment=none&range=24h')).toBe(200);
});

describe('the overview of 200 deployments', () => {
  const names = Array.from({ length: 200 }, (_, at) => `deployment-${String(at).padStart(3, '0')}`);
  const down = 'deployment-150';
  const state = () => ({
    deployments: names.map((name, at) => {
      const of =
        name === down ? failingDeployment(name, 'it accepts no connection') : healthyDeployment(name);
      return at % 10 === 0 ? expiring(of, 86_400_000) : of;
    }),
  });

  test('has the worst on top, sorts, filters and fits, on a phone and in a wide window', async () => {
    const { origin, metrics } = await start(names, {
      console: { state },
      pace: { sampleMs: 100, tickMs: 500 },
    });
    for (let count = 0; count < 30; count += 1) request(metrics, 'deployment-007');
    const { page, pageErrors } = await openPage(PHONE);
    const table = page.getByRole('table', { name: 'Deployments' });
    const heads = () => table.locator('tbody th').allInnerTexts();
    for (const look of LOOKS) {
      await setLook(page, look);
      await page.goto(origin);
      await table.locator('.sparkline').first().waitFor();
      expect((await heads()).slice(0, 3)).toEqual([down, 'deployment-000', 'deployment-010']);
      expect(await heads()).toHaveLength(200);
      // The banner stays small.
      const banner = await page.getByRole('region', { name: 'Problems now' }).innerText();
      expect(banner).toMatch(
        /deployment-150: The address deployment-150\.example\.org has been failing for 42 s: it accepts no connection\.[\s\S]+ and 11 more$/,
      );

      await table.getByRole('button', { name: 'Deployment' }).click();
      expect((await heads())[0]).toBe('deployment-000');
      await table.getByRole('button', { name: 'Deployment' }).press('Enter');
      expect((await heads())[0]).toBe('deployment-199');
      expect(await table.locator('th[aria-sort]').getAttribute('aria-sort')).toBe('descending');
      await page.getByLabel('Filter').fill('DOWN');
      expect(await heads()).toEqual([down]);
      await page.getByText('1 of 200 deployments').waitFor();
      await page.getByLabel('Filter').fill('-007');
      const line = table.getByLabel('Requests and errors of deployment-007 in up to 15 minutes');
      expect(await line.locator('path').first().getAttribute('d')).toMatch(/^M/);
    }
    await checkLooks(page);
    expect(pageErrors).toEqual([]);
  });
});
