import { callEach } from '../../base/report-error.ts';
import type { Waiter } from '../audit.ts';
import { tellRecorded } from './batch.ts';
import { Gathering } from './batch-timer.ts';

/** Lets answers go that wait for no file: together, as after a batch, they cost less than one by one. */
export class Departure {
  #leaving: Waiter[] = [];
  readonly #gathering = new Gathering(
    () => this.#leaving.length,
    () => this.#go(),
  );

  add(waiter: Waiter): void {
    this.#leaving.push(waiter);
    this.#gathering.begin();
  }

  #go(): void {
    const leaving = this.#leaving;
    this.#leaving = [];
    callEach(leaving, tellRecorded);
  }
}
