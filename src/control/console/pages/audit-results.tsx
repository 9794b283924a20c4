import type { EventRow, RequestRow } from '../../audit-view.ts';
import { momentWithSeconds } from '../format.ts';
import { clientLink, deploymentLink, requestLink, searchLink } from '../parts/links.tsx';
import { MoreButton, SearchProgress } from '../parts/search-progress.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { useSearch } from '../search.ts';
import { CRITERIA } from './audit-form.tsx';

type Row = RequestRow | EventRow;

const COLUMNS: readonly Column<Row>[] = [
  { label: 'Time', cell: ({ time }) => momentWithSeconds(Date.parse(time)), class: 'whole' },
  {
    label: 'Client',
    cell: (row) => (row.kind === 'admin' ? 'the gateway' : clientLink(row.client)),
    class: 'whole',
  },
  { label: 'Deployment', cell: (row) => (row.kind === 'admin' ? null : placeOf(row)) },
  { label: 'Request', cell: (row) => (row.kind === 'admin' ? eventText(row) : operationOf(row)) },
  { label: 'Status', cell: (row) => (row.kind === 'admin' ? null : endOf(row)), class: 'status whole' },
  {
    label: 'Request id',
    cell: (row) => (row.kind === 'admin' ? null : requestLink(row.requestId, row.time)),
    class: 'whole',
  },
];

/** The results of a search, the newest first, with its progress and the links of its export. */
export function AuditResults({ query }: { readonly query: URLSearchParams }) {
  const criteria = criteriaOf(query);
  const search = useSearch(`/api/audit/search?${criteria}`);
  const range = query.has('from') || query.has('to') ? 'The whole time range' : 'The whole log';
  const exported = (format: string) => `/api/audit/export?${criteria}&format=${format}`;
  return (
    <section class="panel" aria-label="Results">
      <SearchProgress search={search} noun="result" range={range} />
      {search.rows.length > 0 && (
        <>
          <p class="small">
            Everything that this search finds, in order of time: <a href={exported('csv')}>export as CSV</a>,{' '}
            <a href={exported('jsonl')}>export as JSON lines</a>. Exports are recorded in the audit log.
          </p>
          <Table
            label="Results"
            columns={COLUMNS}
            rows={search.rows}
            keyOf={({ replica, seq }) => `${replica} ${seq}`}
            rowClass={(row) => (row.kind === 'access' && isFailed(row) ? 'failed' : '')}
            empty=""
          />
          <MoreButton search={search} />
        </>
      )}
    </section>
  );
}

/** Only what the server takes: an address that was edited by hand may have more. */
function criteriaOf(query: URLSearchParams): URLSearchParams {
  return new URLSearchParams([...query].filter(([name, value]) => value !== '' && CRITERIA.includes(name)));
}

/** On a phone a cell is a grid, so its content has to be one element. */
function placeOf({ deployment, site }: RequestRow) {
  return (
    <span>
      {deploymentLink(deployment)} {searchLink('site', site)}
    </span>
  );
}

function operationOf({ operation, method, path }: RequestRow) {
  const target = <span class="muted small">{`${method} ${path}`}</span>;
  if (operation === '') return target;
  return (
    <span>
      {searchLink('operation', operation)} {target}
    </span>
  );
}

function endOf({ status, code, outcome }: RequestRow) {
  const end = outcome ?? { status, code };
  return (
    <span>
      {end.status} {end.code !== '' && searchLink('code', end.code)}
      {outcome?.outcome !== undefined && searchLink('outcome', outcome.outcome)}
    </span>
  );
}

function isFailed({ status, code, outcome }: RequestRow): boolean {
  return (outcome ?? { code }).code !== '' || (outcome ?? { status }).status >= 400;
}

function eventText({ seq, time, kind, replica, event, ...details }: EventRow): string {
  const parts = Object.entries(details).map(([name, value]) => `${name}: ${textOf(value)}`);
  return [event, ...parts].join(', ');
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? 'none' : value.join(' ');
  return value instanceof Object ? JSON.stringify(value) : String(value);
}
