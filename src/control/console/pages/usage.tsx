import { useState } from 'preact/hooks';
import type { UsageRow } from '../../../audit/reader/results.ts';
import { capitalized } from '../../../base/units.ts';
import type { UsageView } from '../../audit-view.ts';
import { useFetch } from '../api.ts';
import { bytes, count, counted, utcDate } from '../format.ts';
import { snapshot } from '../live.ts';
import { Chart, type ChartProps, Crosshair } from '../parts/charts.tsx';
import { clientLink, deploymentLink, type PageProps, searchLink } from '../parts/links.tsx';
import { Alert, Notes, Panel, Pending } from '../parts/panel.tsx';
import { WithoutAudit } from '../parts/search.tsx';
import { type Column, numbers, Table } from '../parts/table.tsx';

const FIELDS = ['client', 'deployment', 'site', 'operation', 'credential', 'address', 'status'] as const;
const DEFAULTS: readonly string[] = ['client', 'site', 'operation', 'credential'];
const DEFAULT_FROM = '30d';
const DAY_MS = 86_400_000;
/** Days of a chart at most; a clock that was wrong can make the log seem to be longer. */
const MAX_DAYS = 4_000;
/** A chart of less is as wide as this, in seconds. */
const LEAST_SECONDS = 604_800;

/** Usage, counted in the audit log: a table by the chosen fields, and charts by day. */
export function UsagePage({ query }: PageProps) {
  const audit = snapshot.value?.audit;
  if (audit === undefined) return <Pending />;
  if (audit === null) return <WithoutAudit done="counted" />;
  return (
    <>
      <UsageForm key={String(query)} query={query} />
      {query.has('by') && <UsageReport query={query} />}
    </>
  );
}

/** Its state is the address of the page, so a report can be sent to others. */
function UsageForm({ query }: { readonly query: URLSearchParams }) {
  const chosen = query.get('by')?.split(',') ?? DEFAULTS;
  return (
    <form
      class="panel search"
      aria-label="Usage"
      onSubmit={(event) => {
        event.preventDefault();
        location.hash = `/usage?${queryOf(new FormData(event.currentTarget))}`;
      }}
    >
      <fieldset class="checks">
        <legend>Count by</legend>
        {FIELDS.map((field) => (
          <label key={field}>
            <input type="checkbox" name="by" value={field} defaultChecked={chosen.includes(field)} />
            {field}
          </label>
        ))}
      </fieldset>
      <div class="fields">
        <label>
          From
          <input
            name="from"
            type="search"
            placeholder="30d, 2026-03"
            defaultValue={query.get('from') ?? (query.has('by') ? '' : DEFAULT_FROM)}
          />
        </label>
        <label>
          To
          <input name="to" type="search" placeholder="2026-03-31" defaultValue={query.get('to') ?? ''} />
        </label>
      </div>
      <div class="filters">
        <button type="submit" class="primary">
          Count
        </button>
        <span class="muted small">Reports are recorded in the audit log.</span>
      </div>
    </form>
  );
}

function queryOf(form: FormData): URLSearchParams {
  const by = form.getAll('by').map(String);
  const query = new URLSearchParams({ by: (by.length === 0 ? DEFAULTS : by).join(',') });
  for (const name of ['from', 'to']) {
    const value = String(form.get(name) ?? '').trim();
    if (value !== '') query.set(name, value);
  }
  return query;
}

function UsageReport({ query }: { readonly query: URLSearchParams }) {
  const path = `/api/audit/usage?${query}`;
  const { data, error, loading, reload } = useFetch<UsageView>(path);
  return (
    <Panel label="Report">
      <div class="filters">
        <span role="status">{loading ? 'Counting …' : data === undefined ? '' : summary(data)}</span>
        {error !== undefined && (
          <button type="button" onClick={reload}>
            Try again
          </button>
        )}
      </div>
      <Alert error={error} />
      <Notes label="What the report lacks" notes={data?.notes ?? []} />
      {data !== undefined && data.total.requests > 0 && (
        <>
          {data.daily.length > 1 && <DayCharts usage={data} />}
          <p class="small">
            All rows: <a href={`${path}&format=csv`}>download as CSV</a>.
          </p>
          <Table
            label="Usage"
            columns={columnsOf(data)}
            rows={[
              ...data.rows,
              ...(data.other === null ? [] : [{ ...data.other, values: data.by.map(() => '(other)') }]),
            ]}
            keyOf={({ values }) => values.join('\n')}
            textOf={({ values }) => values.join(' ')}
            empty=""
          />
        </>
      )}
    </Panel>
  );
}

