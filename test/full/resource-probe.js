import { createServer, Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { getHeapStatistics, queryObjects } from 'node:v8';
import { isMainThread } from 'node:worker_threads';

/**
 * Preloaded into a gateway (`--import`). Each connection to the socket of RESOURCE_PROBE gets what the process holds
 * after full garbage collections, as JSON. Plain JavaScript: stripping types would add memory.
 */
/** Node.js keeps a timer of up to one second for the Date field of responses. */
const QUIET_MS = 600;
const Timeout = setTimeout(() => {}, 0).unref().constructor;

async function read() {
  // The next collection finds what a finalizer has let go. The timers of requests for metrics are over then, too.
  for (let times = 0; times < 2; times += 1) {
    globalThis.gc();
    await delay(QUIET_MS);
  }
  const count = (kind) => queryObjects(kind, { format: 'count' });
  const { used_heap_size: heap, external_memory: external } = getHeapStatistics();
  return {
    handles: process.getActiveResourcesInfo().length,
    timers: count(Timeout),
    promises: count(Promise),
    socketObjects: count(Socket),
    heap,
    external,
  };
}

// A preloaded module is loaded by every thread of the process.
if (isMainThread) {
  createServer(async (socket) => socket.end(JSON.stringify(await read())))
    .listen(process.env.RESOURCE_PROBE)
    .unref();
}
