import type { ErrorView } from '../../view.ts';
import { ago, counted } from '../format.ts';
import { deploymentLink, requestLink } from './links.tsx';

/** Recent errors with advice. `now` is in Unix milliseconds. */
export function Errors({ errors, now }: { readonly errors: readonly ErrorView[]; readonly now: number }) {
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
