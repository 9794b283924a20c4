import type { HeapProfiler } from 'node:inspector';
import { placeOf, withProfiled } from './profiled.ts';

/**
 * Prints what a request allocates in V8's heap: bytes by function, with those of functions that V8 has put into it. A flag of
 * Node.js, such as --no-turbo-inlining --no-maglev-inlining, shows each function by itself. Arguments: contender
 * (gateway), document (2KB), connections (32), flags.
 */
const [name = 'gateway', document = '2KB', connections = '32', ...flags] = process.argv.slice(2);
/** By then, the compilers have seen what they optimise. */
const WARM_UP_REQUESTS = 80_000;
const MEASURED_REQUESTS = 10_000;
const SLICE_MS = 500;
/** Functions that are shown. */
const SHOWN = 40;

const options = { name, document, connections: Number(connections), kind: 'heap', flags } as const;
await withProfiled(options, async ({ load, toggle }) => {
  const send = async (count: number): Promise<number> => {
    let sent = 0;
    while (sent < count) sent += await load.saturate(SLICE_MS);
    return sent;
  };
  await send(WARM_UP_REQUESTS);
  await toggle();
  const requests = await send(MEASURED_REQUESTS);
  const { allocated, profile } = (await toggle()) as Allocated;
  console.log(
    `${name}, ${document}, ${connections} connections: ${inOne(allocated, requests)} bytes a request\n`,
  );
  const byFunction = [...bytesByFunction(profile.head)].sort(([, one], [, more]) => more - one);
  for (const [each, bytes] of byFunction.slice(0, SHOWN)) {
    console.log(`${inOne(bytes, requests).padStart(6)}  ${each}`);
  }
});

interface Allocated {
  readonly allocated: number;
  readonly profile: HeapProfiler.SamplingHeapProfile;
}

function inOne(bytes: number, requests: number): string {
  return (bytes / requests).toFixed(0);
}

function bytesByFunction(
  { callFrame, selfSize, children }: HeapProfiler.SamplingHeapProfileNode,
  sums = new Map<string, number>(),
): Map<string, number> {
  const { file, line } = placeOf(callFrame);
  const place = `${callFrame.functionName || '(anonymous)'} ${file}:${line}`;
  sums.set(place, (sums.get(place) ?? 0) + selfSize);
  for (const child of children) bytesByFunction(child, sums);
  return sums;
}
