import type { RequestRow } from '../../audit-view.ts';
import { latency } from '../format.ts';

const WIDTH = 1000;
const HEIGHT = 18;

interface Part {
  readonly label: string;
  readonly colour: string;
  readonly ms: number;
}

/** Where the time of a request went, as a bar with its parts in words. */
export function Timing({ row }: { readonly row: RequestRow }) {
  const parts = partsOf(row);
  const total = parts.reduce((sum, { ms }) => sum + ms, 0);
  if (row.outcome === undefined) return null;
  const starts = parts.map((_, index) => parts.slice(0, index).reduce((sum, { ms }) => sum + ms, 0));
  const scale = total === 0 ? 0 : WIDTH / total;
  return (
    <figure class="timing">
      <figcaption>
        <span class="title">
          {latency(row.outcome.durationMs / 1000)} from its arrival to the end of its response
        </span>
        {parts.map(({ label, colour, ms }) => (
          <span key={label} class={`key ${colour}`}>
            {label} {latency(ms / 1000)}
          </span>
        ))}
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
        {parts.map(({ label, colour, ms }, index) => (
          <rect
            key={label}
            x={(starts[index] ?? 0) * scale}
            width={ms * scale}
            height={HEIGHT}
            style={`fill: var(--${colour})`}
          />
        ))}
      </svg>
    </figure>
  );
}

/** The log has times in milliseconds, so the parts are about right, and together the duration. */
function partsOf({ time, upstream, outcome }: RequestRow): Part[] {
  if (outcome === undefined) return [];
  const { durationMs } = outcome;
  if (upstream === undefined) return [{ label: 'gateway', colour: 'blue', ms: durationMs }];
  const head = Math.min(upstream.durationMs, durationMs);
  const body = clamp(Date.parse(outcome.time) - Date.parse(time), durationMs - head);
  return [
    { label: 'gateway', colour: 'blue', ms: durationMs - head - body },
    { label: 'upstream, until its response began', colour: 'orange', ms: head },
    { label: 'response', colour: 'violet', ms: body },
  ];
}

function clamp(value: number, most: number): number {
  return Math.min(Math.max(value, 0), most);
}
