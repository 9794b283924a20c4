import type { ComponentChildren } from 'preact';
import { ownEntry } from '../../../base/maps.ts';
import { span } from '../../../base/units.ts';
import {
  type DeploymentView,
  type ErrorView,
  type History,
  type SeriesName,
  type Snapshot,
  type Sparklines,
  STATES,
  type State,
} from '../../view.ts';
import { useFetch } from '../api.ts';
import { count, counted, latency, percent, rate } from '../format.ts';
import { snapshot } from '../live.ts';
import { Errors } from '../parts/errors.tsx';
import { deploymentLink } from '../parts/links.tsx';
import { Panel, Pending } from '../parts/panel.tsx';
import { Badge, NextStep } from '../parts/state.tsx';
import { type Column, numbers, Table } from '../parts/table.tsx';

const SPARKLINES_MS = 5_000;
/** Deployments that need no filter. */
const FEW = 8;

type Row = DeploymentView & { readonly trend: Sparklines['deployments'][string] | undefined };

const COLUMNS: readonly Column<Row>[] = [
  { label: 'Deployment', cell: ({ name }) => deploymentLink(name), sortBy: ({ name }) => name },
  {
    label: 'State',
    cell: ({ state }) => <Badge state={state} />,
    sortBy: ({ state }) => STATES.indexOf(state),
    class: 'beside',
  },
  {
    label: 'Reason',
    cell: ({ reasons, next }) => (
      <span>
        {reasons.join(' ')}
        <NextStep next={next} />
      </span>
    ),
    class: 'bare',
  },
  {
    label: 'Trend',
    cell: ({ name, trend }) =>
      trend !== undefined && (
        <Sparkline
          label={`Requests and errors of ${name} in up to 15 minutes`}
          values={trend.requests}
          errors={trend.errors}
        />
      ),
    class: 'bare',
  },
  numbers('Requests/s', ({ perSecond }) => perSecond.requests, rate),
  {
    ...numbers('Errors/s', ({ perSecond }) => perSecond.errors, rate),
    cell: ({ perSecond }) => <span class={perSecond.errors > 0 ? 'down' : ''}>{rate(perSecond.errors)}</span>,
  },
  numbers(
    'p95',
    ({ latency: taken }) => taken?.p95 ?? -1,
    (p95) => (p95 < 0 ? '–' : latency(p95)),
  ),
  numbers('In flight', ({ inFlight }) => inFlight, count),
];

/** Recent errors that the overview shows; the page of errors has all. */
const ERRORS = 3;

/** In the order in which operators look: traffic, deployments with the worst on top, then recent errors. */
export function OverviewPage() {
  const now = snapshot.value;
  const { data: trends } = useFetch<Sparklines>('/api/history', SPARKLINES_MS);
  if (now === undefined) return <Pending />;
  const rows = now.deployments
    .toSorted(worstFirst)
    .map((view): Row => ({ ...view, trend: trends && ownEntry(trends.deployments, view.name) }));
  const failures = now.errors.filter(({ status }) => status >= 500);
  const refusals = now.errors.filter(({ status }) => status < 500);
  return (
    <>
      <Summary state={now.gateway.state} deployments={now.deployments} />
      <Traffic total={now.total} history={trends?.total} />
      <Panel label="Deployments">
        <Table
          label="Deployments"
          columns={COLUMNS}
          rows={rows}
          keyOf={({ name }) => name}
          {...(rows.length > FEW && {
            textOf: (row: Row) => [row.name, row.origin, row.state, ...row.reasons].join(' '),
          })}
          noun="deployment"
          empty="No deployments are configured."
        />
      </Panel>
      <div class="panels">
        <Recent
          title="Recent errors"
          errors={failures}
          now={now.at}
          empty="No request has failed since the start."
        />
        <Recent
          title="Refused to clients"
          errors={refusals}
          now={now.at}
          empty="No request was refused since the start."
        />
      </div>
    </>
  );
}

interface TrafficProps {
  readonly total: Snapshot['total'];
  /** Undefined until it was fetched. */
  readonly history: History | undefined;
}

/** The traffic of all deployments in five small charts. */
function Traffic({ total, history }: TrafficProps) {
  const { perSecond, latency: taken, reuse, inFlight } = total;
  const times = history?.times ?? [];
  const of = (...names: SeriesName[]): (number | null)[] =>
    times.map((_, index) => {
      const values = names.flatMap((name) => history?.series[name][index] ?? []);
      return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0);
    });
  return (
    <div class="tiles">
      <Tile
        title="Requests"
        value={perSecondText(perSecond.requests)}
        note={`${count(inFlight)} in flight`}
        colour="blue"
        times={times}
        values={of('2xx', '3xx', '4xx', '5xx')}
        format={rate}
      />
      <Tile
        title="Errors"
        value={<span class={perSecond.errors > 0 ? 'down' : ''}>{perSecondText(perSecond.errors)}</span>}
        note={`${rate(perSecond.refused)}/s refused to clients`}
        colour="red"
        times={times}
        values={of('5xx')}
        format={rate}
      />
      <Tile
        title="Latency p95"
        value={taken === undefined ? '–' : latency(taken.p95)}
        note={taken === undefined ? 'no request now' : `median ${latency(taken.p50)}`}
        colour="violet"
        times={times}
        values={of('p95')}
        format={latency}
      />
      <Tile
        title="Challenges"
        value={perSecondText(perSecond.challenges)}
        note="obtained from upstreams"
        colour="orange"
        times={times}
        values={of('challenges')}
        format={rate}
      />
      <Tile
        title="Nonce reuse"
        value={reuse === null ? '–' : percent(reuse)}
        note="needed no challenge"
        colour="green"
        times={times}
        values={of('reuse')}
        most={1}
        format={percent}
      />
    </div>
  );
}

