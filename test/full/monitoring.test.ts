import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { Metrics } from '../../src/metrics/metrics.ts';
import { WitnessMetrics } from '../../src/witness/metrics.ts';
import { runCommand } from '../support/program.ts';
import { repository } from '../support/repository.ts';

const folder = join(repository, 'deploy');
const read = (name: string): Promise<string> => readFile(join(folder, name), 'utf8');

interface Rule {
  readonly alert?: string;
  readonly record?: string;
  readonly expr: string;
  readonly annotations?: Readonly<Record<string, string>>;
}

interface Panel {
  readonly id: number;
  readonly title: string;
  readonly description?: string;
  readonly links?: readonly { readonly url: string }[];
  readonly targets?: readonly { readonly expr: string }[];
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
}

const rules: Rule[] = parse(await read('prometheus/alerts.yml')).groups.flatMap(
  (group: { rules: Rule[] }) => group.rules,
);
const alerts = rules.filter(({ alert }) => alert !== undefined);
const dashboard = JSON.parse(await read('grafana/digest-gateway.json'));
const panels: Panel[] = dashboard.panels;
const dashboardQueries = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));

const { registry } = new Metrics({ version: 'test', node: 'v0' });
const ofWitness = new WitnessMetrics({ all: [] }).registry;
const instruments = [...(await registry.getMetricsAsJSON()), ...(await ofWitness.getMetricsAsJSON())];

