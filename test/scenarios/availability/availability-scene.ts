import { outcomeOf, type RunningScene, type SceneOptions, startScene } from '../../support/scene.ts';

export interface AvailabilityScene extends Omit<RunningScene, 'get'> {
  /** `127.0.0.1:PORT` of each address of the deployment `submissions`. */
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

const health = { interval: 'off' };

/** Starts a gateway whose deployment `submissions` has addresses that fail as a test wants; `abstracts` is well. */
export async function startAvailability(options: SceneOptions = {}): Promise<AvailabilityScene> {
  let ahead = 0;
  const scene = await startScene({
    modes: ['open'],
    clock: { now: () => performance.now() + ahead },
    abstracts: { match: { pathPrefix: '/api/abstracts/' }, health },
    ...options,
    settings: { health, ...options.settings },
  });
  const { gateway, relays } = scene;
  const get = (target = '/echo', init?: RequestInit) => scene.get(target, init);
  return {
    ...scene,
    addresses: relays.map(({ port }) => `127.0.0.1:${port}`),
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
}
