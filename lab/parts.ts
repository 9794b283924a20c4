import { chaos } from './chaos.ts';
import { clients } from './clients.ts';
import { durability } from './durability.ts';
import { forks } from './forks.ts';
import { guided } from './guided.ts';
import type { LabPart } from './part.ts';
import { simulation } from './simulation.ts';
import { soak } from './soak.ts';
import { suite } from './suite.ts';
import { upstreams } from './upstreams.ts';

/** All parts, in the order in which they run. */
export const parts: readonly LabPart[] = [
  simulation,
  guided,
  clients,
  upstreams,
  chaos,
  durability,
  forks,
  soak,
  suite,
];
