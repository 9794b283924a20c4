import { chaos } from './chaos.ts';
import { durability } from './durability.ts';
import type { TorturePart } from './part.ts';
import { simulation } from './simulation.ts';
import { soak } from './soak.ts';

/** All parts, in the order in which they run. */
export const parts: readonly TorturePart[] = [simulation, chaos, durability, soak];
