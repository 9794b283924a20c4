import type { State } from '../view.ts';
import { setText } from './dom.ts';

/** A shape for each state, for people who do not see the difference between the colours. */
const MARKS: Readonly<Record<State, string>> = { ok: '●', degraded: '▲', broken: '■' };

/** Shows a state on a badge: its word, shape and colour. */
export function showCondition(badge: HTMLElement, state: State): void {
  setText(badge, `${MARKS[state]} ${state}`);
  badge.className = `badge ${state}`;
}
