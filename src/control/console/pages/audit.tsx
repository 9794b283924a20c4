import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { printable } from '../../../base/printable.ts';
import type { EventRow, RequestRow } from '../../audit-view.ts';
import { bytes, latency, momentWithSeconds } from '../format.ts';
import { knownNames, snapshot } from '../live.ts';
import { NewLines, operationOf, placeOf } from '../parts/audit-lines.tsx';
import { clientLink, codeLink, type PageProps, requestHref, searchLink } from '../parts/links.tsx';
import { Choice, FieldFrame, Pending } from '../parts/panel.tsx';
import { MoreButton, SearchProgress, useSearch, WithoutAudit } from '../parts/search.tsx';
import { type Column, Table } from '../parts/table.tsx';

const PHONE = matchMedia('(max-width: 760px)');

/** The search in the audit log; without a search, its new lines as they come. */
export function AuditPage({ query }: PageProps) {
  const [round, setRound] = useState(0);
  const audit = snapshot.value?.audit;
  if (audit === undefined) return <Pending />;
  if (audit === null) return <WithoutAudit done="shown" />;
  const onRepeat = (): void => setRound(round + 1);
  return query.size === 0 ? (
    <>
      <AuditForm key="new" query={query} onRepeat={onRepeat} />
      <NewLines audit={audit} />
    </>
  ) : (
    <AuditSearch key={`${round} ${query}`} query={query} onRepeat={onRepeat} />
  );
}

const TIMES: readonly Field[] = [
  ['from', 'From', '2d ago'],
  ['to', 'To', '1h ago'],
];

