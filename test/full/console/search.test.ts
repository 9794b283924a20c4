import { readFile } from 'node:fs/promises';
import { beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'playwright-core';
import { auditKeys } from '../../../src/audit/keys.ts';
import { Secret } from '../../../src/base/secret.ts';
import { AUDIT_BOUNDS } from '../../../src/control/audit-api.ts';
import type { ExplanationView } from '../../../src/control/client-view.ts';
import { HandWrittenAudit, healthyDeployment, startControl } from '../../control/console-source.ts';
import {
  AUDIT_KEY,
  auditOptions,
  facts,
  openTestAudit,
  useFolders,
  useFoldersOfAll,
} from '../../support/audit-log.ts';
import { builtConsole } from '../../support/browser.ts';
import { closing } from '../../support/closing.ts';
import { writeLog } from '../../support/many-records.ts';
import { checkLooks, LOOKS, usePages } from '../../support/pages.ts';
import { authors, openScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const keys = auditKeys(new Secret(AUDIT_KEY));
const REFUSED_ID = '0b09c2bc-cf30-4baf-8235-a720206927ad';
const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';

/** The policy's decision on every request here; a test with a whole gateway has real ones. */
const REFUSED: ExplanationView = {
  allowed: false,
  client: 'reporting',
  identifiedBy: [],
  deployment: 'submissions',
  rule: 'clients[0].allow',
  endedRules: [],
  status: 403,
  code: 'client-forbidden',
  detail: 'The client reporting may not use the operation authors.',
};

const openPage = usePages();
const [PHONE, WIDE] = LOOKS;
const newFolder = useFolders();
const folderOfAll = useFoldersOfAll();
let consoleFolder: string;
let directory: string;

// One log for all tests: 4,000 requests of two replicas over four days, and some of today.
beforeAll(async () => {
  consoleFolder = await builtConsole();
  directory = await folderOfAll();
  const start = Date.parse('2026-03-01T00:00:00Z');
  for (const replica of ['gateway-1', 'gateway-2']) {
    await writeLog(directory, { replica, keys, start, days: 4, requestsADay: 500 });
  }
  const { audit } = await openTestAudit(directory, { replica: 'gateway-3' });
  audit.admin('reload', { result: 'success', by: 'api', address: '127.0.0.1', changed: ['clients.archive'] });
  for (const change of [
    {
      requestId: 'traced',
      traceId: TRACE_ID,
      target: '/api/x?ids=%27MS-1%27,%27MS-2%27,%27%E2%80%AE3%27&token%E2%80%AE=a',
    },
    { requestId: REFUSED_ID, status: 429, code: 'rate-limited', upstream: undefined, credential: undefined },
  ]) {
    const access = await new Promise<number>((resolve, reject) => {
      const seq = audit.access(facts(change), { recorded: () => resolve(seq), unrecorded: reject });
    });
    const { requestId, status = 200, code = '' } = change;
    const bytes = { in: 0, out: 5120 };
    audit.outcome({ access, requestId, status, code, outcome: '', bytes, durationMs: 42.5 });
  }
  await audit.close();
});

async function start(searches = AUDIT_BOUNDS.searches, explained = REFUSED): Promise<string> {
  const audit = new HandWrittenAudit();
  audit.write({ client: 'reporting' });
  const control = await startControl({
    consoleFolder,
    console: {
      audit,
      clients: () => ['reporting', 'archive'],
      state: () => ({ deployments: [healthyDeployment('submissions')] }),
    },
    queries: {
      explain: () => explained,
      client: async () => undefined,
      configuration: async () => '',
      flightRecord: async () => '',
    },
    audit: {
      log: {
        directory,
        keys: [keys],
        keysDirectory: undefined,
        recorded: (criterion) => criterion,
        parameters: () => ['ids'],
        lists: () => ({}),
        record: async () => true,
      },
      traceUrl: 'https://traces.example.org/trace/{traceId}',
      bounds: { ...AUDIT_BOUNDS, searches },
    },
  });
  closing.push(() => control.close());
  return control.origin;
}

const results = (page: Page) => page.getByRole('table', { name: 'Results' }).locator('tbody tr');

/** The link of a result to the page of its request. */
const requestLink = (page: Page, id: string) => results(page).locator(`a[href^="#/requests/${id}?"]`);

test('search and request fit, are accessible, and nothing is refused', async () => {
  const origin = await start();
  const { page, pageErrors } = await openPage(PHONE);
  await page.goto(`${origin}/#/audit?kind=all&code=&site=journal-7`);
  await page.getByText(/^\d+ results back to .* records read\.$/).waitFor();
  await checkLooks(page);
  await page.goto(`${origin}/#/audit?code=rate-limited`);
  await page.getByText(/^1 result\./).waitFor();
  await checkLooks(page);
  await page.goto(`${origin}/#/requests/traced`);
  await page.getByText('1 request. The whole log was searched').waitFor();
  await page.getByText('Records', { exact: true }).click();
  await checkLooks(page);
  expect(pageErrors).toEqual([]);
});

test('the form searches by keyboard, the address keeps it, and the back button returns', async () => {
  const origin = await start();
  const { page, pageErrors } = await openPage(WIDE);
  await page.goto(`${origin}/#/audit`);
  await page.getByRole('table', { name: 'Audit lines' }).waitFor();
  await page.getByLabel('Identifier').focus();
  await page.keyboard.type('MS-2');
  await page.keyboard.press('Enter');
  // 8,005, or more on a slow machine: a search goes on in steps of some seconds, which read a part of the records again.
  await page.getByText(/^1 result\. The whole log was searched, \d+,\d{3} records read\.$/).waitFor();
  expect(page.url()).toBe(`${origin}/#/audit?identifier=MS-2&kind=requests`);
  expect(await page.getByLabel('Identifier').inputValue()).toBe('MS-2');
  // The same criteria again: the address stays, and times such as "2d ago" have moved on.
  const again = page.waitForRequest(/\/api\/audit\/search\?identifier=MS-2&/);
  await page.getByRole('button', { name: 'Search' }).click();
  await again;
  await page.getByText(/^1 result\. The whole log was searched/).waitFor();
  await page.goBack();
  await page.getByRole('table', { name: 'Audit lines' }).waitFor();
  expect(await page.getByLabel('Identifier').inputValue()).toBe('');
  await page.goForward();
  await requestLink(page, 'traced').waitFor();
  expect(pageErrors).toEqual([]);
});

test('what was found is exported; older results come page by page, and all of them at last', async () => {
  const origin = await start();
  const { page } = await openPage(WIDE);
  // Of 60 clients: more than one page of 50, and less than two.
  await page.goto(`${origin}/#/audit?client=app-7`);
  const older = page.getByRole('button', { name: 'Show older ones' });
  await older.waitFor();
  const link = page.getByRole('link', { name: 'export as CSV' });
  await link.waitFor();
  const [download] = await Promise.all([page.waitForEvent('download'), link.click()]);
  expect(download.suggestedFilename()).toMatch(/^audit-\d{8}T\d{6}Z\.csv$/);
  const lines = (await readFile(await download.path(), 'utf8')).trimEnd().split('\r\n');
  expect(lines.length).toBeGreaterThan(50);
  expect(lines.slice(1).every((line) => line.includes(',app-7,'))).toBe(true);
  expect(await results(page).count()).toBe(50);
  await older.click();
  await page.getByText(/^\d+ results\. The whole log was searched/).waitFor();
  const count = await results(page).count();
  expect(count).toBeGreaterThan(50);
  const ids = await results(page).evaluateAll((rows) =>
    rows.map((row) => row.querySelector('a')?.getAttribute('href')),
  );
  expect(new Set(ids).size).toBe(count);
});

test('every name in a result leads on: to its request, its site, its code', async () => {
  const origin = await start();
  const { page } = await openPage(WIDE);
  await page.goto(`${origin}/#/audit?requestId=${REFUSED_ID}`);
  const row = results(page).first();
  await row.waitFor();
  const targets = await row
    .getByRole('link')
    .evaluateAll((links) => links.map((link) => link.getAttribute('href')));
  expect(targets).toEqual([
    expect.stringMatching(new RegExp(`^#/requests/${REFUSED_ID}\\?at=20`)),
    '#/clients/reporting',
    '#/deployments/submissions',
    '#/audit?site=journal-a',
    '#/audit?operation=authors',
    '#/errors/rate-limited',
  ]);
  await row.getByRole('link', { name: 'rate-limited' }).click();
  await page.getByRole('heading', { level: 1, name: 'rate-limited' }).waitFor();
  await page.getByRole('region', { name: 'Meaning' }).getByRole('link', { name: 'rate-limited' }).click();
  await until(async () => (await page.getByLabel('Error code').inputValue()) === 'rate-limited');
  await page.getByText(/^1 result\./).waitFor();
});

test('a request has its timing, upstream, parameters and trace; an event of the gateway is found with its details', async () => {
  const origin = await start();
  const { page } = await openPage(WIDE);
  await page.goto(`${origin}/#/audit?requestId=traced`);
  const first = await results(page).first().innerText();
  // Identifiers, in the order in which they were sent, duration and bytes; the test log has no outcome of some requests.
  expect(first).toMatch(/'MS-1','MS-2','\\u202e3'\s+200\s+43 ms\s+[\d.]+ (?:B|KiB)/);
  await requestLink(page, 'traced').click();
  await page.getByText('1 request. The hour before and after it was searched').waitFor();
  const text = await page.getByRole('main').innerText();
  expect(text).toMatch(/43 ms from its arrival to the end of its response/);
  expect(text).toMatch(/status 200 from a\.example, 1 attempt/);
  expect(text).toMatch(/ids = 'MS-1','MS-2','\\u202e3'\s+token\\u202e \(value not recorded\)/);
  const trace = page.getByRole('link', { name: TRACE_ID });
  expect(await trace.getAttribute('href')).toBe(`https://traces.example.org/trace/${TRACE_ID}`);

  await page.goto(`${origin}/#/audit?kind=events&text=archive`);
  const row = results(page).first();
  await row.waitFor();
  expect(await row.innerText()).toMatch(/reload, result: success, by: api, .*changed: clients\.archive/);
});

test('a request of a running gateway has the rule that decides on it', async () => {
  const audit = auditOptions(await newFolder(), { parameters: ['ids'] });
  const identify = { addresses: ['127.0.0.1'] };
  const allow = [{ deployment: 'submissions', methods: ['GET'] }];
  const clients = [{ id: 'reporting', identify, allow }];
  const pair = await openScene({
    audit,
    top: { anonymous: false, clients },
    consoleFolder,
  });
  closing.push(pair.close);
  const send = async (requestId: string, method: string): Promise<void> => {
    const response = await pair.get(authors, { method, headers: { 'x-request-id': requestId } });
    await response.arrayBuffer();
  };
  await send('granted', 'GET');
  await send('forbidden', 'DELETE');
  const { page } = await openPage(WIDE);
  await page.goto(`${pair.gateway.control}/#/requests/granted`);
  await page.getByText('allowed by clients[0].allow[0]').waitFor();
  const text = await page.getByRole('main').innerText();
  expect(text).toMatch(/By the configuration in use, .* The values that are not recorded were left out\./);
  await page.goto(`${pair.gateway.control}/#/requests/forbidden`);
  await page
    .getByText(/^refused with 403 client-forbidden by clients\[0\]\.allow: The client reporting/)
    .waitFor();
  await page.getByText('was not asked').waitFor();
});

test.each([
  { ...REFUSED, deployment: 'reports' },
  { ...REFUSED, deployment: '', status: 404, code: 'no-deployment' },
])(
  'a request that its absolute form led to its deployment is not judged as one for "$deployment"',
  async (explained) => {
    const origin = await start(AUDIT_BOUNDS.searches, explained);
    const { page } = await openPage(WIDE);
    await page.goto(`${origin}/#/requests/${REFUSED_ID}`);
    await page.getByText(/^not known: the path alone does not lead to submissions\./).waitFor();
    expect(await page.getByRole('main').innerText()).not.toContain(explained.detail);
  },
);

test('what the rules of an observed client would refuse is on the pages of request, client and policy', async () => {
  const audit = auditOptions(await newFolder(), { parameters: ['ids'] });
  const mode = { observe: true, until: new Date(Date.now() + 86_400_000).toISOString() };
  const client = { id: 'reporting', identify: { addresses: ['127.0.0.1'] }, mode };
  const allow = [{ deployment: 'submissions', methods: ['GET'] }];
  const pair = await openScene({
    audit,
    top: { anonymous: false, clients: [{ ...client, allow }] },
    consoleFolder,
  });
  closing.push(pair.close);
  const headers = { 'x-request-id': 'observed' };
  expect((await pair.get(authors, { method: 'HEAD', headers })).status).toBe(200);
  const { page, pageErrors } = await openPage(WIDE);
  const { control } = pair.gateway;
  await page.goto(`${control}/#/requests/observed`);
  await page
    .getByText('the rules of the client, which were only observed, would refuse it with client-forbidden')
    .waitFor();
  await page
    .getByText(/^allowed by clients\[0\]\.mode, from .*Z refused with 403 client-forbidden/)
    .waitFor();
  await page.goto(`${control}/#/clients/reporting`);
  const observed = page.getByRole('table', { name: 'Observed refusals' });
  await observed.getByRole('row', { name: /client-forbidden 1 .* may not use the method HEAD/ }).waitFor();
  expect(await page.getByRole('main').innerText()).toMatch(/Rules\s+only observed until /);
  await checkLooks(page);
  const target = encodeURIComponent(authors);
  await page.goto(`${control}/#/policy?client=reporting&method=HEAD&target=${target}`);
  await page.getByText(/^from .*Z refused with 403 client-forbidden by clients\[0\]\.allow: /).waitFor();
  await checkLooks(page);
  expect(pageErrors).toEqual([]);
});

test('a wrong criterion is told in words, and the form stays', async () => {
  const origin = await start();
  const { page } = await openPage(WIDE);
  await page.goto(`${origin}/#/audit?from=yesterday`);
  await page.getByRole('alert').filter({ hasText: 'a time is 2026-03' }).waitFor();
  const from = page.getByRole('searchbox', { name: 'From' });
  expect(await from.getAttribute('aria-invalid')).toBe('true');
  await checkLooks(page);
  await page.locator('.time input[type=datetime-local]').first().fill('2026-03-04T12:30');
  await until(async () => /^2026-03-0\dT\d\d:\d\dZ$/.test(await from.inputValue()));
  await from.fill('2026-03-04');
  await from.press('Enter');
  await page.getByText(/^50 results back to/).waitFor();
});

test('a search waits for a free place, and can be stopped and continued', async () => {
  const origin = await start(0);
  const { page } = await openPage(WIDE);
  const asked = page.waitForResponse((response) => response.status() === 429);
  await page.goto(`${origin}/#/audit?client=nobody`);
  await asked;
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('No result, 0 records read.').waitFor();
  const again = page.waitForResponse((response) => response.status() === 429);
  await page.getByRole('button', { name: 'Continue' }).click();
  await again;
});
