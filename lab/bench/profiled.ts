import { readFileSync } from 'node:fs';
import type { Runtime } from 'node:inspector';
import { SourceMap } from 'node:module';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { CONTENDERS, type RunningContender, startContender } from '../../test/bench/compare/contenders.ts';
import { divideCores } from '../../test/bench/compare/cores.ts';
import type { DocumentName } from '../../test/bench/compare/documents.ts';
import { LoadConnections } from '../../test/bench/compare/load.ts';
import { startBenchUpstream } from '../../test/bench/compare/upstream.ts';

const PROFILER = fileURLToPath(new URL('profiler.js', import.meta.url));
/** The sockets are in the folder of the contender. */
const SOCKET = 'profiler';

interface ProfiledOptions {
  /** Of the contender. */
  readonly name: string;
  readonly document: string;
  readonly connections: number;
  readonly kind: 'cpu' | 'heap';
  /** Flags of Node.js. */
  readonly flags?: readonly string[];
}

/** A contender under load. */
export interface Profiled {
  readonly running: RunningContender;
  readonly load: LoadConnections;
  /** Starts the profile, or ends it and resolves to it. */
  toggle(): Promise<unknown>;
}

/** Starts a contender with a profiler in it, and a load that has one response on each connection, for `use`. */
export async function withProfiled(
  { name, document, connections, kind, flags = [] }: ProfiledOptions,
  use: (profiled: Profiled) => Promise<void>,
): Promise<void> {
  const measured = CONTENDERS.find((contender) => contender.name === name);
  if (measured === undefined || !isDocument(document)) {
    throw new Error(`There is no contender ${name}, or no document ${document}.`);
  }
  const pinned = await divideCores();
  const upstream = await startBenchUpstream();
  let socket = '';
  const profiled = {
    ...measured,
    async prepare(...[place, bench]: Parameters<typeof measured.prepare>) {
      socket = join(place.folder, SOCKET);
      const [node = '', ...args] = await measured.prepare(place, bench);
      const variables = [`BENCH_PROFILE=${kind}`, `BENCH_PROFILER=${socket}`];
      return ['env', ...variables, node, `--import=${PROFILER}`, ...flags, ...args];
    },
  };
  const running = await startContender(profiled, upstream, pinned);
  try {
    const load = await LoadConnections.open(running.question(document), connections);
    await use({ running, load, toggle: async () => JSON.parse(await text(connect(socket))) });
    await load.close();
  } finally {
    await running.close();
    await upstream.close();
  }
}

function isDocument(name: string): name is DocumentName {
  return name === '2KB' || name === '256KB';
}

const maps = new Map<string, SourceMap>();

/** The place of a function: its file, relative to the sources or from `node_modules/` on, and its line, from 1 on. */
export function placeOf({ url, lineNumber, columnNumber }: Runtime.CallFrame): {
  file: string;
  line: number;
} {
  const source = sourceMapOf(url)?.findEntry(lineNumber, columnNumber);
  const isMapped = source !== undefined && 'originalSource' in source;
  const file = isMapped ? source.originalSource : url;
  const [, ours] = /\/src\/(.*)$/.exec(file) ?? [];
  const [module] = /node_modules\/(?!\.cache).*$/.exec(file) ?? [];
  return { file: module ?? ours ?? file, line: (isMapped ? source.originalLine : lineNumber) + 1 };
}

/** The build puts many sources into one file. Undefined: the file is as it was written. */
function sourceMapOf(url: string): SourceMap | undefined {
  if (!url.includes('/.cache/bench/')) return undefined;
  let map = maps.get(url);
  if (map === undefined) {
    map = new SourceMap(JSON.parse(readFileSync(new URL(`${url}.map`), 'utf8')));
    maps.set(url, map);
  }
  return map;
}
