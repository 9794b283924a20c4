import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { finding } from '../../../src/audit/findings.ts';
import type { Metrics } from '../../../src/metrics/metrics.ts';
import {
  type ControlChange,
  countedMetrics,
  expiring,
  HandWrittenAudit,
  healthyDeployment,
  recentError,
  type SourceChange,
  startControl,
} from '../../control/console-source.ts';
import { builtConsole, type Look } from '../../support/browser.ts';
import { closedAtEnd } from '../../support/closing.ts';
import { checkLooks, LOOKS, usePages } from '../../support/pages.ts';
import { startSwitchedRelay } from '../../support/relay.ts';

const openPage = usePages();
const [PHONE, WIDE] = LOOKS;
let consoleFolder: string;

beforeAll(async () => {
  consoleFolder = await builtConsole();
});

async function start(change: ControlChange): Promise<string> {
  const control = await closedAtEnd(startControl({ consoleFolder, ...change }));
  return control.origin;
}

/** Everything that can be wrong, and something that is not. */
function troubled(): { source: SourceChange; metrics: Metrics; audit: HandWrittenAudit } {
  const { metrics, values } = countedMetrics();
  const audit = new HandWrittenAudit(() => ({
    records: 3,
    failures: 1,
    failing: ['the disk is full'],
    retentionHeld: [],
    integrityErrors: [
      { ...finding('batch-altered', { from: 7, to: 7 }), replica: 'gateway', segment: '0001.jsonl', line: 7 },
    ],
  }));
  audit.write({ client: 'reporting' }, { client: 'archive', status: 403, code: 'client-forbidden' });
  const source: SourceChange = {
    // The button to sign out needs room in the header of a phone.
    tokenAsked: true,
    values,
    state: () => ({
      storeUp: false,
      errors: [recentError],
      deployments: [
        { ...healthyDeployment('submissions'), outcomes: ['throttled', 'maintenance'] },
        expiring(healthyDeployment('reviews'), 3.5 * 86_400_000),
        {
          ...healthyDeployment('abstracts'),
          serves: false,
          credentials: [
            {
              credential: 'abstracts',
              version: '1',
              state: 'refused',
              inUse: true,
              serves: false,
              rejected: false,
            },
          ],
        },
      ],
    }),
    clients: () => ['reporting', 'archive'],
    audit,
  };
  return { source, metrics, audit };
}

function problems(page: Page) {
  return page.getByRole('region', { name: 'Problems now' });
}

function countRequests(metrics: Metrics): void {
  const labels = { deployment: 'submissions', operation: '', client: 'reporting' };
  metrics.requests.inc({ ...labels, status: '200', code: '' }, 40);
  metrics.deployment('submissions').outcome('throttled').inc(3);
  metrics.requests.inc({ ...labels, client: 'archive', status: '403', code: 'client-forbidden' }, 7);
}

