import { readFileSync } from 'node:fs';

const text = (name: string): string => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');

/** Files of the Helm chart that are copies, by their path in the repository: a chart can read only its own folder. */
export function chartFiles(): Map<string, string> {
  const files = 'deploy/helm/digest-gateway/files';
  return new Map([
    [`${files}/alerts.yml`, text('deploy/prometheus/alerts.yml')],
    [`${files}/dashboard.json`, text('deploy/grafana/digest-gateway.json')],
  ]);
}
