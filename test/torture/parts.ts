import type { TorturePart } from './part.ts';
import { simulation } from './simulation.ts';

/** All parts, in the order in which they run. */
export const parts: readonly TorturePart[] = [simulation];
