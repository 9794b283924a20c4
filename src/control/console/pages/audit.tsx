import { useId, useState } from 'preact/hooks';
import type { EventRow, RequestRow } from '../../audit-view.ts';
import type { AuditLine, AuditView, ChainView } from '../../view.ts';
import { count, counted, momentWithSeconds, timeOfDay } from '../format.ts';
import { auditLines, snapshot } from '../live.ts';
import { clientLink, deploymentLink, type PageProps, requestLink, searchLink } from '../parts/links.tsx';
import { MoreButton, SearchProgress, useSearch, WithoutAudit } from '../parts/search.tsx';
import { type Column, Table } from '../parts/table.tsx';

/** Maximum number of lines that are shown. */
const SHOWN = 100;

const LINE_KINDS = [
  ['', 'responses and events'],
  ['refused', 'refused or failed'],
  ['admin', 'the gateway itself'],
  ['all', 'everything, outcomes too'],
] as const;

const CHAIN: Readonly<Record<ChainView['state'], string>> = {
  intact: 'ok',
  altered: 'down',
};

const LINE_COLUMNS: readonly Column<AuditLine>[] = [
  { label: 'Time', cell: ({ time }) => timeOfDay(Date.parse(time)), class: 'whole' },
  {
    label: 'Client',
    cell: ({ kind, client }) => (kind === 'admin' ? 'the gateway' : clientLink(client)),
    class: 'whole',
  },
  {
    label: 'Deployment',
    cell: ({ deployment, site }) => (
      <span>
        {deploymentLink(deployment)} {searchLink('site', site)}
      </span>
    ),
  },
  { label: 'Request', cell: requestText },
  {
    label: 'Status',
    cell: ({ status, code }) => `${status === 0 ? '' : status} ${code}`.trim(),
    class: 'status whole',
  },
  { label: 'Request id', cell: ({ requestId, time }) => requestLink(requestId, time), class: 'whole' },
];

/** The search in the audit log; without a search, its new lines as they come. */
export function AuditPage({ query }: PageProps) {
  const [round, setRound] = useState(0);
  const audit = snapshot.value?.audit;
  if (audit === undefined) return null;
  if (audit === null) return <WithoutAudit done="shown" />;
  return (
    <>
      <AuditForm key={String(query)} query={query} onRepeat={() => setRound(round + 1)} />
      {query.size === 0 ? (
        <NewLines audit={audit} />
      ) : (
        <AuditResults key={`${round} ${query}`} query={query} />
      )}
    </>
  );
}

