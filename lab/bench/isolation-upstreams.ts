import { parentPort } from 'node:worker_threads';
import { startFaultyUpstreams } from '../../test/full/faulty-upstreams.ts';

/** The upstreams of `isolation.ts`, in a thread of their own, so that their work does not delay its clients. */
const upstreams = await startFaultyUpstreams();
parentPort?.on('message', async () => {
  await upstreams.beginFaults();
  parentPort?.postMessage('faulty');
});
parentPort?.postMessage({ ca: upstreams.ca, origins: upstreams.origins });
