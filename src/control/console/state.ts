import type { State } from '../view.ts';
import { setText } from './dom.ts';

/** A shape beside the word, for eyes that do not tell the colours apart. */
const MARKS: Readonly<Record<State, string>> = { ok: '●', degraded: '▲', broken: '■' };

export function showCondition(badge: HTMLElement, state: State): void {
  setText(badge, `${MARKS[state]} ${state}`);
  badge.className = `badge ${state}`;
}