test('every page tells what it is given, fits, is accessible, and nothing is refused', async () => {
  const { source, metrics } = troubled();
  const origin = await start({ console: source });
  countRequests(metrics);
  const { page, pageErrors } = await openPage(PHONE);
  const lookAt = async (path: string, check: (text: string, look: Look) => Promise<void> | void) => {
    await page.goto(`${origin}/#${path}`);
    await page.getByText('live', { exact: true }).waitFor();
    // A deployment's charts, limits and certificates are fetched apart.
    for (const name of path.startsWith('/deployments/') ? ['Latency', 'Certificates'] : []) {
      await page.getByLabel(name).first().waitFor();
    }
    await checkLooks(page, async (look) => check(await page.getByRole('main').innerText(), look));
  };

  await lookAt('/', async (overview, { width }) => {
    expect(overview).toMatch(/abstracts\s+■ down[\s\S]+reviews\s+▲ degraded[\s\S]+submissions\s+● ok/);
    expect(overview).toMatch(/The upstream's certificate expires \d{4}-\d\d-\d\d, 3 days left\./);
    expect(overview).toMatch(/3 deployments:\s+■ down 1\s+▲ degraded 1\s+● ok 1/);
    expect(overview).toContain(recentError.detail);
    expect(await problems(page).innerText()).toMatch(
      /■ down\s+abstracts: The upstream refuses the credential abstracts\. Check user name and password, .*\s+▲ degraded\s+Redis is unreachable: nonces are not shared with other replicas\. Check that Redis runs, .*\s+▲ degraded\s+The audit log cannot be written: the disk is full\. Free space on its disk, .*\s+▲ degraded\s+reviews$/,
    );
    expect(await page.getByRole('banner').innerText()).toMatch(/▲ degraded/);
    // On a phone, numbers stand beside their labels.
    const align = await page.evaluate(`getComputedStyle(document.querySelector('td.numeric')).textAlign`);
    expect([width, align]).toEqual([width, width === PHONE.width ? 'left' : 'right']);
  });
  await lookAt('/deployments/submissions', (submissions) => {
    expect(submissions).toMatch(/● ok 4\d requests in the last/);
    expect(submissions).toMatch(/Connections\s+3 open, 1 busy, 64 at most/);
    expect(submissions).toMatch(/Policy\s+shared: used concurrently\s+Age\s+42 s old\s+Lifetime\s+5 min/);
    expect(submissions).toMatch(/submissions\s+3 \(current\)\s+in use\s+\d+ \w+ \d{4}, 12 d ago/);
    expect(submissions).toMatch(/submissions\s+4 \(next\)\s+waits to be tried\s+unknown/);
    expect(submissions).toMatch(/Requests\s+50 per second, bursts of 100, 20 at a time/);
    expect(submissions).toMatch(/reporting: 10 per second, bursts of 10, 100,000 per day/);
    expect(submissions).toMatch(/Connections\s+\d+ at most to each address/);
    expect(submissions).toMatch(/Body\s+100 MiB at most, 1 MiB kept for a challenge/);
    expect(submissions).toMatch(/Client speed\s+240 B per second at least/);
    expect(submissions).toMatch(
      /CN=Example CA\s+O=Example, CN=Example CA\s+\d+ \w+ \d{4}\s+\d+ \w+ \d{4}, in 89 d/,
    );
    expect(submissions).toMatch(/Outcomes\s+throttled 3, maintenance 0 in the last minute/);
  });
  await lookAt('/deployments/reviews', (reviews) => {
    expect(reviews).toMatch(/Outcomes\s+none configured/);
  });
  await lookAt('/deployments/abstracts', (abstracts) => {
    expect(abstracts).toMatch(/refused: tried twice a minute only/);
  });
  await lookAt('/errors', (errors) => {
    expect(errors).toContain(recentError.detail);
  });
  await lookAt('/clients', async () => {
    const archive = await page.getByRole('row', { name: /archive/ }).innerText();
    expect(archive).toMatch(/7\s+7\s+client-forbidden 7\s+not since the start/);
  });
  await lookAt('/audit', (audit) => {
    expect(audit).toMatch(/Chain altered: gateway\/0001\.jsonl:7: /);
    expect(audit).toContain('Records cannot be written: the disk is full.');
  });
  expect(pageErrors).toEqual([]);
});

test('audit lines come as they are written, filters choose among them, and very many cost the page no more than the newest', async () => {
  const { source, audit } = troubled();
  const origin = await start({ console: source, pace: { tickMs: 50 } });
  const { page, pageErrors } = await openPage(WIDE);
  await page.goto(`${origin}/#/audit`);
  const rows = page.getByRole('table', { name: 'Audit lines' }).locator('tbody tr');
  const shown = () =>
    rows.evaluateAll((found) =>
      found.map((row) => /requests\/([\w-]+)/.exec(row.querySelector('a')?.getAttribute('href') ?? '')?.[1]),
    );
  await rows.nth(1).waitFor();
  audit.write({ client: 'archive' });
  await rows.nth(2).waitFor();
  expect(await shown()).toEqual(['request-3', 'request-2', 'request-1']);
  await page.getByLabel('Filter').fill('ARCHIVE');
  expect(await shown()).toEqual(['request-3', 'request-2']);
  await page.getByLabel('Show').selectOption('refused or failed');
  expect(await shown()).toEqual(['request-2']);
  audit.write({ kind: 'admin', client: '', operation: 'reload' });
  await page.getByLabel('Filter').fill('');
  await page.getByLabel('Show').selectOption('the gateway itself');
  await page.getByRole('row', { name: /the gateway .*reload/ }).waitFor();

  await page.reload();
  await rows.nth(3).waitFor();
  audit.write(...Array.from({ length: 10_000 }, () => ({})));
  await page.locator('a[href^="#/requests/request-10004?"]').waitFor();
  expect(await rows.count()).toBe(100);

  await page.getByRole('button', { name: 'Pause' }).click();
  audit.write({});
  await page.getByText('1 new line', { exact: true }).waitFor();
  expect((await shown())[0]).toBe('request-10004');
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.locator('a[href^="#/requests/request-10005?"]').waitFor();
  expect(pageErrors).toEqual([]);
});

test('the theme can be chosen by keyboard, and stays', async () => {
  const origin = await start({});
  const { page } = await openPage(WIDE);
  await page.goto(origin);
  const colour = () => page.evaluate('getComputedStyle(document.body).backgroundColor');
  const light = await colour();
  const theme = page.getByRole('button', { name: 'Theme' });
  for (let presses = 0; presses < 20; presses += 1) {
    await page.keyboard.press('Tab');
    if (await theme.evaluate((button) => button.matches(':focus'))) break;
  }
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await page.keyboard.press('ArrowUp');
  await expect(page.getByRole('radio', { name: 'dark' }).isChecked()).resolves.toBe(true);
  const dark = await colour();
  expect(dark).not.toBe(light);
  await page.reload();
  expect(await colour()).toBe(dark);
});

test('a connection that dies without a sign is told, and opened again; a gateway that is gone is told, too', async () => {
  const control = await startControl({ consoleFolder });
  const relay = await startSwitchedRelay(Number(new URL(control.origin).port));
  try {
    const { page } = await openPage({ width: 400, scheme: 'light' });
    await page.goto(`http://127.0.0.1:${relay.port}`);
    await page.getByText('live', { exact: true }).waitFor();
    // The clock of the computer is corrected by an hour.
    await page.evaluate('{ const now = Date.now; Date.now = () => now() - 3_600_000; }');
    // The stream that follows is held on its way.
    await page.route('**/api/events', () => {}, { times: 1 });
    await Promise.all([page.waitForRequest('**/api/events'), relay.set('silent')]);
    await page.getByText(/^No connection since \d\d:\d\d:\d\d\. Trying again\.$/).waitFor();
    await relay.set('open');
    await page.getByText('live', { exact: true }).waitFor();
    await control.close();
    await page.getByText(/^No connection since \d\d:\d\d:\d\d\. Trying again\.$/).waitFor();
  } finally {
    await relay.close();
    await control.close();
  }
});

test('a page says that it is loading until the first event of the stream', async () => {
  const origin = await start({ console: troubled().source });
  const { page } = await openPage(WIDE);
  await page.route('**/api/events', () => {});
  for (const path of ['/', '/deployments/reviews', '/errors', '/clients', '/audit', '/usage', '/workers']) {
    await page.goto(`${origin}/#${path}`);
    await page.getByRole('main').getByText('Loading …').first().waitFor();
  }
});

test('a page that does not exist is told, and links lead from page to page', async () => {
  const { source } = troubled();
  const origin = await start({ console: source });
  const { page, pageErrors } = await openPage(WIDE);
  await page.goto(`${origin}/#/deployments/%zz`);
  await page.getByText('There is no such page.').waitFor();
  await page.goto(`${origin}/#/deployments/none`);
  await page.getByText('The gateway has no deployment of this name.').waitFor();
  await page.getByRole('navigation').getByRole('link', { name: 'Overview' }).click();
  await page.getByRole('link', { name: 'reviews', exact: true }).first().click();
  await page.getByRole('heading', { level: 1, name: 'reviews' }).waitFor();
  expect(await page.getByRole('main').evaluate((main) => main.matches(':focus'))).toBe(true);
  await page.goBack();
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
  expect(pageErrors).toEqual([]);
});

test('everything that the page loads comes to less than 220 KB, and 100 KB compressed', () => {
  const files = readdirSync(consoleFolder, { recursive: true, encoding: 'utf8' });
  const bytes = files.map((file) => statSync(join(consoleFolder, file))).filter((stat) => stat.isFile());
  expect(bytes.reduce((sum, { size }) => sum + size, 0)).toBeLessThan(220_000);
  const compressed = files
    .map((file) => join(consoleFolder, file))
    .filter((file) => statSync(file).isFile())
    .map((file) => gzipSync(readFileSync(file)).length);
  expect(compressed.reduce((sum, size) => sum + size, 0)).toBeLessThan(100_000);
});
