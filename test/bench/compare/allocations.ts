import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';

/** Bytes that a process has allocated so far. */
export interface Allocations {
  /** In V8's heap. */
  readonly heap: number;
  /** Outside of it: buffers. Those that are freed before the next collection do not count. */
  readonly external: number;
}

const COUNTER = fileURLToPath(new URL('allocation-counter.js', import.meta.url));

/** The start of a command that counts what Node.js allocates; `readAllocations` asks for it. */
export function countedNode(folder: string): readonly string[] {
  return ['env', `NODE_OPTIONS=--import=${COUNTER}`, `BENCH_ALLOCATIONS=${socketIn(folder)}`];
}

export async function readAllocations(folder: string): Promise<Allocations> {
  return JSON.parse(await text(connect(socketIn(folder))));
}

function socketIn(folder: string): string {
  return join(folder, 'allocations');
}
