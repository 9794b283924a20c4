import type { AddressView, Problem, State } from '../../view.ts';
import { counted } from '../format.ts';
import { snapshot } from '../live.ts';
import { deploymentLink } from './links.tsx';

/** A shape for each state, for people who do not see the difference between the colours. */
const MARKS: Readonly<Record<State, string>> = { ok: '●', degraded: '▲', down: '■' };

/** Shows a state: its word, shape and colour. */
export function Badge({ state }: { readonly state: State }) {
  return (
    <span class={`badge ${state}`}>
      {MARKS[state]} {state}
    </span>
  );
}

/** The state of an address of an upstream, which is also ok before its first use. */
export function addressState({ health, circuit }: AddressView): State {
  if (health === 'failing') return 'down';
  return circuit === 'closed' ? 'ok' : 'degraded';
}

/** The next step for something that is not ok. */
export function NextStep({ next = '' }: { readonly next?: string | undefined }) {
  return next === '' ? null : (
    <>
      {' '}
      <span class="next">{next}</span>
    </>
  );
}

/** Maximum number of lines, and of deployments in one line. */
const LINES = 6;
const NAMES = 8;

/**
 * Tells on every page what is wrong now; each line goes away with its cause. Its texts contain times, which a screen
 * reader would read every second; the badge of the header announces changes of the state.
 */
export function Banner() {
  const problems = snapshot.value?.gateway.problems ?? [];
  const degraded = problems.filter(isDegradedDeployment);
  const others = problems.filter((problem) => !isDegradedDeployment(problem));
  const worst = problems[0]?.state;
  if (worst === undefined) return null;
  return (
    <section class={`banner as-${worst}`} aria-label="Problems now">
      <ul>
        {others.slice(0, LINES).map((problem, index) => (
          <Line key={`${problem.deployment} ${index}`} problem={problem} />
        ))}
        {others.length > LINES && <li>{counted(others.length - LINES, 'more problem')}.</li>}
        {degraded.length > 0 && <DegradedLine names={degraded.map(({ deployment = '' }) => deployment)} />}
      </ul>
    </section>
  );
}

/** They still serve: their names suffice, and the overview has the reasons. */
function isDegradedDeployment({ state, deployment }: Problem): boolean {
  return state === 'degraded' && deployment !== undefined;
}

function Line({ problem: { state, text, next, deployment } }: { readonly problem: Problem }) {
  return (
    <li>
      {state === 'ok' ? <span class="badge note">note</span> : <Badge state={state} />}{' '}
      <span>
        {deployment !== undefined && <>{deploymentLink(deployment)}: </>}
        {text}
        <NextStep next={next} />
      </span>
    </li>
  );
}

function DegradedLine({ names }: { readonly names: readonly string[] }) {
  const hidden = names.length - NAMES;
  return (
    <li>
      <Badge state="degraded" />{' '}
      <span>
        {names.slice(0, NAMES).map((name, index) => (
          <span key={name}>
            {index > 0 && ', '}
            {deploymentLink(name)}
          </span>
        ))}
        {hidden > 0 && ` and ${hidden} more`}
      </span>
    </li>
  );
}
