import { Pool } from 'undici';
import { type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import { type Simulator, startSimulator } from '../../src/simulator/simulator.ts';
import { type GatewayProcess, startGatewayProcess } from '../../test/support/gateway-process.ts';
import { startRedis } from '../../test/support/redis.ts';

/**
 * Measures the cost of nonces: upstream requests for each client request, and requests that had to wait for a 401,
 * for one gateway and for four that share a Redis.
 *
 *     node lab/bench/nonces.ts [seconds for each row] [requests a second]
 */
const TARGET =
  '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?ids=%27DEMO-2026-0001%27&site_name=demo';
const seconds = Number(process.argv[2] ?? 60);
const rate = Number(process.argv[3] ?? 500);
const TICK_MS = 10;
/** How long a gateway has to learn what the upstream lets pass. */
const LEARNING_MS = 2_000;

const rows: Record<string, BehaviourChange> = {
  'no qop': {},
  'no qop, lifetime 5 s': { nonceLifetimeMs: 5_000 },
  'no qop, lifetime 1 s': { nonceLifetimeMs: 1_000 },
  'qop, nc rising': { qop: 'auth', nc: 'rising' },
  'qop, lifetime 5 s': { qop: 'auth', nonceLifetimeMs: 5_000 },
  'one-time': { qop: 'auth', oneTimeNonces: true },
  'one-time, nextnonce': { qop: 'auth', oneTimeNonces: true, nextnonce: 'always' },
};

console.log(`${rate} requests/s for ${seconds} s a row, Node ${process.version}`);
console.log('upstream/client: upstream requests for one client request; 401s: client requests that met one');
for (const processes of [1, 4]) {
  for (const [name, behaviour] of Object.entries(rows)) console.log(await row(processes, name, behaviour));
}

async function row(processes: number, name: string, behaviour: BehaviourChange): Promise<string> {
  const redis = await startRedis();
  const { deployments } = defaultSettings();
  const submissions = { ...deployments.submissions, ...behaviour };
  const simulator = await startSimulator({ deployments: { ...deployments, submissions } });
  const { origin } = simulator.deployments.submissions;
  const gateways: GatewayProcess[] = [];
  for (let index = 0; index < processes; index += 1) {
    gateways.push(
      await startGatewayProcess({ upstream: { origin, ca: simulator.ca } }, { redis: { url: redis.url } }),
    );
  }
  const violations = (): number => simulator.counts('submissions').ncViolations;
  const learnt = new Promise<number>((resolve) => setTimeout(() => resolve(violations()), LEARNING_MS));
  const { sent, failed } = await load(gateways);
  const after = violations() - (await learnt);
  const line = `${await report(simulator, gateways, sent, failed)}, ${after} after ${LEARNING_MS / 1000} s`;
  await Promise.all(gateways.map((gateway) => gateway.close()));
  await simulator.close();
  await redis.close();
  return `${processes} x ${name.padEnd(22)} ${line}`;
}

async function report(
  simulator: Simulator<'submissions'>,
  gateways: readonly GatewayProcess[],
  sent: number,
  failed: number,
): Promise<string> {
  const { requests, challenges, ncViolations } = simulator.counts('submissions');
  const reason = (name: string): Promise<number> =>
    sumOf(gateways, 'digest_gateway_challenges_total', { reason: name });
  const met = (await reason('cold')) + (await reason('stale'));
  return [
    `upstream/client ${(requests / sent).toFixed(4)}`,
    `401s ${met} (${((1000 * met) / sent).toFixed(2)} of 1,000)`,
    `challenges ${challenges}, ahead ${await reason('ahead')}`,
    `failed ${failed}`,
    `nc violations ${ncViolations}`,
  ].join('  ');
}

async function sumOf(
  gateways: readonly GatewayProcess[],
  name: string,
  labels: Record<string, string>,
): Promise<number> {
  const counts = await Promise.all(gateways.map((gateway) => gateway.metric(name, labels)));
  return counts.reduce((sum, count) => sum + count, 0);
}

async function load(gateways: readonly GatewayProcess[]): Promise<{ sent: number; failed: number }> {
  const pools = gateways.map(({ origin }) => new Pool(origin, { connections: 64 }));
  let failed = 0;
  const ask = async (pool: Pool): Promise<void> => {
    const { statusCode, body } = await pool.request({ path: TARGET, method: 'GET' });
    await body.dump();
    if (statusCode !== 200) failed += 1;
  };
  const asked: Promise<void>[] = [];
  const begun = performance.now();
  while (performance.now() - begun < seconds * 1000) {
    const due = ((performance.now() - begun) / 1000) * rate;
    while (asked.length < due) {
      const pool = pools[asked.length % pools.length];
      if (pool !== undefined) asked.push(ask(pool));
    }
    await new Promise((resolve) => setTimeout(resolve, TICK_MS));
  }
  await Promise.all(asked);
  await Promise.all(pools.map((pool) => pool.close()));
  return { sent: asked.length, failed };
}
