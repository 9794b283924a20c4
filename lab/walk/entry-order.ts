import { once } from 'node:events';
import { type Debugger, Session } from 'node:inspector';
import { setImmediate as turn } from 'node:timers/promises';
import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { type EnteredFunction, placeOf } from './coverage.ts';
import type { Observer } from './walks.ts';

/*
 * Coverage knows no order. A debugger does: it stops at each function once. It needs a thread of its own, since the one
 * that it stops stands still meanwhile.
 */

type ToDebugger = readonly EnteredFunction[] | 'start' | 'end';

/** Observes in which order functions are entered first. */
export class EntryOrder implements Observer {
  readonly #functions: readonly EnteredFunction[];
  readonly #worker = new Worker(new URL(import.meta.url));
  #places: Promise<readonly string[]> | undefined;

  constructor(functions: readonly EnteredFunction[]) {
    this.#functions = functions;
  }

  async begin(): Promise<void> {
    await this.#ask(this.#functions);
    // Timers that came due meanwhile.
    await turn();
    await this.#ask('start');
  }

  end(): void {
    this.#places = this.#ask('end');
  }

  /** The functions that were entered, in their order, when it has ended. */
  async order(): Promise<readonly EnteredFunction[]> {
    const byPlace = new Map(this.#functions.map((each) => [placeOf(each), each]));
    const places = (await this.#places) ?? [];
    await this.#worker.terminate();
    return places.flatMap((place) => byPlace.get(place) ?? []);
  }

  async #ask(message: ToDebugger): Promise<readonly string[]> {
    const answer = once(this.#worker, 'message');
    this.#worker.postMessage(message);
    const [places] = await answer;
    return places;
  }
}

/** Stops the main thread at each of the functions once, and notes their places. */
class MainThreadDebugger {
  readonly #session = new Session();
  readonly #placeByBreakpoint = new Map<string, string>();
  readonly #places: string[] = [];

  constructor() {
    this.#session.connectToMainThread();
    this.#session.on('Debugger.paused', ({ params }) => this.#onPaused(params));
  }

  async prepare(functions: readonly EnteredFunction[]): Promise<void> {
    await this.#call('Debugger.enable', {});
    await this.#call('Debugger.setBreakpointsActive', { active: false });
    await Promise.all(functions.map((each) => this.#stopAt(each)));
  }

  async start(): Promise<void> {
    await this.#call('Debugger.setBreakpointsActive', { active: true });
  }

  end(): readonly string[] {
    this.#session.disconnect();
    return this.#places;
  }

  async #stopAt(entered: EnteredFunction): Promise<void> {
    const { start, end } = entered;
    // An arrow function begins where its surroundings could stop, too.
    const { locations } = await this.#call<Debugger.GetPossibleBreakpointsReturnType>(
      'Debugger.getPossibleBreakpoints',
      { start, end, restrictToFunction: true },
    );
    const { breakpointId } = await this.#call<Debugger.SetBreakpointReturnType>('Debugger.setBreakpoint', {
      location: locations[0] ?? start,
    });
    this.#placeByBreakpoint.set(breakpointId, placeOf(entered));
  }

  #onPaused({ hitBreakpoints = [] }: Debugger.PausedEventDataType): void {
    for (const breakpointId of hitBreakpoints) {
      const place = this.#placeByBreakpoint.get(breakpointId);
      if (place !== undefined) this.#places.push(place);
      this.#session.post('Debugger.removeBreakpoint', { breakpointId });
    }
    this.#session.post('Debugger.resume');
  }

  #call<Result>(method: string, params: object): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#session.post(method, params, (error, result) => {
        if (error === null) resolve(result as Result);
        else reject(error);
      });
    });
  }
}

if (!isMainThread) {
  const mainThread = new MainThreadDebugger();
  parentPort?.on('message', async (message: ToDebugger) => {
    if (message === 'start') await mainThread.start();
    else if (message !== 'end') await mainThread.prepare(message);
    parentPort?.postMessage(message === 'end' ? mainThread.end() : []);
  });
}
