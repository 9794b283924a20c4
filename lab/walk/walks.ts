import { mock } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { Clock } from '../../src/base/clock.ts';
import { credentialSet, type RunningGateway, startGateway } from '../../test/support/gateway.ts';
import { authors } from '../../test/support/simulator.ts';
import { until } from '../../test/support/until.ts';
import { NAME, WalkUpstream } from './upstream.ts';

/** Passwords of its credential. */
const OLD = 'demo-api-key';
const NEW = 'another-api-key';
/** Turns of the event loop in which what remains of a request is done. */
const TURNS = 20;

/** No nonce grows old enough on a slow machine for its lifetime to be learned, and to be renewed ahead. */
const STOPPED: Clock = { now: () => 0 };

interface Scene {
  readonly upstream: WalkUpstream;
  readonly gateway: RunningGateway;
}

/** A GET through a gateway in one state. */
export interface Walk {
  readonly name: string;
  /** The state. */
  readonly title: string;
  /** Brings a new scene there; resolves to what happens immediately before the request, if anything does. */
  prepare(scene: Scene): Promise<(() => void) | undefined>;
  /** True when what the request began is over; left out: with its response. */
  isOver?(scene: Scene): boolean;
}

export const walks: readonly Walk[] = [
  {
    name: 'cached',
    title: 'a cached nonce',
    prepare: serve,
  },
  {
    name: 'cold',
    title: 'no nonce and no connection (cold)',
    prepare: async () => undefined,
  },
  {
    name: 'stale',
    title: 'a stale nonce',
    prepare: async (scene) => {
      await serve(scene);
      // The nonce has been used twice.
      await scene.upstream.change({ maxNonceUses: 2 });
      return undefined;
    },
  },
  {
    name: 'candidate',
    title: 'a candidate that is refused',
    prepare: async (scene) => {
      await serve(scene);
      const set = await credentialSet(scene.gateway, NAME, NEW);
      return () => void scene.gateway.plane.offer(set);
    },
    isOver: (scene) => isLogged(scene, 'refused'),
  },
  {
    name: 'rotation',
    title: 'a password that changed to `next`',
    prepare: async (scene) => {
      await serve(scene);
      await scene.gateway.plane.offer(await credentialSet(scene.gateway, NAME, OLD, NEW));
      await until(async () => {
        await get(scene);
        return isLogged(scene, 'waiting');
      });
      // A connection that the trial opened is ready by then.
      await serve(scene);
      await scene.upstream.change({ accounts: [account(NEW)] });
      return undefined;
    },
    isOver: (scene) => isLogged(scene, 'promoted'),
  },
];

/** Observes a request from `begin` to `end`. */
export interface Observer {
  begin(): Promise<void> | void;
  end(): void;
}

/** Sends the request of a walk in a scene of its own; returns how many requests the upstream got for it. */
export async function send(walk: Walk, observer: Observer): Promise<number> {
  // What comes at a time of its own is not part of a walk, and a slow machine has more of it.
  mock.timers.enable({ apis: ['setInterval'] });
  const upstream = await WalkUpstream.start();
  const { origin, ca } = upstream;
  // A health check, at a time of its own, is not part of a walk.
  const settings = { health: { interval: 'off' } };
  const deployment = { origin, ca, settings };
  const gateway = await startGateway({ [NAME]: deployment }, {}, { clock: STOPPED });
  const scene = { upstream, gateway };
  try {
    const start = await walk.prepare(scene);
    await rest();
    const before = await upstream.requests();
    await observer.begin();
    start?.();
    await get(scene);
    await until(() => walk.isOver?.(scene) ?? true);
    await rest();
    observer.end();
    return (await upstream.requests()) - before;
  } finally {
    await gateway.close();
    await upstream.close();
    mock.timers.reset();
  }
}

/** @throws Error if the response is not 200 */
async function get({ gateway }: Scene): Promise<void> {
  const response = await fetch(`${gateway.origin}${authors}`);
  await response.arrayBuffer();
  if (response.status !== 200) throw new Error(`the gateway responded with ${response.status}`);
}

/** Two requests: the second uses what the first has left. */
async function serve(scene: Scene): Promise<undefined> {
  await get(scene);
  await get(scene);
}

function account(password: string) {
  return { username: 'demo-user', password, sites: ['demo'] };
}

function isLogged({ gateway }: Scene, rotation: string): boolean {
  return gateway.logged.some(({ result }) => result === rotation);
}

async function rest(): Promise<void> {
  for (let count = 0; count < TURNS; count += 1) await turn();
}
