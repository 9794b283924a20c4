import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'undici';
import { stringify } from 'yaml';
import { startBenchUpstream } from '../../test/bench/compare/upstream.ts';
import { addressConfig } from '../../test/full/large-config.ts';
import { longestTurn, MONITORED, measuredReload } from '../../test/full/reloads.ts';
import { startGatewayProcess } from '../../test/support/gateway-process.ts';
import { runCommand } from '../../test/support/program.ts';
import { repository } from '../../test/support/repository.ts';

/**
 * Measures a large configuration: `check` in a process of its own, and the longest turn of the event loop of a gateway
 * that reloads it while requests pass. The times of the processor count where other programs run beside it.
 *
 *     node lab/bench/config.ts [clients] [deployments] [rounds]
 */
const clients = Number(process.argv[2] ?? 10_000);
const deployments = Number(process.argv[3] ?? 2_000);
const rounds = Number(process.argv[4] ?? 5);
const SENDERS = 4;
const PAUSE_MS = 2;
/** How long requests go on after a reload, while connections that are not needed any more are closed. */
const SETTLE_MS = 500;

const large = addressConfig(clients, deployments);
console.log(`${clients} clients, ${deployments} deployments, Node ${process.version}`);
await check();
await reloads();

/** Reads the configuration in a process of its own, as a pipeline does. */
async function check(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'bench-config-'));
  const file = join(folder, 'gateway.yaml');
  await writeFile(file, stringify(large));
  console.log('check     | wall s | CPU s (all threads)');
  for (let round = 1; round <= rounds; round += 1) {
    const program = `${repository}/src/cli/digest-gateway.js`;
    const timed = ['-c', 'TIMEFORMAT="%R %U %S"; time "$@"', '-', program, 'check', '--config', file];
    const { status, printed } = await runCommand('bash', timed);
    if (status !== 0) throw new Error(printed);
    const [wall = 0, user = 0, system = 0] = printed.trim().split('\n').at(-1)?.split(' ').map(Number) ?? [];
    console.log(`${`${round}`.padEnd(9)} | ${wall.toFixed(2)}   | ${(user + system).toFixed(2)}`);
  }
  await rm(folder, { recursive: true });
}

async function reloads(): Promise<void> {
  const upstream = await startBenchUpstream();
  const { origin, ca, username, password } = upstream;
  const served = {
    ...large,
    listen: { port: 0 },
    control: { port: 0 },
    clients: [
      { id: 'here', identify: { addresses: ['127.0.0.1'] }, allow: [{ deployment: 'here' }] },
      ...large.clients,
    ],
    credentials: {
      here: { username: { value: username }, password: { value: password } },
      ...large.credentials,
    },
    deployments: {
      here: {
        baseUrl: origin,
        match: { pathPrefix: '/digest/' },
        credential: 'here',
        tls: { caFile: 'here-ca.pem' },
      },
      ...large.deployments,
    },
  };
  const others = Object.entries(served.deployments).map(([name, each]) => [
    name,
    { ...each, connections: 7 },
  ]);
  const changed = {
    ...served,
    clients: served.clients.toReversed(),
    deployments: Object.fromEntries(others),
  };
  // Made before, so that this process has time for its requests.
  const [first, second] = [stringify(served), stringify(changed)];
  const kinds = { 'all is new': first, 'nothing changed': first, 'all changed': second };
  console.log('reload           | wall s | longest turn, CPU ms | wall ms | slowest request ms | requests');
  for (let round = 1; round <= rounds; round += 1) {
    const [client, deployment] = [served.clients.slice(0, 1), { here: served.deployments.here }];
    const small = { ...served, clients: client, deployments: deployment };
    const gateway = await startGatewayProcess(
      { here: { origin, ca } },
      { anonymous: false, ...small },
      { runner: MONITORED },
    );
    await longestTurn(gateway);
    for (const [kind, config] of Object.entries(kinds)) {
      const load = startRequests(gateway.origin);
      const begun = performance.now();
      const during = await measuredReload(gateway, config);
      const seconds = (performance.now() - begun) / 1000;
      await delay(SETTLE_MS);
      const after = await longestTurn(gateway);
      const { slowestMs, count } = await load.end();
      console.log(
        [
          kind.padEnd(16),
          seconds.toFixed(2).padEnd(6),
          Math.max(during.cpuMs, after.cpuMs).toFixed(1).padEnd(20),
          Math.max(during.wallMs, after.wallMs).toFixed(1).padEnd(7),
          slowestMs.toFixed(1).padEnd(18),
          count,
        ].join(' | '),
      );
    }
    await gateway.close();
  }
  await upstream.close();
}

/** Sends requests until the end, each of which must be answered 200. */
function startRequests(origin: string) {
  const pool = new Pool(origin, { connections: SENDERS });
  let going = true;
  let slowestMs = 0;
  let count = 0;
  const send = async (): Promise<void> => {
    while (going) {
      const begun = performance.now();
      const { statusCode, body } = await pool.request({ path: '/digest/2KB', method: 'GET' });
      await body.dump();
      if (statusCode !== 200) throw new Error(`the gateway answered ${statusCode}`);
      slowestMs = Math.max(slowestMs, performance.now() - begun);
      count += 1;
      await delay(PAUSE_MS);
    }
  };
  const over = Promise.all(Array.from({ length: SENDERS }, send));
  return {
    async end() {
      going = false;
      await over;
      await pool.close();
      return { slowestMs, count };
    },
  };
}
