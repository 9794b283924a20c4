import type { Behaviour } from './settings.ts';

interface Record {
  failures: number;
  until: number;
}

/** Addresses with repeated wrong digests. */
export class Lockouts {
  readonly #records = new Map<string, Record>();
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  isLocked(address: string): boolean {
    return (this.#records.get(address)?.until ?? 0) > this.#now();
  }

  failed(address: string, rule: Behaviour['lockout']): void {
    if (rule === null) return;
    const record = this.#records.get(address) ?? { failures: 0, until: 0 };
    record.failures += 1;
    if (record.failures >= rule.failures) {
      record.failures = 0;
      record.until = this.#now() + rule.durationMs;
    }
    this.#records.set(address, record);
  }

  succeeded(address: string): void {
    this.#records.delete(address);
  }
}
