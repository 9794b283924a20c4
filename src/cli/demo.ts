import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { defaultSettings, demoPorts } from '../simulator/settings.ts';
import { startSimulator } from '../simulator/simulator.ts';
import { gatewayProcess, shutdownSignal, urlOf } from './gateway-process.ts';
import { readSetup } from './setup.ts';
import { describe } from './simulate.ts';
import { surroundings } from './surroundings.ts';

/** One request of each operation that the specification shows. */
const REQUESTS = [
  '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?ids=%27DEMO-2026-0001%27&site_name=demo&external_id=123',
  '/api/abstracts/v3/abstracts/full/abstractsbyid?site_name=demo&ids=%27A-1001%27',
];

/** `demo`: simulator and gateway together, with nothing to configure. */
export function registerDemo(program: Command): void {
  program
    .command('demo')
    .description('simulator and gateway together; sends a request of each operation and keeps running')
    .action(demo);
}

async function demo(): Promise<void> {
  const simulator = await startSimulator(defaultSettings(demoPorts));
  try {
    const file = fileURLToPath(new URL('../../config/demo.yaml', import.meta.url));
    const setup = await readSetup(file, surroundings());
    // The simulator makes its authority anew at every start, so no file could hold it.
    const authorities = new Map(Object.keys(setup.config.deployments).map((name) => [name, simulator.ca]));
    const { app } = await gatewayProcess({ ...setup, authorities });
    const { listen, control } = await app.start();
    try {
      print(...describe(simulator), `gateway    ${'clients'.padEnd(12)} ${urlOf(listen)}`);
      print(`gateway    ${'control'.padEnd(12)} ${urlOf(control)}  (/livez, /readyz, /metrics)`);
      for (const path of REQUESTS) await show(`${urlOf(listen)}${path}`);
      print('', 'Running. Try the lines above yourself; Ctrl-C stops.');
      await shutdownSignal();
    } finally {
      await app.close();
    }
  } finally {
    await simulator.close();
  }
}

async function show(url: string): Promise<void> {
  const answer = await fetch(url);
  print('', `$ curl "${url}"`, `${answer.status} ${answer.headers.get('content-type') ?? ''}`);
  print((await answer.text()).trimEnd());
}

function print(...lines: string[]): void {
  process.stdout.write(`${lines.join('\n')}\n`);
}
