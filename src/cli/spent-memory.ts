import { SpentBuffers } from '../base/spent-buffers.ts';

/** Collects the buffers that have passed. There with --expose-gc, as in the program's first line; without it memory grows, and nothing else. */
export function spentMemory(): SpentBuffers {
  return new SpentBuffers(() => void globalThis.gc?.({ type: 'minor' }));
}
