import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { auditKeys } from '../../../src/audit/keys.ts';
import { Secret } from '../../../src/base/secret.ts';
import { HandWrittenAudit, healthyDeployment, startControl } from '../../control/console-source.ts';
import { AUDIT_KEY } from '../../support/audit-log.ts';
import { builtConsole } from '../../support/browser.ts';
import { closing } from '../../support/closing.ts';
import { writeLog } from '../../support/many-records.ts';
import { checkLooks, LOOKS, usePages } from '../../support/pages.ts';
import { until } from '../../support/until.ts';

const keys = auditKeys(new Secret(AUDIT_KEY));
const openPage = usePages();
const [PHONE, WIDE] = LOOKS;
let consoleFolder: string;
let directory: string;

// One log for all tests: 2,000 requests over four days.
beforeAll(async () => {
  consoleFolder = await builtConsole();
  directory = await mkdtemp(join(tmpdir(), 'console-usage-'));
  const start = Date.parse('2026-03-01T00:00:00Z');
  await writeLog(directory, { replica: 'gateway-1', keys, start, days: 4, requestsADay: 500 });
});

afterAll(async () => {
  await rm(directory, { recursive: true });
});

async function start(): Promise<string> {
  const control = await startControl({
    consoleFolder,
    console: {
      audit: new HandWrittenAudit(),
      clients: () => ['reporting'],
      state: () => ({ deployments: [healthyDeployment('submissions')] }),
    },
    audit: {
      log: {
        directory,
        keys: [keys],
        keysDirectory: undefined,
        recorded: (criterion) => criterion,
        parameters: () => ['ids'],
        lists: () => ({ submissions: { 'operation-1': ['other_ids'] } }),
        record: async () => true,
      },
      traceUrl: undefined,
    },
  });
  closing.push(() => control.close());
  return control.origin;
}

test('a report fits, is accessible, and nothing is refused', async () => {
  const origin = await start();
  const { page, pageErrors } = await openPage(PHONE);
  await page.goto(`${origin}/#/usage`);
  await page.getByRole('button', { name: 'Count' }).waitFor();
  await checkLooks(page);
  await page.goto(`${origin}/#/usage?by=deployment,operation,status`);
  await page.getByText(/^2,000 requests on 4 days: .* identifiers, .* MiB out, \d+ errors\.$/).waitFor();
  await checkLooks(page);
  expect(pageErrors).toEqual([]);
});

test('the form counts by keyboard, and the address keeps what was asked', async () => {
  const origin = await start();
  const { page, pageErrors } = await openPage(WIDE);
  await page.goto(`${origin}/#/usage`);
  expect(await page.getByLabel('From').inputValue()).toBe('30d');
  for (const field of ['site', 'operation', 'credential']) await page.getByLabel(field).uncheck();
  await page.getByLabel('From').fill('2026-03-02');
  await page.keyboard.press('Enter');
  await page.getByText(/^1,500 requests on 3 days/).waitFor();
  expect(page.url()).toBe(`${origin}/#/usage?by=client&from=2026-03-02`);
  const table = page.getByRole('table', { name: 'Usage' });
  expect(await table.locator('thead th').allInnerTexts()).toEqual([
    'Client',
    'Requests',
    'Identifiers',
    'Bytes out',
    'Bytes in',
    'Days',
    'Errors',
  ]);
  expect(await table.locator('tbody tr').count()).toBe(60);
  const names = ['Requests per day', 'Identifiers per day', 'Bytes per day'];
  for (const name of names) expect(await page.getByRole('img', { name }).count()).toBe(1);
  await page.getByRole('slider', { name: 'Day (UTC)' }).focus();
  await page.keyboard.press('ArrowLeft');
  expect(await page.locator('.crosshair output').innerText()).toBe('3 Mar 2026');
  expect(pageErrors).toEqual([]);
});

test('days of the charts begin at midnight UTC, wherever the reader is', async () => {
  const origin = await start();
  const marks: string[][] = [];
  for (const timezoneId of ['UTC', 'Pacific/Auckland', 'America/Los_Angeles']) {
    const { page } = await openPage(WIDE);
    const devtools = await page.context().newCDPSession(page);
    await devtools.send('Emulation.setTimezoneOverride', { timezoneId });
    await page.addInitScript({ content: NOTE_TEXTS });
    await page.goto(`${origin}/#/usage?by=client`);
    await page.getByRole('slider', { name: 'Day' }).waitFor();
    await until(() => page.evaluate('texts.some((text) => text.includes("Mar"))'));
    marks.push(await page.evaluate('[...new Set(texts)].filter((text) => text.includes("Mar"))'));
  }
  expect(marks[0]?.map((mark) => mark.split(' at ')[0])).toEqual(['1 Mar', '2 Mar', '3 Mar', '4 Mar']);
  expect(marks).toEqual([marks[0], marks[0], marks[0]]);
});

/** A script that notes what canvases draw, and where. */
const NOTE_TEXTS = `
  globalThis.texts = [];
  const { prototype } = CanvasRenderingContext2D;
  const { fillText } = prototype;
  prototype.fillText = function (text, x, y) {
    texts.push(text + ' at ' + x);
    fillText.call(this, text, x, y);
  };
`;

test('rows are sorted by a column, lead to the search, and are downloaded', async () => {
  const origin = await start();
  const { page } = await openPage(WIDE);
  await page.goto(`${origin}/#/usage?by=site,status`);
  const table = page.getByRole('table', { name: 'Usage' });
  await table.waitFor();
  await page.getByRole('button', { name: 'Errors' }).click();
  const [site = '', status = ''] = await table.locator('tbody tr').first().getByRole('link').allInnerTexts();
  expect([site, status]).toEqual([expect.stringMatching(/^journal-\d+$/), '404']);
  const link = page.getByRole('link', { name: 'download as CSV' });
  const [download] = await Promise.all([page.waitForEvent('download'), link.click()]);
  expect(await readFile(await download.path(), 'utf8')).toMatch(/^site,status,requests,/);
  await table.locator('tbody tr').first().getByRole('link', { name: site }).click();
  await page.getByText(/results?( back to .*)?[.,]/).waitFor();
  expect(page.url()).toBe(`${origin}/#/audit?site=${site}`);
});

test('a time that cannot be read is explained, and lists by name only are named', async () => {
  const origin = await start();
  const { page } = await openPage(WIDE);
  await page.goto(`${origin}/#/usage?by=client&from=yesterday`);
  await page.getByText(/^The parameter from cannot be used: a time is/).waitFor();
  await page.getByRole('button', { name: 'Try again' }).waitFor();
  await page.goto(`${origin}/#/usage?by=client&from=2099`);
  await page.getByRole('alert').waitFor();
  await page.goto(`${origin}/#/usage?by=client&from=2099-01`);
  await page.getByText('No requests in this time.').waitFor();
});
