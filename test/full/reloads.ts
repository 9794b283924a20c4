import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { stringify } from 'yaml';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { type LoadSeen, startLoad } from '../support/load.ts';
import { repository } from '../support/repository.ts';
import { startSimulator } from '../support/simulator.ts';
import { until } from '../support/until.ts';
import { addressConfig } from './large-config.ts';

const token = 'a-long-random-token';
/** One in so many configurations is wrong. */
const WRONG_EVERY = 4;
/** How long a reload may take, in milliseconds. */
const LIMIT_MS = 240_000;

export interface ReloadsOptions {
  readonly reloads: number;
  readonly clients: number;
  readonly deployments: number;
}

export interface ReloadsReport {
  readonly load: LoadSeen;
  /** Reloads that were refused, as they had to be. */
  readonly refused: number;
  /** For each reload, the longest turn of the event loop from the end of the reload before to its own end. */
  readonly turns: readonly LongestTurn[];
}

type Config = ReturnType<typeof configOf>;

function configOf({ clients, deployments }: ReloadsOptions, origin: string) {
  const many = addressConfig(clients, deployments);
  return {
    listen: { port: 0 },
    control: { port: 0, tokenSha256: createHash('sha256').update(token).digest('hex') },
    credentials: {
      here: { username: { value: 'demo-user' }, password: { value: 'demo-api-key' } },
      ...many.credentials,
    },
    clients: [
      { id: 'here', identify: { addresses: ['127.0.0.1'] }, allow: [{ deployment: 'here' }] },
      ...many.clients,
    ],
    deployments: {
      here: {
        baseUrl: origin,
        match: { pathPrefix: '/api/manuscripts/' },
        credential: 'here',
        tls: { caFile: 'here-ca.pem' },
        connections: 64,
      },
      ...many.deployments,
    },
  };
}

/**
 * Reloads again and again while clients send requests, by signal and by the control plane in turn. Each valid
 * configuration changes the deployment of the requests and the order of the clients.
 * @throws Error if a wrong configuration is not refused, or another one is
 */
export async function reloadsUnderLoad(options: ReloadsOptions): Promise<ReloadsReport> {
  await using closing = new AsyncDisposableStack();
  const simulator = await startSimulator(defaultSettings());
  closing.defer(() => simulator.close());
  const { origin } = simulator.deployments.submissions;
  const config = configOf(options, origin);
  const gateway = closing.use(
    await startGatewayProcess(
      { here: { origin, ca: simulator.ca } },
      { anonymous: false, ...config },
      { runner: MONITORED },
    ),
  );
  const load = startLoad([gateway.origin]);
  closing.defer(async () => void (await load.end()));
  await longestTurn(gateway);
  const turns: LongestTurn[] = [];
  let refused = 0;
  for (let round = 1; round <= options.reloads; round += 1) {
    const { text, isWrong } = configOfRound(config, round);
    await writeFile(gateway.configFile, text);
    const isUsed = await (round % 3 === 0 ? byControlPlane : bySignal)(gateway);
    if (isUsed === isWrong) throw new Error(`reload ${round} ${isUsed ? 'succeeded' : 'was refused'}`);
    if (isWrong) refused += 1;
    turns.push(await longestTurn(gateway));
  }
  return { load: await load.end(), refused, turns };
}

/** The text of a configuration that differs from those of other rounds. */
function configOfRound(config: Config, round: number): { readonly text: string; readonly isWrong: boolean } {
  const { here, ...others } = config.deployments;
  const changed = {
    ...config,
    clients: round % 2 === 0 ? config.clients : config.clients.toReversed(),
    deployments: { here: { ...here, connections: 64 + round }, ...others },
  };
  const mistake = MISTAKES[Math.floor(round / WRONG_EVERY) % MISTAKES.length] ?? stringify;
  const isWrong = round % WRONG_EVERY === 0;
  return { text: (isWrong ? mistake : stringify)(changed), isWrong };
}

/** The mistakes, which are made in turn. */
const MISTAKES: readonly ((config: Config) => string)[] = [
  (config) => `${stringify(config)}\nnonsense: 1\n`,
  (config) => `${stringify(config)}  - [`,
  (config) => stringify(config).slice(0, -300),
  () => '',
  ({ deployments, ...others }) => {
    const here = { ...deployments.here, tls: { caFile: 'missing.pem' } };
    return stringify({ ...others, deployments: { ...deployments, here } });
  },
];

/** Resolves to whether the configuration is in use. */
async function bySignal(gateway: GatewayProcess): Promise<boolean> {
  const seen = gateway.logged.length;
  const ended = () =>
    gateway.logged.slice(seen).find(({ msg }) => /^configuration (reloaded|refused)/.test(`${msg}`));
  process.kill(gateway.pid, 'SIGHUP');
  await until(() => ended() !== undefined, LIMIT_MS);
  return ended()?.['msg'] === 'configuration reloaded';
}

async function byControlPlane({ control }: GatewayProcess): Promise<boolean> {
  const headers = { authorization: `Bearer ${token}` };
  return (await fetch(`${control}/api/reload`, { method: 'POST', headers })).ok;
}

/** The command for `startGatewayProcess` that lets `measuredReload` see the turns of the event loop. */
export const MONITORED = [
  'node',
  '--expose-gc',
  '--import',
  `${repository}/test/full/loop-monitor.ts`,
] as const;

/** The longest turn of the event loop in milliseconds: of the processor and of the clock. */
export interface LongestTurn {
  readonly cpuMs: number;
  readonly wallMs: number;
  /** Processor time of all threads of the gateway since the report before. */
  readonly ofProcessMs: number;
}

/**
 * Reloads by SIGHUP; resolves when the configuration, in YAML, is in force, to the longest turn since the last one that
 * was told: with all that the reload before left to do.
 */
export async function measuredReload(gateway: GatewayProcess, config: string): Promise<LongestTurn> {
  await writeFile(gateway.configFile, config);
  const seen = gateway.logged.length;
  process.kill(gateway.pid, 'SIGHUP');
  await until(
    () => gateway.logged.slice(seen).some(({ msg }) => /^configuration reloaded/.test(`${msg}`)),
    LIMIT_MS,
  );
  return longestTurn(gateway);
}

/** The longest turn since the start, or since it was told last. */
export async function longestTurn(gateway: GatewayProcess): Promise<LongestTurn> {
  const seen = gateway.logged.length;
  process.kill(gateway.pid, 'SIGUSR2');
  const told = () => gateway.logged.slice(seen).find(({ longestTurn }) => longestTurn !== undefined);
  await until(() => told() !== undefined, LIMIT_MS);
  return told()?.['longestTurn'] as LongestTurn;
}
