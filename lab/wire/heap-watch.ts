import type { GatewayChild, GatewayState } from './gateway-child.ts';

/** The heap may grow by so much, and so many bytes, from a tenth of the way to the end. */
const GROWTH = 1.1;
const GROWTH_BYTES = 4 * 2 ** 20;
/** From this share of the way on the heap is compared: before, code is compiled and pools fill. */
const WARM = 0.1;

/** Compares the heap of a gateway at a tenth of the way with that at the end. */
export class HeapWatch {
  /** Log lines at level error, but those about a disk that stood still. */
  readonly errors: string[] = [];
  #warm: Promise<GatewayState> | undefined;
  #warmBytes: number | undefined;
  #endBytes: number | undefined;

  get figures(): Record<string, string> {
    const shown = (bytes: number | undefined): string =>
      bytes === undefined ? '-' : `${(bytes / 2 ** 20).toFixed(1)} MiB`;
    return { 'heap at a tenth': shown(this.#warmBytes), 'heap at the end': shown(this.#endBytes) };
  }

  /** @param share how much of the way is done, from 0 to 1 */
  async look(gateway: GatewayChild, share: number): Promise<void> {
    if (share < WARM || this.#warm !== undefined) return;
    this.#warm = gateway.state();
    const { heapBytes, errors } = await this.#warm;
    this.#warmBytes = heapBytes;
    this.#note(errors);
  }

  /** The fault of the heap, undefined if there is none; and the state of the gateway. */
  async end(
    gateway: GatewayChild,
  ): Promise<{ readonly heap: string | undefined; readonly state: GatewayState }> {
    const state = await gateway.state();
    this.#note(state.errors);
    this.#endBytes = state.heapBytes;
    const warm = this.#warmBytes;
    const grew = warm !== undefined && state.heapBytes > warm * GROWTH + GROWTH_BYTES;
    return { heap: grew ? `the heap grew from ${warm} to ${state.heapBytes} bytes` : undefined, state };
  }

  #note(errors: readonly string[]): void {
    this.errors.push(...errors.filter((line) => !line.includes('the disk did not answer')));
  }
}
