import { Session } from 'node:inspector/promises';
import { createServer } from 'node:net';

/**
 * Preloaded into a gateway (`--import`): the first connection to the socket of BENCH_PROFILER starts a CPU profile, the
 * second one ends it and gets it as JSON.
 */
const SAMPLE_US = 500;

const session = new Session();
let started = false;

async function start() {
  started = true;
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.setSamplingInterval', { interval: SAMPLE_US });
  await session.post('Profiler.start');
  return {};
}

async function stop() {
  const { profile } = await session.post('Profiler.stop');
  return profile;
}

createServer(async (socket) => {
  const answer = started ? await stop() : await start();
  socket.end(JSON.stringify(answer));
})
  .listen(process.env.BENCH_PROFILER)
  .unref();