function NewLines({ audit }: { readonly audit: AuditView }) {
  const [kind, setKind] = useState('');
  const rows = auditLines.value.filter((line) => isKind(line, kind)).toReversed();
  return (
    <section class="panel" aria-label="Audit log">
      <Chain audit={audit} />
      <label>
        Show{' '}
        <select value={kind} onChange={({ currentTarget }) => setKind(currentTarget.value)}>
          {LINE_KINDS.map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <Table
        label="Audit lines"
        columns={LINE_COLUMNS}
        rows={rows}
        keyOf={({ seq, time }) => `${seq} ${time}`}
        textOf={(line) => Object.values(line).join(' ')}
        rowClass={({ code, status }) => (code !== '' || status >= 400 ? 'failed' : '')}
        noun="line"
        limit={SHOWN}
        empty="No lines yet."
      />
    </section>
  );
}

function Chain({ audit: { chain, records, failures, failing } }: { readonly audit: AuditView }) {
  return (
    <>
      <p class={CHAIN[chain.state]}>
        Chain {chain.state}: {chain.detail}
      </p>
      <p class="muted">
        {counted(records, 'record')} since the start, {count(failures)} not written.
        {failing !== undefined && ` Records cannot be written: ${failing}.`}
      </p>
    </>
  );
}

function isKind({ kind, code, status }: AuditLine, wanted: string): boolean {
  if (wanted === 'refused') return code !== '' || status >= 400;
  return wanted === 'all' || kind === wanted || (wanted === '' && kind !== 'outcome');
}

function requestText({ operation, method, path, kind }: AuditLine): string {
  if (kind === 'admin') return operation;
  return operation === '' ? `${method} ${path}` : `${operation} (${method} ${path})`;
}

/** A criterion of the search: its name in the address, its label, and an example of a value. */
type Field = readonly [name: string, label: string, example?: string];

const FIRST: readonly Field[] = [
  ['identifier', 'Identifier', 'MS-2026-0042'],
  ['requestId', 'Request id'],
  ['client', 'Client'],
  ['from', 'From', '2d ago, 2026-03-01'],
  ['to', 'To', '2026-03-01T08:00Z'],
];

const MORE: readonly Field[] = [
  ['deployment', 'Deployment'],
  ['site', 'Site'],
  ['operation', 'Operation'],
  ['address', 'Client address', '192.0.2.7'],
  ['status', 'Status', '404, 4xx, 400-499'],
  ['code', 'Error code', 'rate-limited'],
  ['outcome', 'Outcome'],
  ['replica', 'Replica', 'gateway-1'],
  ['text', 'Any text'],
];

const RESULT_KINDS = [
  ['requests', 'requests'],
  ['events', 'events of the gateway'],
  ['all', 'both'],
] as const;

/** The names of all criteria. */
const CRITERIA: readonly string[] = [...FIRST, ...MORE].map(([name]) => name).concat('kind');

interface AuditFormProps {
  readonly query: URLSearchParams;
  /** Called when the same search is submitted again, since the address does not change then. */
  readonly onRepeat: () => void;
}

/** The form of the search. Its state is the address of the page, so a search can be sent to others. */
function AuditForm({ query, onRepeat }: AuditFormProps) {
  const lists = useId();
  const isOpen = MORE.some(([name]) => query.has(name));
  const now = snapshot.value;
  const known: Readonly<Record<string, readonly string[]>> = {
    client: now?.clients.map(({ name }) => name).filter((name) => name !== '') ?? [],
    deployment: now?.deployments.map(({ name }) => name) ?? [],
  };
  const field = ([name, label, example = '']: Field) => (
    <label key={name}>
      {label}
      <input
        name={name}
        type="search"
        spellcheck={false}
        autocapitalize="off"
        placeholder={example}
        defaultValue={query.get(name) ?? ''}
        list={name in known ? `${lists}${name}` : undefined}
      />
    </label>
  );
  return (
    <form
      class="panel search"
      aria-label="Search"
      onSubmit={(event) => {
        event.preventDefault();
        const wanted = queryOf(new FormData(event.currentTarget));
        if (String(wanted) === String(query)) onRepeat();
        else location.hash = `/audit?${wanted}`;
      }}
    >
      <div class="fields">{FIRST.map(field)}</div>
      <details open={isOpen}>
        <summary>More criteria</summary>
        <div class="fields">{MORE.map(field)}</div>
      </details>
      <div class="filters">
        <label>
          Find{' '}
          <select name="kind" defaultValue={query.get('kind') ?? 'requests'}>
            {RESULT_KINDS.map(([value, label]) => (
              <option key={value} value={value} selected={value === query.get('kind')}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <button type="submit" class="primary">
          Search
        </button>
        {query.size > 0 && <a href="#/audit">New lines as they come</a>}
      </div>
      {Object.entries(known).map(([name, values]) => (
        <datalist key={name} id={`${lists}${name}`}>
          {values.map((value) => (
            <option key={value} value={value} />
          ))}
        </datalist>
      ))}
    </form>
  );
}

function queryOf(form: FormData): URLSearchParams {
  const query = new URLSearchParams();
  for (const name of CRITERIA) {
    const value = String(form.get(name) ?? '').trim();
    if (value !== '') query.set(name, value);
  }
  return query;
}

type Row = RequestRow | EventRow;

const RESULT_COLUMNS: readonly Column<Row>[] = [
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
function AuditResults({ query }: { readonly query: URLSearchParams }) {
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
            columns={RESULT_COLUMNS}
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
