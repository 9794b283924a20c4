import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import type { AuditOptions } from '../audit/audit.ts';
import { ignoreAbort } from '../base/expected-errors.ts';
import { Secret } from '../base/secret.ts';
import { type AppSetup, readSetup } from '../setup/setup.ts';
import { defaultSettings, demoPorts } from '../simulator/settings.ts';
import { type Simulator, startSimulator } from '../simulator/simulator.ts';
import { gatewayProcess, urlOf } from './gateway-process.ts';
import { type Io, print, processContext, type Run, shutdownSignal } from './io.ts';
import { addressRows } from './simulate.ts';
import { alignColumns } from './table.ts';

/** Average pause between two requests of one client, in milliseconds. */
const PAUSE_MS = 700;

/** One request for each operation in the specification. */
const REQUESTS = [
  '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?ids=%27DEMO-2026-0001%27&site_name=demo&external_id=123',
  '/api/abstracts/v3/abstracts/full/abstractsbyid?site_name=demo&ids=%27A-1001%27',
];

/** API keys of the clients in config/demo.yaml; the rules of the second one do not allow all requests. */
const [REPORTING, REFUSED] = ['demo-reporting-key', 'demo-archive-key'];
/** Keys of the traffic. A deployment that refuses half of its requests would be shown as degraded. */
const KEYS = [REPORTING, REPORTING, REPORTING, REFUSED];
/** Short, so that the console shows expiring nonces. */
const NONCE_LIFETIME_MS = 60_000;

/** `demo`: runs simulator and gateway together, without configuration. */
export function registerDemo(program: Command, run: Run): void {
  program
    .command('demo')
    .description('run simulator and gateway together, send a request of each operation, and keep running')
    .option('--free-ports', 'use any free ports instead of 8080, 8081, 9443 and 9444')
    .action(run(demo));
}

async function demo(io: Io, { freePorts = false }: { freePorts?: boolean }): Promise<void> {
  await using end = new AsyncDisposableStack();
  const { deployments, ...settings } = freePorts ? defaultSettings() : defaultSettings(demoPorts);
  const submissions = { ...deployments.submissions, nonceLifetimeMs: NONCE_LIFETIME_MS };
  const simulator = await startSimulator({ ...settings, deployments: { ...deployments, submissions } });
  end.defer(() => simulator.close());
  const folder = await mkdtemp(join(tmpdir(), 'digest-gateway-demo-'));
  end.defer(() => rm(folder, { recursive: true }));
  const audit = auditIn(folder);
  const setup = await demoSetup(io, simulator, freePorts);
  const { app, stopTracing } = await gatewayProcess(io, { ...setup, audit });
  const { listen, control } = await app.start();
  end.defer(stopTracing);
  end.defer(() => app.close());
  const [gateway = ''] = listen.map((address) => urlOf(address));
  const rows = [
    ...addressRows(simulator),
    ['gateway', 'clients', gateway],
    ['gateway', 'control', `${urlOf(control)}  (console, /livez, /readyz, /metrics)`],
    ['audit log', 'until the end', join(audit.directory, audit.replica)],
  ];
  await printAll(io, ...alignColumns(rows));
  for (const path of REQUESTS) await show(io, `${gateway}${path}`);
  const ended = shutdownSignal();
  const requestsWith = (key: string): Request[] =>
    REQUESTS.map((path) => new Request(`${gateway}${path}`, { headers: { 'x-api-key': key } }));
  end.defer(startTraffic(KEYS.flatMap(requestsWith)));
  await printAll(
    io,
    '',
    `Running, with some traffic: see it at ${urlOf(control)}/`,
    'The client staged-refusals asks on purpose for more than it may; nothing is wrong with it.',
    'Try the lines above yourself; Ctrl-C stops.',
  );
  await ended;
}

/** The audit log of the demo, with a random key that is not kept. */
function auditIn(directory: string): AuditOptions {
  return {
    directory,
    replica: 'demo',
    key: new Secret(randomBytes(32).toString('hex')),
    durability: 'write',
    onFailure: 'refuse',
    parameters: ['ids', 'site_name', 'external_id'],
    segment: { size: 2 ** 28, age: 86_400_000, keep: 86_400_000 },
  };
}

/**
 * Reads config/demo.yaml for this simulator. Its authority is new at every start, so no file contains it.
 */
async function demoSetup(io: Io, simulator: Simulator, freePorts: boolean): Promise<AppSetup> {
  const file = fileURLToPath(new URL('../../config/demo.yaml', import.meta.url));
  const setup = await readSetup(file, processContext(io));
  const { config } = setup;
  for (const [name, { origin }] of Object.entries(simulator.deployments)) {
    const deployment = config.deployments[name];
    if (deployment !== undefined) deployment.baseUrl = [origin];
  }
  if (freePorts) for (const plane of [...config.listen, config.control]) plane.port = 0;
  const files = new Map(Array.from(setup.files, ([name, each]) => [name, { ...each, ca: simulator.ca }]));
  return { ...setup, files };
}

async function show(io: Io, url: string): Promise<void> {
  const response = await fetch(url);
  const body = (await response.text()).trimEnd();
  await printAll(
    io,
    '',
    `$ curl "${url}"`,
    `${response.status} ${response.headers.get('content-type') ?? ''}`,
    body,
  );
}

function printAll(io: Io, ...lines: string[]): Promise<void> {
  return print(io, `${lines.join('\n')}\n`);
}

/**
 * Starts one client for each request, which sends it repeatedly. Returns a function that stops them, and resolves when no
 * request is pending.
 */
function startTraffic(requests: readonly Request[]): () => Promise<void> {
  const stopping = new AbortController();
  const clients = requests.map((request) => ask(request, stopping.signal));
  return async () => {
    stopping.abort();
    await Promise.all(clients);
  };
}

async function ask(request: Request, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    // A request that fails, or is aborted by the end of the demo: the console shows both.
    await fetch(request.clone(), { signal })
      .then((response) => response.arrayBuffer())
      .catch(() => {});
    await delay(PAUSE_MS * (0.5 + Math.random()), undefined, { signal }).catch(ignoreAbort);
  }
}
