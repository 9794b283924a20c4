import type { State } from '../../view.ts';

/** A shape for each state, for people who do not see the difference between the colours. */
const MARKS: Readonly<Record<State, string>> = { ok: '●', degraded: '▲', broken: '■' };

/** Shows a state: its word, shape and colour. */
export function Badge({ state }: { readonly state: State }) {
  return (
    <span class={`badge ${state}`}>
      {MARKS[state]} {state}
    </span>
  );
}
