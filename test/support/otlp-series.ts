import type { MetricsRequest } from './otlp-receiver.ts';

/** Values by the name of their series and its labels, as `/metrics` writes them; the labels are sorted. */
export type SeriesValues = Readonly<Record<string, number>>;

/** The metrics of an export. */
export function metricsOf({ resourceMetrics }: MetricsRequest) {
  const scopes = resourceMetrics.flatMap(({ scopeMetrics }) => scopeMetrics);
  return scopes.flatMap(({ metrics }) => metrics);
}

/** The values of the gateway's own metrics in the text of `/metrics`. */
export function seriesOfText(text: string): SeriesValues {
  const lines = text.split('\n').filter((line) => line.startsWith('digest_gateway_'));
  return Object.fromEntries(
    lines.map((line) => {
      const [, name = '', labels = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
      const pairs = Array.from(labels.matchAll(/(\w+)="([^"]*)"/g), ([, key, text]) => `${key}=${text}`);
      return [keyOf(name, pairs), Number(value)];
    }),
  );
}

/** The values of the gateway's own metrics in an export. A histogram has the series that `/metrics` has for it. */
export function seriesOfExport(request: MetricsRequest): SeriesValues {
  const own = metricsOf(request).filter(({ name }) => name.startsWith('digest_gateway_'));
  return Object.fromEntries(own.flatMap((metric) => [...seriesOf(metric)]));
}

function* seriesOf(metric: ReturnType<typeof metricsOf>[number]): Generator<[string, number]> {
  const { name } = metric;
  if (!('histogram' in metric)) {
    const { dataPoints } = 'gauge' in metric ? metric.gauge : metric.sum;
    for (const { attributes, asDouble } of dataPoints)
      yield [keyOf(name, pairsOf(attributes)), Number(asDouble)];
    return;
  }
  for (const { attributes, count, sum, bucketCounts, explicitBounds } of metric.histogram.dataPoints) {
    const pairs = pairsOf(attributes);
    let cumulative = 0;
    for (const [at, observed] of bucketCounts.entries()) {
      cumulative += Number(observed);
      yield [keyOf(`${name}_bucket`, [...pairs, `le=${explicitBounds[at] ?? '+Inf'}`]), cumulative];
    }
    yield [keyOf(`${name}_sum`, pairs), Number(sum)];
    yield [keyOf(`${name}_count`, pairs), Number(count)];
  }
}

function pairsOf(attributes: readonly { key: string; value: { stringValue: string } }[]): string[] {
  return attributes.map(({ key, value }) => `${key}=${value.stringValue}`);
}

function keyOf(name: string, pairs: readonly string[]): string {
  return [name, ...pairs.toSorted()].join(' ');
}
