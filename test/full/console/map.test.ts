import { beforeAll, describe, expect, test } from '@jest/globals';
import { Sampler } from '../../../src/control/history.ts';
import { certificatesOf, type RulePlace, takeMap } from '../../../src/control/map.ts';
import { readTotals } from '../../../src/control/totals.ts';
import {
  countedMetrics,
  failingDeployment,
  healthyDeployment,
  type SourceChange,
  startControl,
  WELL,
} from '../../control/console-source.ts';
import { builtConsole } from '../../support/browser.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { checkLooks, LOOKS, usePages } from '../../support/pages.ts';
import { until } from '../../support/until.ts';

const openPage = usePages();
const [PHONE, WIDE] = LOOKS;
let consoleFolder: string;

beforeAll(async () => {
  consoleFolder = await builtConsole();
});

const RULES = [
  { client: 'reporting', deployment: '*', path: 'clients[0].allow[0]' },
  { client: 'archive', deployment: 'abstracts', path: 'clients[1].allow[0]' },
  { client: 'archive', deployment: 'abstracts', path: 'clients[1].allow[1]' },
];
const PROCESS = {
  worker: 1,
  pid: 4711,
  stage: 'serving',
  serves: true,
  startedAt: 0,
  memory: 170 * 2 ** 20,
  cpuSeconds: 3,
  connections: 5,
} as const;

const request = { operation: '', status: '200', code: '' };

describe('the map', () => {
  async function mapOf(scope: { client?: string; deployment?: string } = {}) {
    const { metrics, values } = countedMetrics();
    let at = 0;
    const sampler = new Sampler(() => readTotals(values, at), 3_600_000, fail);
    closing.push(async () => sampler.close());
    await until(async () => sampler.before(await sampler.now(), 0).at === 0);
    metrics.requests.inc({ ...request, deployment: 'submissions', client: 'reporting' }, 20);
    const refused = { ...request, status: '403', code: 'client-forbidden' };
    metrics.requests.inc({ ...refused, deployment: 'submissions', client: 'archive' }, 5);
    metrics.requests.inc({ ...refused, deployment: '', client: '' }, 10);
    at = 10_000;
    return takeMap(sampler, RULES, ['submissions', 'abstracts'], { client: '', deployment: '', ...scope });
  }

  test('has the ways that rules allow, and those of refused requests, with their rates', async () => {
    const { ways, more } = await mapOf();
    const idle = { perSecond: 0, refusedPerSecond: 0 };
    const first = { client: 'reporting', rules: ['clients[0].allow[0]'] };
    expect([more, ways]).toEqual([
      0,
      [
        { ...first, deployment: 'submissions', perSecond: 2, refusedPerSecond: 0 },
        { ...first, deployment: 'abstracts', ...idle },
        {
          client: 'archive',
          deployment: 'abstracts',
          rules: ['clients[1].allow[0]', 'clients[1].allow[1]'],
          ...idle,
        },
        { client: 'archive', deployment: 'submissions', rules: [], perSecond: 0.5, refusedPerSecond: 0.5 },
        { client: '', deployment: '', rules: [], perSecond: 1, refusedPerSecond: 1 },
      ],
    ]);
  });

  test('of a client or a deployment has their ways only', async () => {
    const of = ({ ways }: Awaited<ReturnType<typeof mapOf>>) =>
      ways.map((way) => `${way.client} ${way.deployment}`);
    expect(of(await mapOf({ client: 'archive' }))).toEqual(['archive abstracts', 'archive submissions']);
    expect(of(await mapOf({ client: 'archive', deployment: 'abstracts' }))).toEqual(['archive abstracts']);
  });

  test('of many ways has the busiest', async () => {
    const { metrics, values } = countedMetrics();
    let at = 0;
    const sampler = new Sampler(() => readTotals(values, at), 3_600_000, fail);
    closing.push(async () => sampler.close());
    await until(async () => sampler.before(await sampler.now(), 0).at === 0);
    metrics.requests.inc({ ...request, deployment: 'd99', client: 'reporting' }, 20);
    at = 1_000;
    const many = Array.from({ length: 100 }, (_, index) => `d${index}`);
    const { ways, more } = await takeMap(sampler, RULES.slice(0, 1), many, { client: '', deployment: '' });
    expect([ways.length, more, ways.at(-1)]).toMatchObject([40, 60, { deployment: 'd99', perSecond: 20 }]);
  });

  test('of many clients with rules for every deployment is made without a walk over all ways', async () => {
    const sampler = new Sampler(() => readTotals(countedMetrics().values, 0), 3_600_000, fail);
    closing.push(async () => sampler.close());
    const rules = Array.from(
      { length: 300 },
      (_, index) => ({ ...RULES[0], client: `c${index}` }) as RulePlace,
    );
    let reads = 0;
    const deployments = new Proxy(
      Array.from({ length: 300 }, (_, index) => `d${index}`),
      {
        get(list, key) {
          reads += 1;
          return Reflect.get(list, key);
        },
      },
    );
    const { ways, more } = await takeMap(sampler, rules, deployments, { client: '', deployment: '' });
    expect([ways.length, ways.at(-1)?.deployment, more]).toEqual([40, 'd39', 300 * 300 - 40]);
    expect(reads).toBeLessThan(10 * 300);
  });
});

