import type { AuditOptions } from '../../src/audit/audit.ts';
import { type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import type { Simulator } from '../../src/simulator/simulator.ts';
import { useClosing } from './closing.ts';
import { type RunningGateway, startGateway } from './gateway.ts';
import { type RelayMode, type SwitchedRelay, startSwitchedRelay } from './relay.ts';
import { startSimulator } from './simulator.ts';

export interface AvailabilityScene {
  readonly simulator: Simulator<'submissions' | 'abstracts'>;
  readonly gateway: RunningGateway;
  /** The way to each address of the deployment `submissions`. */
  readonly relays: readonly SwitchedRelay[];
  /** `127.0.0.1:PORT` of each. */
  readonly addresses: readonly string[];
  /** The clock of the gateway is so many milliseconds ahead. */
  advance(milliseconds: number): void;
  get(target?: string, init?: RequestInit): Promise<Response>;
  /** Status, and code if there is one, of so many requests one after the other. */
  outcomes(count: number, target?: string): Promise<string[]>;
  /** The check of the deployment in `/readyz`. */
  check(): Promise<{ status: number; ok: boolean; detail: string }>;
  /** Messages logged so far. */
  messages(): string[];
}

export interface AvailabilityOptions {
  /** The mode of each address at the start. */
  readonly modes?: readonly RelayMode[];
  readonly behaviour?: BehaviourChange;
  readonly settings?: Record<string, unknown>;
  readonly top?: Record<string, unknown>;
  readonly audit?: AuditOptions;
}

/** Starts a gateway whose deployment `submissions` has addresses that fail as a test wants; `abstracts` is well. */
export function useAvailability(): (options?: AvailabilityOptions) => Promise<AvailabilityScene> {
  const closing = useClosing();
  return async (options = {}) => {
    const { modes = ['open'] as const, behaviour = {}, settings = {}, top = {}, audit } = options;
    const { deployments } = defaultSettings();
    const submissions = { ...deployments.submissions, testPaths: true, ...behaviour };
    const simulator = await startSimulator({ deployments: { ...deployments, submissions } });
    closing.push(() => simulator.close());
    const relays: SwitchedRelay[] = [];
    for (const mode of modes) {
      const relay = await startSwitchedRelay(simulator.deployments.submissions.port, mode);
      closing.push(() => relay.close());
      relays.push(relay);
    }
    const addresses = relays.map(({ port }) => `127.0.0.1:${port}`);
    const ofSubmissions = {
      origin: '',
      ca: simulator.ca,
      settings: { baseUrl: addresses.map((address) => `https://${address}`), health: OFF, ...settings },
    };
    const ofAbstracts = {
      origin: simulator.deployments.abstracts.origin,
      ca: simulator.ca,
      settings: { match: { pathPrefix: '/api/abstracts/' }, health: OFF },
    };
    let ahead = 0;
    const clock = { now: () => performance.now() + ahead };
    const gateway = await startGateway({ submissions: ofSubmissions, abstracts: ofAbstracts }, top, {
      clock,
      ...(audit !== undefined && { audit }),
    });
    closing.push(() => gateway.close());
    const get = (target = '/echo', init?: RequestInit) => fetch(`${gateway.origin}${target}`, init);
    return {
      simulator,
      gateway,
      relays,
      addresses,
      advance: (milliseconds) => {
        ahead += milliseconds;
      },
      get,
      async outcomes(count, target) {
        const outcomes: string[] = [];
        for (let index = 0; index < count; index += 1) outcomes.push(await outcomeOf(await get(target)));
        return outcomes;
      },
      async check() {
        const response = await fetch(`${gateway.control}/readyz`);
        const { checks } = (await response.json()) as {
          checks: { name: string; ok: boolean; detail: string }[];
        };
        const found = checks.find(({ name }) => name === 'deployment:submissions');
        return { status: response.status, ok: found?.ok ?? false, detail: found?.detail ?? 'no check' };
      },
      messages: () => gateway.logged.map(({ msg }) => String(msg)),
    };
  };
}

const OFF = { interval: 'off' };

/** For example `200`, or `502 upstream-unreachable`. */
export async function outcomeOf(response: Response): Promise<string> {
  const text = await response.text();
  const isProblem = response.headers.get('content-type') === 'application/problem+json';
  return isProblem
    ? `${response.status} ${(JSON.parse(text) as { code: string }).code}`
    : String(response.status);
}
