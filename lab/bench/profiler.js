import { Session } from 'node:inspector/promises';
import { createServer } from 'node:net';
import { getHeapStatistics } from 'node:v8';

/**
 * Preloaded into a contender (`--import`): the first connection to the socket of BENCH_PROFILER starts a profile, the
 * second one ends it and gets it as JSON. BENCH_PROFILE: `cpu`, or `heap` for what was allocated, with the bytes in all.
 */
const SAMPLE_US = 500;
const SAMPLE_BYTES = 2048;

const session = new Session();
let started = false;
let allocatedBefore = 0;

const KINDS = {
  cpu: {
    async start() {
      await session.post('Profiler.enable');
      await session.post('Profiler.setSamplingInterval', { interval: SAMPLE_US });
      await session.post('Profiler.start');
    },
    async stop() {
      const { profile } = await session.post('Profiler.stop');
      return profile;
    },
  },
  heap: {
    async start() {
      await session.post('HeapProfiler.startSampling', {
        samplingInterval: SAMPLE_BYTES,
        includeObjectsCollectedByMajorGC: true,
        includeObjectsCollectedByMinorGC: true,
      });
      allocatedBefore = getHeapStatistics().total_allocated_bytes;
    },
    async stop() {
      const allocated = getHeapStatistics().total_allocated_bytes - allocatedBefore;
      const { profile } = await session.post('HeapProfiler.stopSampling');
      return { allocated, profile };
    },
  },
};
const kind = KINDS[process.env.BENCH_PROFILE];

async function start() {
  started = true;
  session.connect();
  await kind.start();
  return {};
}

createServer(async (socket) => {
  const answer = started ? await kind.stop() : await start();
  socket.end(JSON.stringify(answer));
})
  .listen(process.env.BENCH_PROFILER)
  .unref();