test('certificates are in the order of their ends, each with its state', () => {
  const now = Date.now();
  const listeners = [
    { address: '127.0.0.1:8443', connections: 0, tls: 'server' as const, certificateExpiresAt: now - 1 },
    { address: '127.0.0.1:8080', connections: 0, tls: 'none' as const },
  ];
  const found = certificatesOf({ ...WELL, listeners, deployments: [healthyDeployment('submissions')] }, now);
  expect(found.map(({ name, kind, state }) => [name, kind, state])).toEqual([
    ['127.0.0.1:8443', 'listener', 'down'],
    ['submissions', 'upstream', 'ok'],
    ['submissions', 'authority', 'ok'],
  ]);
  const [soon] = certificatesOf({ ...WELL, listeners }, now - 86_400_000);
  expect(soon?.state).toBe('degraded');
});

test('map, workers, certificates and errors fit, are accessible, and lead from one to the other', async () => {
  const { metrics, values } = countedMetrics();
  let exchanges = 0;
  const source: SourceChange = {
    values,
    rules: () => RULES,
    clients: () => ['reporting', 'archive'],
    state: () => {
      exchanges += 10;
      const submissions = healthyDeployment('submissions');
      return {
        processes: [PROCESS],
        workers: { serving: 1, configured: 2, audit: null },
        deployments: [
          { ...submissions, addresses: submissions.addresses.map((each) => ({ ...each, exchanges })) },
          failingDeployment('abstracts', 'it accepts no connection'),
        ],
      };
    },
  };
  const control = await closedAtEnd(startControl({ consoleFolder, console: source, pace: { tickMs: 50 } }));
  metrics.requests.inc({ ...request, deployment: 'submissions', client: 'reporting' }, 20);
  const { page, pageErrors } = await openPage(PHONE);
  await page.goto(`${control.origin}/#/map`);
  const link = (name: RegExp | string) => page.getByRole('link', { name });
  await link(/^submissions ok, [\d.]+\/s$/).waitFor();
  // On a phone too, names are whole.
  await link(/^abstracts 2 rules 0\/s$/).waitFor();
  await link(/^submissions\.example\.org ok [\d.,]+\/s$/).waitFor();
  await checkLooks(page);
  // The picture is for wide windows. A rate is known from the second tick on.
  await link(
    /^submissions at submissions\.example\.org: ok, circuit closed, [\d,.]+ exchanges per second$/,
  ).waitFor({ state: 'attached' });
  await page.getByLabel('Client').selectOption('archive');
  await link('abstracts: 2 rules').waitFor();
  expect(page.url()).toMatch(/#\/map\?client=archive$/);
  expect(await link(/^reporting/).count()).toBe(0);
  await link(/^abstracts: down, /).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'abstracts' }).waitFor();

  await page.goto(`${control.origin}/#/workers`);
  await page.getByText('1 of 2 serve').waitFor();
  expect(await page.getByRole('row', { name: /^worker 1, pid 4711/ }).innerText()).toMatch(
    /● ok[\s\S]+170 MiB/,
  );
  await checkLooks(page);
  await page.goto(`${control.origin}/#/certificates`);
  await page.getByRole('row', { name: /submissions .*CN=submissions\.example\.org/ }).waitFor();
  await checkLooks(page);
  await page.goto(`${control.origin}/#/errors`);
  await page.getByRole('link', { name: 'upstream-tls', exact: true }).click();
  await page.getByRole('heading', { level: 1, name: 'upstream-tls' }).waitFor();
  await page.getByText('The TLS connection to the upstream cannot be trusted').waitFor();
  await checkLooks(page);
  await page.goto(`${control.origin}/#/errors/none`);
  await page.getByText('The gateway has no error of this code.').waitFor();
  expect(pageErrors).toEqual([]);
});

test('the map leads to the deployments that it leaves out, and from unknown clients to what was refused to them', async () => {
  const { metrics, values } = countedMetrics();
  const deployments = Array.from({ length: 22 }, (_, index) => healthyDeployment(`d${index}`));
  const source: SourceChange = { values, rules: () => RULES.slice(0, 1), state: () => ({ deployments }) };
  const control = await closedAtEnd(startControl({ consoleFolder, console: source }));
  metrics.requests.inc({ ...request, status: '403', code: 'client-unknown', deployment: '', client: '' });
  const { page } = await openPage(WIDE);
  await page.goto(`${control.origin}/#/map`);
  const unknown = page.getByRole('link', { name: /^unknown clients to no deployment: / });
  expect(await unknown.getAttribute('href')).toBe('#/clients');
  await page.getByRole('link', { name: '2 more deployments' }).click();
  await page.getByRole('link', { name: 'd21', exact: true }).waitFor();
});

function fail(error: unknown): never {
  throw error;
}
