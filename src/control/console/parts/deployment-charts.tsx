import { useState } from 'preact/hooks';
import { type History, RANGES, type Range, type SeriesName } from '../../view.ts';
import { useFetch } from '../api.ts';
import { latency, momentWithSeconds, rate } from '../format.ts';
import { changeQuery } from '../router.tsx';
import { Chart, type Line } from './chart.tsx';

interface RangeEntry {
  readonly label: string;
  readonly words: string;
  readonly seconds: number;
  /** Interval at which the history is fetched, in milliseconds. */
  readonly everyMs: number;
}

const RANGE: Readonly<Record<Range, RangeEntry>> = {
  '15m': { label: '15 min', words: 'the last 15 minutes', seconds: 900, everyMs: 5_000 },
  '3h': { label: '3 h', words: 'the last 3 hours', seconds: 10_800, everyMs: 15_000 },
  '24h': { label: '24 h', words: 'the last 24 hours', seconds: 86_400, everyMs: 60_000 },
};

interface ChartEntry {
  readonly title: string;
  readonly lines: readonly (Omit<Line, 'values'> & { readonly series: SeriesName })[];
  readonly format: (value: number) => string;
}

const CHARTS: readonly ChartEntry[] = [
  {
    title: 'Responses per second',
    lines: [
      { series: '2xx', label: '2xx', colour: 'green' },
      { series: '3xx', label: '3xx', colour: 'blue' },
      { series: '4xx', label: '4xx', colour: 'orange' },
      { series: '5xx', label: '5xx', colour: 'red' },
    ],
    format: rate,
  },
  {
    title: 'Latency',
    lines: [
      { series: 'p50', label: 'p50', colour: 'blue' },
      { series: 'p95', label: 'p95', colour: 'violet' },
      { series: 'p99', label: 'p99', colour: 'orange' },
    ],
    format: latency,
  },
  {
    title: 'Challenges per second',
    lines: [{ series: 'challenges', label: 'challenges', colour: 'violet' }],
    format: rate,
  },
];

export interface ChartsProps {
  /** Name of the deployment. */
  readonly name: string;
  /** Value of the query parameter `range`; null if the address has none. */
  readonly range: string | null;
}

/** The charts of a deployment, with a choice of the range and one crosshair for all. */
export function Charts({ name, range: wanted }: ChartsProps) {
  const range = RANGES.find((each) => each === wanted) ?? '15m';
  const { words, seconds, everyMs } = RANGE[range];
  const path = `/api/history?deployment=${encodeURIComponent(name)}&range=${range}`;
  const { data, error } = useFetch<History>(path, everyMs);
  // Its time: the index of a point changes while the page gets new ones.
  const [moment, setMoment] = useState<number>();
  const cursor = data && indexOf(data.times, moment);
  const setCursor = (index: number | undefined): void =>
    setMoment(index === undefined ? undefined : data?.times[index]);
  return (
    <section class="panel" aria-label="Charts">
      <div class="toolbar">
        <fieldset class="choice">
          <legend class="hidden">Time range</legend>
          {RANGES.map((each) => (
            <label key={each}>
              <input
                type="radio"
                name="range"
                checked={each === range}
                onChange={() => {
                  setMoment(undefined);
                  changeQuery({ range: each });
                }}
              />
              {RANGE[each].label}
            </label>
          ))}
        </fieldset>
        {data !== undefined && <Crosshair times={data.times} cursor={cursor} onCursor={setCursor} />}
      </div>
      {error !== undefined && <p class="broken">{error}</p>}
      {data !== undefined && (
        <div class="charts">
          {CHARTS.map(({ title, lines, format }) => (
            <Chart
              key={title}
              title={title}
              label={`${title} of ${name}, ${words}`}
              times={data.times}
              seconds={seconds}
              lines={lines.map((line) => ({ ...line, values: data.series[line.series] }))}
              format={format}
              group={name}
              cursor={cursor}
              onCursor={setCursor}
            />
          ))}
        </div>
      )}
    </section>
  );
}

/** The index of the point at a time, or of the one before it; undefined: it is older than all of them. */
function indexOf(times: readonly number[], moment: number | undefined): number | undefined {
  const index = moment === undefined ? -1 : times.findLastIndex((at) => at <= moment);
  return index === -1 ? undefined : index;
}

interface CrosshairProps {
  readonly times: readonly number[];
  readonly cursor: number | undefined;
  readonly onCursor: (index: number | undefined) => void;
}

/** The time of the crosshair, which a keyboard moves, too. At the end there is none, and the newest values show. */
function Crosshair({ times, cursor, onCursor }: CrosshairProps) {
  const last = Math.max(0, times.length - 1);
  const at = times[cursor ?? last];
  const text = at === undefined ? 'no points yet' : momentWithSeconds(at);
  return (
    <label class="crosshair">
      Time
      <input
        type="range"
        min={0}
        max={last}
        value={Math.min(cursor ?? last, last)}
        aria-valuetext={text}
        onInput={({ currentTarget: { valueAsNumber } }) =>
          onCursor(valueAsNumber >= last ? undefined : valueAsNumber)
        }
      />
      <output>{text}</output>
    </label>
  );
}
