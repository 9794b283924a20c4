import type { ErrorView } from '../../view.ts';
import { ago, counted } from '../format.ts';
import { codeLink, deploymentLink, requestLink } from './links.tsx';

/** Errors of the last minute are in the order of their counts, in milliseconds. */
const RECENT_MS = 60_000;

/** Orders errors so that they keep their places while each of them goes on: recent ones first. */
export function steadily(errors: readonly ErrorView[], now: number): readonly ErrorView[] {
  const isRecent = ({ lastAt }: ErrorView): boolean => now - lastAt < RECENT_MS;
  return errors.toSorted(
    (a, b) =>
      Number(isRecent(b)) - Number(isRecent(a)) || (isRecent(a) ? b.count - a.count : b.lastAt - a.lastAt),
  );
}

/** Recent errors, each with what happened and what to do. `now` is in Unix milliseconds. */
export function Errors({ errors, now }: { readonly errors: readonly ErrorView[]; readonly now: number }) {
  return (
    <ul class="errors">
      {errors.map(({ deployment, code, title, status, advice, count, lastAt, requestId }) => (
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
          <p>{advice}</p>
          <p class="muted small">last request {requestLink(requestId)}</p>
        </li>
      ))}
    </ul>
  );
}