describe('the alerts', () => {
  test('are rules, and fire when they should', async () => {
    const file = join(folder, 'prometheus/alerts.test.yml');
    expect(await runCommand('promtool', ['test', 'rules', file])).toMatchObject({ status: 0 });
  });

  test.each(alerts.map(({ alert = '' }) => alert))('%s is seen to fire, and to stay quiet', async (alert) => {
    const { tests } = parse(await read('prometheus/alerts.test.yml'));
    const expected = tests.flatMap(({ alert_rule_test }: { alert_rule_test: AlertTest[] }) =>
      alert_rule_test
        .filter(({ alertname }) => alertname === alert)
        .map(({ exp_alerts }) => exp_alerts.length),
    );
    expect(new Set(expected)).toEqual(new Set([0, 1]));
  });

  test.each(alerts.map(({ alert = '', annotations }) => [alert, annotations?.['runbook_url'] ?? '']))(
    '%s has a section in the runbook',
    async (alert, url) => {
      const [file = '', anchor] = url.split('#');
      const headings = (await readFile(join(repository, file), 'utf8')).match(/(?<=^## ).*$/gm) ?? [];
      expect(anchor).toBe(alert.toLowerCase());
      expect(headings.map((heading) => heading.toLowerCase())).toContain(anchor);
    },
  );

  test('every section of the runbook is for an alert, and its links lead somewhere', async () => {
    const runbook = await readFile(join(repository, 'docs/operate/runbook.md'), 'utf8');
    const names = alerts.map(({ alert }) => alert);
    expect(runbook.match(/(?<=^## ).*$/gm)).toEqual(expect.arrayContaining(names));
    expect(runbook.match(/(?<=^## ).*$/gm)).toHaveLength(names.length);
    const anchors = runbook.match(/(?<=\]\(#)[^)]+/g) ?? [];
    expect(anchors.filter((anchor) => !names.some((name) => name?.toLowerCase() === anchor))).toEqual([]);
  });
});

interface AlertTest {
  readonly alertname: string;
  readonly exp_alerts: readonly unknown[];
}

describe('every query names metrics and labels that exist', () => {
  test.each([...rules.map(({ expr }) => expr), ...dashboardQueries])('%s', (expr) => {
    expect(unknownParts(expr)).toEqual([]);
  });

  test('and the check sees those that do not', () => {
    expect(unknownParts('rate(digest_gateway_request_total[5m])')).toEqual(['digest_gateway_request_total']);
    expect(unknownParts('digest_gateway_request_duration_seconds')).toEqual([
      'digest_gateway_request_duration_seconds',
    ]);
    expect(unknownParts('digest_gateway_store_up{site="a"}')).toEqual(['digest_gateway_store_up{site}']);
    expect(unknownParts('sum by (site) (digest_gateway_store_up)')).toEqual(['by (site)']);
  });
});

/** Names of metrics and labels in an expression that no instrument has. */
function unknownParts(expr: string): string[] {
  const series = labelsByMetric();
  const selectors = Array.from(
    expr.matchAll(/\b((?:\w+:)?(?:digest_gateway|process|nodejs)_[\w:]+)(?:\{([^}]*)\})?/g),
    ([, metric = '', matchers = '']) => ({ metric, own: series.get(metric), matchers }),
  );
  const known = new Set(selectors.flatMap(({ own = [] }) => [...own]));
  const grouped = Array.from(expr.matchAll(/\bby \(([^)]*)\)/g), ([, list = '']) =>
    list.split(/,\s*/),
  ).flat();
  return [
    ...selectors.flatMap(({ metric, own, matchers }) =>
      own === undefined
        ? [metric]
        : labelsIn(matchers).flatMap((label) => (own.has(label) ? [] : [`${metric}{${label}}`])),
    ),
    ...(known.size === 0 ? [] : grouped.flatMap((label) => (known.has(label) ? [] : [`by (${label})`]))),
  ];
}

function labelsIn(matchers: string): string[] {
  return Array.from(matchers.matchAll(/(\w+)\s*(?:=~|!=|!~|=)/g), ([, label = '']) => label);
}

/** The labels of each series name that `/metrics` and the recording rules have. */
function labelsByMetric(): Map<string, Set<string>> {
  const series = new Map<string, Set<string>>();
  for (const { record = '' } of rules) series.set(record, new Set(['deployment']));
  for (const { name, type } of instruments) {
    const metric = registry.getSingleMetric(name) ?? ofWitness.getSingleMetric(name);
    const { labelNames } = metric as unknown as { labelNames: readonly string[] };
    const own = [...labelNames, 'instance', 'job'];
    if (String(type) !== 'histogram') series.set(name, new Set(own));
    else
      for (const part of ['bucket', 'sum', 'count']) series.set(`${name}_${part}`, new Set([...own, 'le']));
  }
  return series;
}

describe('the dashboard', () => {
  test('has links to the console and to sections of the runbook that exist', async () => {
    const variables = new Map<string, string>(
      dashboard.templating.list.map(({ name, query }: { name: string; query: string }) => [name, query]),
    );
    const links: { url: string }[] = [...dashboard.links, ...panels.flatMap(({ links = [] }) => links)];
    const urls = links.map(({ url }) => url.replace(/\$\{(\w+)\}/g, (_, name) => variables.get(name) ?? ''));
    expect(urls).toContain('http://127.0.0.1:8081/');
    const [runbooks] = [urls.filter((url) => !url.startsWith('http'))];
    expect(runbooks).toContain('docs/operate/runbook.md');
    expect(runbooks.length).toBeGreaterThan(15);
    for (const url of runbooks) {
      const [file = '', anchor] = url.split('#');
      const text = await readFile(join(repository, file), 'utf8');
      const anchors = (text.match(/(?<=^## ).*$/gm) ?? []).map((heading) => heading.toLowerCase());
      if (anchor !== undefined) expect(anchors).toContain(anchor);
    }
  });

  test('shows every metric of the gateway', () => {
    const own = instruments.map(({ name }) => name).filter((name) => name.startsWith('digest_gateway_'));
    expect(own.filter((name) => !dashboardQueries.some((expr) => expr.includes(name)))).toEqual([]);
  });

  test('has panels that do not overlap, each with a title and a source that is provisioned', async () => {
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, cell) => `${x + (cell % w)},${y + Math.floor(cell / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
    expect(panels.filter(({ title }) => title === '')).toEqual([]);
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    const { datasources } = parse(await read('grafana/provisioning/datasources/prometheus.yml'));
    const [source] = dashboard.templating.list;
    expect(source).toMatchObject({ type: 'datasource', current: { value: datasources[0].uid } });
  });
});
