import { printable } from '../../../base/printable.ts';
import type { ErrorView } from '../../view.ts';
import { ago, counted } from '../format.ts';
import { codeLink, deploymentLink, requestLink } from './links.tsx';

/** Errors of the last minute are in the order of their counts, in milliseconds. */
const RECENT_MS = 60_000;

/** Orders errors so that they keep their places while each of them goes on: recent ones first. */
function steadily(errors: readonly ErrorView[], now: number): readonly ErrorView[] {
  const isRecent = ({ lastAt }: ErrorView): boolean => now - lastAt < RECENT_MS;
  return errors.toSorted(
    (a, b) =>
      Number(isRecent(b)) - Number(isRecent(a)) || (isRecent(a) ? b.count - a.count : b.lastAt - a.lastAt),
  );
}

interface ErrorsProps {
  readonly errors: readonly ErrorView[];
  /** Unix milliseconds. */
  readonly now: number;
  /** Maximum number that is shown. */
  readonly limit?: number;
  /** Shown if there are none. */
  readonly empty: string;
}

/** Errors, each with what happened and what to do. */
export function Errors({ errors, now, limit = Number.POSITIVE_INFINITY, empty }: ErrorsProps) {
  if (errors.length === 0) return <p class="muted">{empty}</p>;
  return (
    <ul class="errors">
      {steadily(errors, now)
        .slice(0, limit)
        .map(({ deployment, code, title, status, detail, count, lastAt, requestId }) => (
          <li key={`${deployment} ${code}`}>
            <div>
              <h3>
                <span class={`status ${status >= 500 ? 'down' : 'muted'}`}>{status}</span>{' '}
                {deployment !== '' && <>{deploymentLink(deployment)}: </>}
                {title} {codeLink(code)}
              </h3>
              <span class="muted">
                {counted(count, 'time')}, {ago((now - lastAt) / 1000)}
              </span>
            </div>
            <p>{printable(detail)}</p>
            <p class="muted small">last request {requestLink(requestId)}</p>
          </li>
        ))}
    </ul>
  );
}
