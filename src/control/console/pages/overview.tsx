import type { DeploymentView, ErrorView, Sparklines, State } from '../../view.ts';
import { useFetch } from '../api.ts';
import { ago, count, counted, latency, rate } from '../format.ts';
import { snapshot } from '../live.ts';
import { deploymentLink, requestLink } from '../parts/links.tsx';
import { Badge } from '../parts/state.tsx';
import { type Column, Table } from '../parts/table.tsx';

const STATES = ['broken', 'degraded', 'ok'] as const satisfies readonly State[];
const BADNESS: Readonly<Record<State, number>> = { broken: 0, degraded: 1, ok: 2 };

const SPARKLINES_MS = 20_000;
/** Points of a sparkline: a quarter of an hour. */
const POINTS = 45;

type Row = DeploymentView & { readonly trend: Sparklines['deployments'][string] | undefined };

const COLUMNS: readonly Column<Row>[] = [
  { label: 'Deployment', cell: ({ name }) => deploymentLink(name), sortBy: ({ name }) => name },
  { label: 'State', cell: ({ state }) => <Badge state={state} />, sortBy: ({ state }) => BADNESS[state] },
  { label: 'Reason', cell: ({ reasons }) => reasons.join(' '), class: 'reason' },
  {
    label: 'Last 15 min',
    cell: ({ name, trend }) =>
      trend !== undefined && (
        <Sparkline
          label={`Requests and errors of ${name} in the last 15 minutes`}
          values={trend.requests}
          errors={trend.errors}
          length={POINTS}
        />
      ),
  },
  {
    label: 'Requests/s',
    cell: ({ perSecond }) => rate(perSecond.requests),
    sortBy: ({ perSecond }) => perSecond.requests,
    numeric: true,
  },
  {
    label: 'Errors/s',
    cell: ({ perSecond }) => rate(perSecond.errors),
    sortBy: ({ perSecond }) => perSecond.errors,
    numeric: true,
  },
  {
    label: 'p95',
    cell: ({ latency: taken }) => (taken === undefined ? '–' : latency(taken.p95)),
    sortBy: ({ latency: taken }) => taken?.p95 ?? -1,
    numeric: true,
  },
  {
    label: 'In flight',
    cell: ({ inFlight }) => count(inFlight),
    sortBy: ({ inFlight }) => inFlight,
    numeric: true,
  },
];

/** All deployments, the worst on top, and recent errors. */
export function OverviewPage() {
  const now = snapshot.value;
  const { data: trends } = useFetch<Sparklines>('/api/history', SPARKLINES_MS);
  if (now === undefined) return null;
  const rows = now.deployments
    .toSorted(worstFirst)
    .map((view): Row => ({ ...view, trend: trends?.deployments[view.name] }));
  return (
    <>
      <Summary state={now.gateway.state} deployments={now.deployments} />
      <section class="panel" aria-label="Deployments">
        <Table
          label="Deployments"
          columns={COLUMNS}
          rows={rows}
          keyOf={({ name }) => name}
          textOf={({ name, origin, state, reasons }) => [name, origin, state, ...reasons].join(' ')}
          noun="deployment"
          empty="No deployments are configured."
        />
      </section>
      <section aria-labelledby="errors-title">
        <h2 id="errors-title">Recent errors</h2>
        <div class="panel">
          <Errors errors={now.errors} now={now.at} />
        </div>
      </section>
    </>
  );
}

interface SummaryProps {
  /** State of the whole gateway. */
  readonly state: State;
  readonly deployments: readonly DeploymentView[];
}

/** One line that says whether all is well. */
function Summary({ state: whole, deployments }: SummaryProps) {
  const counts = Map.groupBy(deployments, ({ state }) => state);
  return (
    <p class="summary">
      {whole === 'ok' ? (
        <strong>All is well.</strong>
      ) : (
        <>
          <span>{counted(deployments.length, 'deployment')}:</span>
          {STATES.map((state) => {
            const number = counts.get(state)?.length ?? 0;
            return (
              number > 0 && (
                <span key={state}>
                  <Badge state={state} /> {count(number)}
                </span>
              )
            );
          })}
        </>
      )}
    </p>
  );
}

function worstFirst(a: DeploymentView, b: DeploymentView): number {
  return (
    BADNESS[a.state] - BADNESS[b.state] ||
    b.perSecond.errors - a.perSecond.errors ||
    a.name.localeCompare(b.name, 'en')
  );
}

/** Recent errors with advice. `now` is in Unix milliseconds. */
function Errors({ errors, now }: { readonly errors: readonly ErrorView[]; readonly now: number }) {
  if (errors.length === 0) return <p class="muted">No errors since the start.</p>;
  return (
    <ul class="errors">
      {errors.map(({ deployment, code, title, advice, count, lastAt, requestId }) => (
        <li key={`${deployment} ${code}`}>
          <div>
            <h3>
              {deployment !== '' && <>{deploymentLink(deployment)}: </>}
              {title} <code>{code}</code>
            </h3>
            <span class="muted">
              {counted(count, 'time')}, {ago((now - lastAt) / 1000)}
            </span>
          </div>
          <p>{advice}</p>
          <p class="muted small">last request {requestLink(requestId)}</p>
        </li>
      ))}
    </ul>
  );
}

const WIDTH = 120;
const HEIGHT = 24;

interface SparklineProps {
  /** Describes the line to screen readers. */
  readonly label: string;
  /** Oldest first; null: there is no value. */
  readonly values: readonly (number | null)[];
  /** Drawn over them, on the same scale. */
  readonly errors: readonly (number | null)[];
  /** Number of values of the whole width; fewer stand at the right. */
  readonly length: number;
}

/** A small line without axes. An SVG path costs less than a canvas, of which a page with 200 rows would have 200. */
function Sparkline({ label, values, errors, length }: SparklineProps) {
  const most = Math.max(0, ...values.map((value) => value ?? 0));
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
      <path class="blue" d={pathOf(values, most, length)} />
      {errors.some((value) => value !== null && value > 0) && (
        <path class="red" d={pathOf(errors, most, length)} />
      )}
    </svg>
  );
}

function pathOf(values: readonly (number | null)[], most: number, length: number): string {
  const first = length - values.length;
  const step = WIDTH / Math.max(1, length - 1);
  let pen = 'M';
  let path = '';
  values.forEach((value, index) => {
    if (value === null) {
      pen = 'M';
      return;
    }
    const x = ((first + index) * step).toFixed(1);
    const y = (HEIGHT - 2 - (most === 0 ? 0 : (value / most) * (HEIGHT - 4))).toFixed(1);
    // A point between two gaps is a line of no length, which round ends make visible.
    const isAlone = pen === 'M' && (values[index + 1] ?? null) === null;
    path += `${pen}${x} ${y}${isAlone ? 'h0' : ''}`;
    pen = 'L';
  });
  return path;
}
