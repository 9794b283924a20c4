import type { Explanation, Granted, Refused } from '../app/explanation.ts';
import { alignColumns } from './table.ts';

/** Formats the explanation as text lines. */
export function explanationLines(explanation: Explanation): string[] {
  const rows = explanation.allowed ? grantRows(explanation) : refusalRows(explanation);
  return alignColumns(rows.filter(([, value]) => value !== ''));
}

type Row = readonly [name: string, value: string];

function grantRows(granted: Granted): Row[] {
  const { client, deployment, rule, operation, site, credential, sends, siteAdded, parameters, limits } =
    granted;
  return [
    ['allowed', `by ${rule}`],
    ['client', client],
    ['deployment', deployment],
    ['operation', operation || 'none that is listed'],
    ['site', `${site}${siteAdded ? ' (added)' : ''}`],
    ['credential', credential],
    ['sends', sends],
    ...limits.map((text): Row => ['limit', text]),
    ...Object.entries(parameters).map(([name, value]): Row => [name, `= ${JSON.stringify(value)}`]),
  ];
}

function refusalRows({ client, deployment, rule, status, code, detail }: Refused): Row[] {
  return [
    ['refused', `${status} ${code}`],
    ['because', detail],
    ['decided by', rule],
    ['client', client],
    ['deployment', deployment],
  ];
}
