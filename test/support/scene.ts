import { type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import type { Simulator } from '../../src/simulator/simulator.ts';
import { closing } from './closing.ts';
import {
  type ConfiguredGateway,
  type RunningGateway,
  type StartOptions,
  startConfiguredGateway,
  startGateway,
  type TestDeployment,
  type TopLevel,
} from './gateway.ts';
import { type GatewayProcess, startGatewayProcess } from './gateway-process.ts';
import { type RelayMode, type SwitchedRelay, startRelay, startSwitchedRelay } from './relay.ts';
import { authors, startSimulator } from './simulator.ts';

export { authors };

/** A gateway in front of the simulator's submissions service, over TLS. */
export interface RunningScene<Gateway = RunningGateway> extends AsyncDisposable {
  readonly simulator: Simulator<'submissions' | 'abstracts'>;
  readonly gateway: Gateway;
  /** Its deployment `submissions`, for further gateways. */
  readonly deployment: TestDeployment;
  /** The way to each address of the deployment, if there are `modes`. */
  readonly relays: readonly SwitchedRelay[];
  /** Asks the gateway as a plain client does. */
  get(target: string, init?: RequestInit): Promise<Response>;
  close(): Promise<void>;
}

export type FleetScene = RunningScene<GatewayProcess>;

export interface SceneOptions extends StartOptions {
  readonly behaviour?: BehaviourChange;
  /** Settings of the deployment, beyond the defaults. */
  readonly settings?: Record<string, unknown>;
  /** Settings of a second deployment, in front of the simulator's other service; left out: there is none. */
  readonly abstracts?: Record<string, unknown>;
  /** Sections of the gateway's configuration, beyond its deployments. */
  readonly top?: TopLevel;
  readonly password?: string;
  /** As the configuration has it, in place of user name and password. */
  readonly credential?: Record<string, unknown>;
  /** More credentials, as the configuration has them. */
  readonly credentials?: Record<string, unknown>;
  /** PEM of the authority of the deployment's proxy. */
  readonly proxyCa?: string;
  /** True: between the two, connections are not equally fast. Else what starts a relay to this port. */
  readonly relay?: boolean | ((port: number) => Promise<{ readonly port: number; close(): Promise<void> }>);
  /** In place of it, an address for each, whose way is so at the start. */
  readonly modes?: readonly RelayMode[];
}

/** A gateway that reads its configuration from a file, in the process of the test. */
interface FileOptions extends Omit<SceneOptions, keyof StartOptions> {
  readonly fromFile: true;
}

/** A gateway in a process of its own, with so many workers. */
export interface FleetOptions extends Omit<SceneOptions, keyof StartOptions> {
  readonly workers: number;
  /** Further arguments of `serve`. */
  readonly args?: readonly string[];
}

/**
 * Starts a gateway that reads its configuration from a file, with so many workers; with one, it is in the process of the
 * test.
 */
export async function startSceneWith(
  workers: number,
  options: Omit<SceneOptions, keyof StartOptions>,
): Promise<RunningScene<ConfiguredGateway>> {
  return workers === 1 ? startScene({ ...options, fromFile: true }) : startScene({ ...options, workers });
}

/** Starts all of it for one test, which stops it at its end. */
export async function startScene(options: FleetOptions): Promise<FleetScene>;
export async function startScene(options: FileOptions): Promise<RunningScene<ConfiguredGateway>>;
export async function startScene(options?: SceneOptions): Promise<RunningScene>;
export async function startScene(
  options: SceneOptions | FleetOptions | FileOptions = {},
): Promise<RunningScene | FleetScene | RunningScene<ConfiguredGateway>> {
  const scene = await openScene(options as SceneOptions);
  closing.push(scene.close);
  return scene;
}

/** Starts all of it; the caller closes it, or declares it with `await using`. */
export async function openScene(options: FleetOptions): Promise<FleetScene>;
export async function openScene(options?: SceneOptions): Promise<RunningScene>;
export async function openScene(
  options: SceneOptions | FleetOptions = {},
): Promise<RunningScene | FleetScene> {
  const {
    behaviour,
    settings,
    abstracts,
    top,
    password,
    credential,
    credentials,
    proxyCa,
    relay,
    modes,
    ...run
  } = options;
  const opened: { close(): Promise<void> }[] = [];
  const open = async <T extends { close(): Promise<void> }>(opening: Promise<T>): Promise<T> => {
    const each = await opening;
    opened.unshift(each);
    return each;
  };
  const close = async (): Promise<void> => {
    for (const each of opened.splice(0)) await each.close();
  };
  try {
    const { deployments } = defaultSettings();
    const submissions = { ...deployments.submissions, testPaths: true, ...behaviour };
    const simulator = await open(startSimulator({ deployments: { ...deployments, submissions } }));
    const { port } = simulator.deployments.submissions;
    const relays: SwitchedRelay[] = [];
    for (const mode of modes ?? []) relays.push(await open(startSwitchedRelay(port, mode)));
    const way = relay && (await open(relay === true ? startUnequalRelay(port) : relay(port)));
    const addresses = (modes === undefined ? [way || { port }] : relays).map(
      (each) => `https://127.0.0.1:${each.port}`,
    );
    const deployment: TestDeployment = {
      origin: addresses[0] ?? '',
      ca: simulator.ca,
      settings: { ...(addresses.length > 1 && { baseUrl: addresses }), ...settings },
      ...(password !== undefined && { password }),
      ...(proxyCa !== undefined && { proxyCa }),
    };
    const configured = {
      submissions: deployment,
      ...(abstracts && {
        abstracts: { origin: simulator.deployments.abstracts.origin, ca: simulator.ca, settings: abstracts },
      }),
    };
    const all = {
      ...top,
      credentials: { ...top?.credentials, ...credentials, ...(credential && { submissions: credential }) },
    };
    const gateway = await open(startGatewayAs(run, configured, all));
    return {
      simulator,
      gateway: gateway as RunningGateway,
      deployment,
      relays,
      get: (target, init) => fetch(`${gateway.origin}${target}`, init),
      close,
      [Symbol.asyncDispose]: close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Starts the gateway in the process of the test, or in one of its own. */
function startGatewayAs(
  run: StartOptions | FileOptions | Pick<FleetOptions, 'workers' | 'args'>,
  deployments: Record<string, TestDeployment>,
  top: TopLevel,
): Promise<RunningGateway | GatewayProcess> {
  const inFile = { drain: { delay: '0s', timeout: '20s' }, ...top };
  if ('fromFile' in run) return startConfiguredGateway(deployments, inFile);
  if (!('workers' in run)) return startGateway(deployments, top, run);
  return startGatewayProcess(deployments, { workers: run.workers, ...inFile }, { args: run.args ?? [] });
}

function startUnequalRelay(port: number) {
  return startRelay(port, (index) => ({ requestMs: (index * 7) % 20 }));
}

/** For example `200`, or `502 upstream-unreachable`. */
export async function outcomeOf(response: Response): Promise<string> {
  const text = await response.text();
  const isProblem = response.headers.get('content-type') === 'application/problem+json';
  return isProblem
    ? `${response.status} ${(JSON.parse(text) as { code: string }).code}`
    : String(response.status);
}

/** The problem document of a refused request. */
export async function problemOf(answer: Response): Promise<{ status: number; code: string; detail: string }> {
  return (await answer.json()) as { status: number; code: string; detail: string };
}
