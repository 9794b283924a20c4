import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import timersPromises from 'node:timers/promises';
import { currentProcess, type Planned, type SimulatedProcess } from './world.ts';

/** A timer as `setTimeout` of Node returns it. */
class VirtualTimer {
  readonly #process: SimulatedProcess;
  readonly #ms: number;
  readonly #call: () => void;
  readonly #repeats: boolean;
  #planned: Planned | undefined;

  constructor(process: SimulatedProcess, ms: number, call: () => void, repeats: boolean) {
    this.#process = process;
    this.#ms = ms;
    this.#call = call;
    this.#repeats = repeats;
    this.refresh();
  }

  refresh(): this {
    this.close();
    this.#planned = this.#process.timer(this.#ms, '', () => {
      if (this.#repeats) this.refresh();
      this.#call();
    });
    return this;
  }

  close(): this {
    if (this.#planned !== undefined) this.#process.cancel(this.#planned);
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  hasRef(): boolean {
    return true;
  }
}

class VirtualImmediate {
  readonly process: SimulatedProcess;
  readonly planned: Planned;

  constructor(process: SimulatedProcess, call: () => void) {
    this.process = process;
    this.planned = process.immediate(call);
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }
}

type Call = (...args: unknown[]) => void;

/**
 * Puts clock, timers and randomness of the simulated process that is running in the place of those of Node. Code
 * outside of simulated processes keeps those of Node.
 */
export function installVirtualGlobals(): void {
  installTimers();
  installClocks();
  installRandomness();
  syncBuiltinESMExports();
}

function installTimers(): void {
  const real = { setTimeout, setInterval, setImmediate, clearTimeout, clearImmediate };
  const { setImmediate: realTurn, setTimeout: realPause } = timersPromises;
  const timer =
    (fallback: typeof setTimeout | typeof setInterval, repeats: boolean) =>
    (call: Call, ms = 1, ...args: unknown[]): unknown => {
      const process = currentProcess();
      if (process === undefined) return fallback(call, ms, ...args);
      return new VirtualTimer(process, ms, () => call(...args), repeats);
    };
  const clear = (timeout: unknown): void => {
    if (timeout instanceof VirtualTimer) timeout.close();
    else real.clearTimeout(timeout as NodeJS.Timeout);
  };
  const immediate = (call: Call, ...args: unknown[]): unknown => {
    const process = currentProcess();
    if (process === undefined) return real.setImmediate(call, ...args);
    return new VirtualImmediate(process, () => call(...args));
  };
  const clearTurn = (turn: unknown): void => {
    if (turn instanceof VirtualImmediate) turn.process.cancel(turn.planned);
    else real.clearImmediate(turn as NodeJS.Immediate);
  };
  Object.assign(globalThis, {
    setTimeout: timer(real.setTimeout, false),
    setInterval: timer(real.setInterval, true),
    clearTimeout: clear,
    clearInterval: clear,
    setImmediate: immediate,
    clearImmediate: clearTurn,
  });
  const turn = (): Promise<void> => {
    if (currentProcess() === undefined) return realTurn();
    return new Promise((resolve) => void immediate(() => resolve()));
  };
  const pause: typeof realPause = (ms, value, options) => {
    if (currentProcess() === undefined) return realPause(ms, value, options);
    return new Promise((resolve) => void setTimeout(() => resolve(value as never), ms));
  };
  Object.assign(timersPromises, { setImmediate: turn, setTimeout: pause });
  const realDeadline = AbortSignal.timeout;
  AbortSignal.timeout = (ms) => {
    if (currentProcess() === undefined) return realDeadline(ms);
    const controller = new AbortController();
    setTimeout(() => controller.abort(new DOMException('The operation timed out', 'TimeoutError')), ms);
    return controller.signal;
  };
}

function installClocks(): void {
  const realEpoch = Date.now;
  const realMonotonic = performance.now.bind(performance);
  Date.now = () => currentProcess()?.epoch ?? realEpoch();
  performance.now = () => currentProcess()?.monotonic ?? realMonotonic();
}

function installRandomness(): void {
  const real = { random: Math.random, uuid: crypto.randomUUID, bytes: crypto.randomBytes };
  Math.random = () => currentProcess()?.random.next() ?? real.random();
  const uuid = (): ReturnType<typeof crypto.randomUUID> => currentProcess()?.random.uuid() ?? real.uuid();
  Object.assign(crypto, {
    randomUUID: uuid,
    randomBytes: (length: number) => currentProcess()?.random.bytes(length) ?? real.bytes(length),
  });
  globalThis.crypto.randomUUID = uuid;
}
