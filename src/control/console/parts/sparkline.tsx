const WIDTH = 120;
const HEIGHT = 24;

export interface SparklineProps {
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
export function Sparkline({ label, values, errors, length }: SparklineProps) {
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
