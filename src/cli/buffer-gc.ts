import { BufferGc } from '../base/buffer-gc.ts';

/**
 * Collects used buffers by minor garbage collections. Needs --expose-gc; without it memory use is higher.
 */
export function bufferGc(): BufferGc {
  return new BufferGc(() => void globalThis.gc?.({ type: 'minor' }));
}