const FIELDS: readonly Field[] = [
  ['identifier', 'Identifier', 'MS-2026-0042'],
  ['client', 'Client'],
  ['deployment', 'Deployment'],
  ['site', 'Site'],
  ['operation', 'Operation'],
  ['status', 'Status', '404, 4xx'],
  ['code', 'Error code', 'rate-limited'],
  ['requestId', 'Request id'],
  ['address', 'Client address', '192.0.2.7'],
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
const CRITERIA: readonly string[] = [...TIMES, ...FIELDS].map(([name]) => name).concat('kind');

interface AuditFormProps {
  readonly query: URLSearchParams;
  /** Called when the same search is submitted again, since the address does not change then. */
  readonly onRepeat: () => void;
  /** Names of the criteria that the gateway refused, and why. */
  readonly wrong?: readonly string[];
  readonly error?: string;
}

/** The form of the search. Its state is the address of the page, so a search can be sent to others. */
function AuditForm({ query, onRepeat, wrong = [], error = '' }: AuditFormProps) {
  const lists = useId();
  const known: Readonly<Record<string, readonly string[]>> = knownNames();
  const errorOf = (name: string): string => (wrong.includes(name) ? error : '');
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
      <div class="fields">
        {TIMES.map((field) => (
          <TimeField
            key={field[0]}
            field={field}
            value={query.get(field[0]) ?? ''}
            error={errorOf(field[0])}
          />
        ))}
        {FIELDS.map(([name, label, example = '']) => (
          <FieldFrame key={name} label={label} error={errorOf(name)}>
            {(shared) => (
              <input
                {...shared}
                name={name}
                type="search"
                spellcheck={false}
                autocapitalize="off"
                placeholder={example}
                defaultValue={query.get(name) ?? ''}
                list={name in known ? `${lists}${name}` : undefined}
              />
            )}
          </FieldFrame>
        ))}
        <Choice
          label="Find"
          error={errorOf('kind')}
          name="kind"
          value={query.get('kind') ?? 'requests'}
          options={RESULT_KINDS}
        />
      </div>
      <div class="filters">
        <button type="submit" class="primary">
          Search
        </button>
        {query.size > 0 && <a href="#/audit">New lines as they come</a>}
        <span class="muted small">
          From and To are UTC unless they name a zone. Results show the time of this browser.
        </span>
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

/** A column of which events have nothing. */
const ofRequests = (column: Omit<Column<RequestRow>, 'sortBy'>): Column<Row> => ({
  ...column,
  cell: (row) => (row.kind === 'admin' ? null : column.cell(row)),
});

const RESULT_COLUMNS: readonly Column<Row>[] = [
  { label: 'Time', cell: timeOf, class: 'whole' },
  {
    label: 'Client',
    cell: (row) => (row.kind === 'admin' ? 'the gateway' : clientLink(row.client)),
    class: 'whole',
  },
  ofRequests({ label: 'Deployment', cell: placeOf, class: 'named' }),
  { label: 'Request', cell: (row) => (row.kind === 'admin' ? eventText(row) : operationOf(row)) },
  ofRequests({ label: 'Identifiers', cell: identifiersOf }),
  ofRequests({ label: 'Status', cell: endOf, class: 'status beside' }),
  ofRequests({
    label: 'Duration',
    cell: ({ outcome }) => (outcome === undefined ? '–' : latency(outcome.durationMs / 1000)),
    numeric: true,
  }),
  ofRequests({
    label: 'Bytes',
    cell: ({ outcome }) => (outcome === undefined ? '–' : bytes(outcome.bytes.out)),
    numeric: true,
  }),
];

/** Search form and results, the newest first, with progress and the links of the export. */
function AuditSearch({ query, onRepeat }: Pick<AuditFormProps, 'query' | 'onRepeat'>) {
  const criteria = criteriaOf(query);
  const search = useSearch(`/api/audit/search?${criteria}`);
  const range = query.has('from') || query.has('to') ? 'The whole time range' : 'The whole log';
  const exported = (format: string) => `/api/audit/export?${criteria}&format=${format}`;
  const { rows, wrong = [], error = '' } = search;
  const results = useRef<HTMLElement>(null);
  useEffect(() => {
    // After the frame, since a page that is new scrolls to its top. On a phone the form would fill the screen.
    const frame = requestAnimationFrame(() => PHONE.matches && results.current?.scrollIntoView());
    return () => cancelAnimationFrame(frame);
  }, []);
  return (
    <>
      <AuditForm query={query} onRepeat={onRepeat} wrong={wrong} error={error} />
      {wrong.length === 0 && (
        <section class="panel" aria-label="Results" ref={results}>
          <SearchProgress search={search} noun="result" range={range} />
          {rows.length === 0 && search.stage === 'done' && (
            <p class="muted">Try a longer time range, or fewer criteria.</p>
          )}
          {rows.length > 0 && (
            <>
              <p class="small">
                Everything that this search finds, in order of time:{' '}
                <a href={exported('csv')}>export as CSV</a>,{' '}
                <a href={exported('jsonl')}>export as JSON lines</a>. Exports are recorded in the audit log.
              </p>
              <Table
                label="Results"
                columns={RESULT_COLUMNS}
                rows={rows}
                keyOf={({ replica, seq }) => `${replica} ${seq}`}
                rowClass={(row) => (row.kind === 'access' && isFailed(row) ? 'failed' : '')}
                empty=""
              />
              <MoreButton search={search} />
            </>
          )}
        </section>
      )}
    </>
  );
}

/** The time of a row, which leads to the page of its request. */
function timeOf(row: Row) {
  const text = momentWithSeconds(Date.parse(row.time));
  if (row.kind === 'admin') return text;
  return <a href={requestHref(row.requestId, row.time)}>{text}</a>;
}

/** Values of parameters in one row at most; the page of the request has all. */
const VALUES = 3;

/** The values that are recorded. */
function identifiersOf({ parameters, site }: RequestRow) {
  const values = Object.values(parameters)
    .flatMap((value) => value ?? [])
    .filter((value) => value !== site);
  if (values.length === 0) return null;
  const more = values.length - VALUES;
  return (
    <span class="small">
      {printable(values.slice(0, VALUES).join(', '))}
      {more > 0 && ` and ${more} more`}
    </span>
  );
}

/** Only what the server takes: an address that was edited by hand may have more. */
function criteriaOf(query: URLSearchParams): URLSearchParams {
  return new URLSearchParams([...query].filter(([name, value]) => value !== '' && CRITERIA.includes(name)));
}

function endOf({ status, code, outcome }: RequestRow) {
  const end = outcome ?? { status, code };
  return (
    <span>
      {end.status} {end.code !== '' && codeLink(end.code)}
      {outcome?.outcome !== undefined && searchLink('outcome', outcome.outcome)}
    </span>
  );
}

function isFailed({ status, code, outcome }: RequestRow): boolean {
  return (outcome ?? { code }).code !== '' || (outcome ?? { status }).status >= 400;
}

function eventText({ seq, time, kind, replica, event, ...details }: EventRow): string {
  const parts = Object.entries(details).map(([name, value]) => `${name}: ${textOf(value)}`);
  return printable([event, ...parts].join(', '));
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? 'none' : value.join(' ');
  return value instanceof Object ? JSON.stringify(value) : String(value);
}

/** A criterion of a form: its name in the address, its label, and an example of a value. */
type Field = readonly [name: string, label: string, example?: string];

interface TimeFieldProps {
  readonly field: Field;
  readonly value: string;
  readonly error: string;
}

/** A time as text, such as "2d ago", which the picker of the browser can write, too. */
function TimeField({ field: [name, label, example = ''], value, error }: TimeFieldProps) {
  const text = useRef<HTMLInputElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  return (
    <FieldFrame label={label} error={error}>
      {(shared) => (
        <span class="time">
          <input
            {...shared}
            ref={text}
            name={name}
            type="search"
            spellcheck={false}
            autocapitalize="off"
            placeholder={example}
            defaultValue={value}
          />
          <button
            type="button"
            aria-label={`Pick the time of ${label}`}
            onClick={() => picker.current?.showPicker()}
          >
            <span aria-hidden="true">▾</span>
          </button>
          <input
            ref={picker}
            class="picker"
            type="datetime-local"
            tabIndex={-1}
            aria-hidden="true"
            onChange={({ currentTarget }) => {
              // It is the time of this browser; the log has UTC.
              const at = new Date(currentTarget.value);
              if (text.current !== null && !Number.isNaN(at.getTime())) {
                text.current.value = `${at.toISOString().slice(0, 16)}Z`;
              }
            }}
          />
        </span>
      )}
    </FieldFrame>
  );
}
