import { SpentBuffers } from '../base/spent-buffers.ts';

/**
 * Collects used buffers by minor garbage collections. Needs --expose-gc; without it memory use is higher.
 */
export function spentMemory(): SpentBuffers {
  return new SpentBuffers(() => void globalThis.gc?.({ type: 'minor' }));
}
