import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { DeploymentSettings } from '../../src/simulator/settings.ts';
import { FaultyMix, type FaultyUpstream, UPSTREAMS } from './faulty-mix.ts';
import { startGatewayProcess } from './gateway-process.ts';
import { type Held, probed, readHeld } from './held-resources.ts';
import { startSimulator } from './simulator.ts';

export interface LeakScene extends AsyncDisposable {
  readonly mix: FaultyMix;
  /** Port of the gateway. */
  readonly port: number;
  /** Attempts so far whose nonce the upstream refused as stale. */
  stale(): Promise<number>;
  /** The resources of the gateway when no upstream connection is open any more. */
  settled(): Promise<Held>;
  /**
   * Its resources as soon as every count is the same as before, but for heap and external memory, or else after
   * `limitMs`: a difference that stays is a leak.
   */
  settledAs(before: Held, limitMs: number): Promise<Held>;
}

/** The counts that must be the same before and after. */
export const COUNTS = [
  'sockets',
  'handles',
  'timers',
  'promises',
  'socketObjects',
  'inFlight',
  'connected',
  'running',
  'pending',
] as const satisfies (keyof Held)[];

/** The gateway closes an idle connection 2 s before the upstream would. */
const KEEP_ALIVE_MS = 5_000;
/** One timer for all deadlines of a deployment may last so long: no longer than idle connections. */
const TOTAL = '3s';
const RESPONSE = '250ms';
const POLL_MS = 200;
const SETTLE_MS = 120_000;

/**
 * A gateway in a process of its own, with an audit log, before an upstream of the simulator for each fault, over TLS.
 * @param seed of the requests
 */
export async function startLeakScene(seed: number): Promise<LeakScene> {
  const folder = await mkdtemp(join(tmpdir(), 'leaks-'));
  const names = Object.keys(UPSTREAMS) as FaultyUpstream[];
  const well: DeploymentSettings = {
    kind: 'submissions',
    family: 'manuscripts',
    testPaths: true,
    keepAliveTimeoutMs: KEEP_ALIVE_MS,
  };
  const simulator = await startSimulator<FaultyUpstream>({
    deployments: {
      ...{ plain: well, slow: well, 'slow-body': well },
      ...{ 'reset-before-head': well, 'reset-in-body': well, silent: well },
    },
  });
  const keyFile = join(folder, 'key');
  await writeFile(keyFile, randomBytes(32).toString('hex'), { mode: 0o600 });
  const deployments = names.map((name) => {
    const { origin } = simulator.deployments[name];
    return [name, { origin, ca: simulator.ca, settings: settingsOf(name) }];
  });
  const gateway = await startGatewayProcess(
    Object.fromEntries(deployments),
    { audit: { directory: join(folder, 'audit'), keyFile } },
    probed(folder),
  );
  const read = (): Promise<Held> => readHeld(gateway, folder);
  const settledIf = async (isSettled: (held: Held) => boolean, limitMs: number): Promise<Held> => {
    const end = performance.now() + limitMs;
    for (;;) {
      const held = await read();
      if (isSettled(held) || performance.now() > end) return held;
      await delay(POLL_MS);
    }
  };
  // Before the faults each upstream accepts its credential, so that no failure looks like one of the credential.
  for (const name of names) {
    const response = await fetch(`${gateway.origin}/${name}/echo`);
    if (response.status !== 200) throw new Error(await response.text());
    await response.arrayBuffer();
    simulator.set(name, UPSTREAMS[name]);
  }
  return {
    mix: new FaultyMix(gateway.origin, seed),
    port: Number(new URL(gateway.origin).port),
    stale: () => gateway.metric('digest_gateway_upstream_attempts_total', { result: 'stale' }),
    settled: () => settledIf(({ inFlight, connected }) => inFlight + connected === 0, SETTLE_MS),
    settledAs: (before, limitMs) =>
      settledIf((held) => COUNTS.every((name) => held[name] === before[name]), limitMs),
    async [Symbol.asyncDispose]() {
      await gateway.close();
      await simulator.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function settingsOf(name: FaultyUpstream): Record<string, unknown> {
  return {
    match: { pathPrefix: `/${name}/` },
    rewrite: { stripPrefix: `/${name}` },
    circuit: { minimum: 1_000_000 },
    // Otherwise the gateway learns to use each nonce once, or to renew it before it is stale.
    digest: { noncePolicy: 'shared', renewAhead: false },
    timeouts: { total: TOTAL, ...(name === 'silent' && { response: RESPONSE }) },
  };
}