function summary({ total }: UsageView): string {
  const { requests, identifiers, bytesOut, errors, days } = total;
  if (requests === 0) return 'No requests in this time.';
  return `${counted(requests, 'request')} on ${counted(days, 'day')}: ${counted(identifiers, 'identifier')}, ${bytes(bytesOut)} out, ${counted(errors, 'error')}.`;
}

function columnsOf({ by }: UsageView): Column<UsageRow>[] {
  return [
    ...by.map(
      (field, index): Column<UsageRow> => ({
        label: capitalized(field),
        cell: ({ values }) => linkOf(field, values[index] ?? ''),
        sortBy: ({ values }) => values[index] ?? '',
      }),
    ),
    numbers('Requests', ({ requests }) => requests, count),
    numbers('Identifiers', ({ identifiers }) => identifiers, count),
    numbers('Bytes out', ({ bytesOut }) => bytesOut, bytes),
    numbers('Bytes in', ({ bytesIn }) => bytesIn, bytes),
    numbers('Days', ({ days }) => days, count),
    { ...numbers('Errors', ({ errors }) => errors, count), cell: errorsOf },
  ];
}

function linkOf(field: string, value: string) {
  if (value === '(other)') return value;
  if (field === 'client') return clientLink(value);
  if (value === '') return '–';
  if (field === 'deployment') return deploymentLink(value);
  return field === 'credential' ? value : searchLink(field, value);
}

function errorsOf({ errors, statuses }: UsageRow) {
  if (errors === 0) return '0';
  const each = Object.entries(statuses).sort(([, a], [, b]) => b - a);
  const title = each.map(([status, times]) => `${status}: ${count(times)}`).join(', ');
  return (
    <span>
      {count(errors)} <span class="muted small">({title})</span>
    </span>
  );
}

function DayCharts({ usage }: { readonly usage: UsageView }) {
  const [cursor, setCursor] = useState<number>();
  const { times, days } = daysOf(usage);
  const seconds = Math.max(LEAST_SECONDS, ((times.at(-1) ?? 0) - (times[0] ?? 0)) / 1000);
  const charts: readonly Pick<ChartProps, 'title' | 'lines' | 'format'>[] = [
    {
      title: 'Requests per day',
      lines: [
        { label: 'requests', colour: 'blue', values: days.map((day) => day?.requests ?? 0) },
        { label: 'errors', colour: 'red', values: days.map((day) => day?.errors ?? 0) },
      ],
      format: count,
    },
    {
      title: 'Identifiers per day',
      lines: [{ label: 'identifiers', colour: 'violet', values: days.map((day) => day?.identifiers ?? 0) }],
      format: count,
    },
    {
      title: 'Bytes per day',
      lines: [
        { label: 'out', colour: 'green', values: days.map((day) => day?.bytesOut ?? 0) },
        { label: 'in', colour: 'orange', values: days.map((day) => day?.bytesIn ?? 0) },
      ],
      format: bytes,
    },
  ];
  return (
    <>
      <div class="toolbar">
        <Crosshair times={times} cursor={cursor} onCursor={setCursor} label="Day (UTC)" textOf={utcDate} />
      </div>
      <div class="charts">
        {charts.map((chart) => (
          <Chart
            key={chart.title}
            {...chart}
            label={chart.title}
            times={times}
            seconds={seconds}
            group="usage"
            cursor={cursor}
            onCursor={setCursor}
          />
        ))}
      </div>
    </>
  );
}

/** The days of the report and those between them, with their times at midnight UTC. */
function daysOf({ daily }: UsageView): {
  times: number[];
  days: (UsageView['daily'][number] | undefined)[];
} {
  const byTime = new Map(daily.map((each) => [Date.parse(each.day), each]));
  const last = Math.max(...byTime.keys());
  const first = Math.max(Math.min(...byTime.keys()), last - MAX_DAYS * DAY_MS);
  const times = Array.from({ length: (last - first) / DAY_MS + 1 }, (_, index) => first + index * DAY_MS);
  return { times, days: times.map((time) => byTime.get(time)) };
}
