import type { SimulatedProcess, World } from '../world.ts';
import type { UpstreamMessage, UpstreamReply, UpstreamServer } from './server.ts';

/** The outcome of an exchange: the connection breaks before or after the server has seen the request. */
export type Fate = 'ok' | 'lost-before' | 'lost-after';

/** The upstream as a service with runs, connections and a load. */
export class UpstreamService {
  readonly server: UpstreamServer;
  readonly #world: World;
  readonly #start: (name: string) => SimulatedProcess;
  readonly #open = new Set<() => void>();
  process: SimulatedProcess;
  #runs = 0;
  /** Until then connections break now and then. */
  breaksUntil = 0;
  /** The longest time that it takes for a request, in milliseconds. */
  slowestMs = 5;

  constructor(world: World, server: UpstreamServer, start: (name: string) => SimulatedProcess) {
    this.#world = world;
    this.server = server;
    this.#start = start;
    this.process = start('upstream/0');
  }

  get isUp(): boolean {
    return this.process.alive;
  }

  handle(message: UpstreamMessage): UpstreamReply {
    return this.server.handle(message, this.process);
  }

  /** In milliseconds. */
  serviceTime(): number {
    return this.#world.random.between(0.1, this.slowestMs);
  }

  takeFate(): Fate {
    const { now, random } = this.#world;
    if (now >= this.breaksUntil || random.chance(0.6)) return 'ok';
    return random.chance(0.5) ? 'lost-before' : 'lost-after';
  }

  /** Calls back when the service ends. The result ends that. */
  watch(onEnd: () => void): () => void {
    this.#open.add(onEnd);
    return () => this.#open.delete(onEnd);
  }

  stop(): void {
    this.process.end();
    for (const onEnd of [...this.#open]) onEnd();
  }

  /** `changesKey`: nonces that only a key makes good are good no more. */
  restart(changesKey: boolean): void {
    this.#runs += 1;
    this.server.forget(changesKey);
    this.process = this.#start(`upstream/${this.#runs}`);
  }
}