function perSecondText(value: number) {
  return (
    <>
      {rate(value)}
      <span class="unit">/s</span>
    </>
  );
}

interface RecentProps {
  readonly title: string;
  readonly errors: readonly ErrorView[];
  /** Unix milliseconds. */
  readonly now: number;
  readonly empty: string;
}

function Recent({ title, errors, now, empty }: RecentProps) {
  return (
    <Panel heading={title} class="half">
      <Errors errors={errors} now={now} limit={ERRORS} empty={empty} />
      {errors.length > ERRORS && (
        <p class="small">
          <a href="#/errors">All {count(errors.length)}</a>
        </p>
      )}
    </Panel>
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

/** Not by rates, which would move the rows every second. */
function worstFirst(a: DeploymentView, b: DeploymentView): number {
  return STATES.indexOf(a.state) - STATES.indexOf(b.state) || a.name.localeCompare(b.name, 'en');
}

/** Length of the axis in milliseconds; of a shorter history, its own length, and this at least. */
const MOST_MS = 900_000;
const LEAST_MS = 30_000;

const WIDTH = 240;
const HEIGHT = 56;
/** Room above the highest point, so that its line is whole. */
const TOP = 3;

interface TileProps {
  readonly title: string;
  /** The present value. */
  readonly value: ComponentChildren;
  /** More about it in a few words. */
  readonly note: string;
  /** Name of a colour in style.css. */
  readonly colour: string;
  /** Unix milliseconds, ascending. */
  readonly times: readonly number[];
  /** One value for each time; null: there is none. */
  readonly values: readonly (number | null)[];
  /** The upper end of the scale; left out: the highest value. */
  readonly most?: number;
  readonly format: (value: number) => string;
}

/** A number that one looks for first, with its last quarter of an hour, or as much of it as there is. */
function Tile({ title, value, note, colour, times, values, most, format }: TileProps) {
  const known = values.filter((each) => each !== null);
  const highest = Math.max(0, ...known);
  const last = times.at(-1) ?? 0;
  const length = Math.min(MOST_MS, Math.max(LEAST_MS, last - (times[0] ?? last)));
  const top = most ?? highest;
  const runs = runsOf(values, (value, index) => {
    const x = (((times[index] ?? 0) - last + length) / length) * WIDTH;
    return x < 0 ? undefined : [x, HEIGHT - 1 - (value / (top || 1)) * (HEIGHT - 1 - TOP)];
  });
  const areas = runs.map((points) => `M${points[0]?.[0].toFixed(1)} ${HEIGHT}L${textOf(points)}V${HEIGHT}Z`);
  const range =
    known.length === 0 ? 'no values yet' : `from ${format(Math.min(...known))} to ${format(highest)}`;
  return (
    <Panel heading={title} class={`tile ${colour}`}>
      <p class="value">{value}</p>
      <p class="muted small">{note}</p>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}, the last ${span(length / 1000)}: ${range}`}
      >
        <path class="area" d={areas.join('')} />
        <path class="line" d={lineOf(runs)} />
      </svg>
      <p class="axis small muted" aria-hidden="true">
        <span>{span(length / 1000)} ago</span>
        <span>{known.length === 0 ? '' : `max ${format(highest)}`}</span>
        <span>now</span>
      </p>
    </Panel>
  );
}

const SPARK = { width: 120, height: 24 } as const;
/** Points of the axis of a sparkline at least. */
const POINTS = 6;

interface SparklineProps {
  /** Describes the line to screen readers. */
  readonly label: string;
  /** Oldest first; null: there is no value. */
  readonly values: readonly (number | null)[];
  /** Drawn over them, on the same scale. */
  readonly errors: readonly (number | null)[];
}

/** A small line without axes. An SVG path costs less than a canvas, of which a page with 200 rows would have 200. */
function Sparkline({ label, values, errors }: SparklineProps) {
  const { width, height } = SPARK;
  const length = Math.max(POINTS, values.length);
  const most = Math.max(0, ...values.map((value) => value ?? 0)) || 1;
  const first = length - values.length;
  const step = width / Math.max(1, length - 1);
  const path = (of: typeof values): string =>
    lineOf(
      runsOf(of, (value, index) => [(first + index) * step, height - 2 - (value / most) * (height - 4)]),
    );
  return (
    <svg
      class="sparkline"
      viewBox={`0 0 ${width} ${height}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <path class="blue" d={path(values)} />
      {errors.some((value) => value !== null && value > 0) && <path class="red" d={path(errors)} />}
    </svg>
  );
}

type Point = readonly [x: number, y: number];

/** The points of a line, with gaps where there is no value. `place`: undefined if its point is not to be seen. */
function runsOf(
  values: readonly (number | null)[],
  place: (value: number, index: number) => Point | undefined,
): Point[][] {
  const runs: Point[][] = [];
  let run: Point[] = [];
  for (const [index, value] of values.entries()) {
    const point = value === null ? undefined : place(value, index);
    if (point === undefined) run = [];
    else if (run.push(point) === 1) runs.push(run);
  }
  return runs;
}

/** A single point is a line of no length, which round ends make visible. */
function lineOf(runs: readonly Point[][]): string {
  return runs.map((points) => `M${textOf(points)}${points.length === 1 ? 'h0' : ''}`).join('');
}

function textOf(points: readonly Point[]): string {
  return points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join('L');
}
