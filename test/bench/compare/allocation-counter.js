import cluster from 'node:cluster';
import { createServer } from 'node:net';
import { GCProfiler, getHeapStatistics, setFlagsFromString } from 'node:v8';

/**
 * Preloaded into the contenders on Node.js (`--import`). Each connection to the socket of BENCH_ALLOCATIONS gets the
 * bytes allocated so far, as JSON. Idle until the first one. Plain JavaScript: stripping types would add memory.
 */
const profiler = new GCProfiler();
let counts = false;
/** Bytes outside of the heap that were allocated since the first connection. */
let external = 0;
let lastExternal = 0;

/** Outside of the heap, V8 knows only what is in use: what came between two collections is the growth between them. */
function add(now, left) {
  external += now - lastExternal;
  lastExternal = left;
}

function begin() {
  counts = true;
  // Memory that a collection frees has to be free when it ends.
  setFlagsFromString('--no-concurrent-array-buffer-sweeping');
  lastExternal = getHeapStatistics().external_memory;
}

function count() {
  for (const { beforeGC, afterGC } of profiler.stop().statistics) {
    add(beforeGC.heapStatistics.externalMemory, afterGC.heapStatistics.externalMemory);
  }
  const { external_memory: now } = getHeapStatistics();
  add(now, now);
}

createServer((socket) => {
  if (counts) count();
  else begin();
  socket.end(JSON.stringify({ heap: getHeapStatistics().total_allocated_bytes, external }));
  profiler.start();
})
  .listen({
    path: process.env.BENCH_ALLOCATIONS + (cluster.isWorker ? `.${process.pid}` : ''),
    exclusive: true,
  })
  .unref();
