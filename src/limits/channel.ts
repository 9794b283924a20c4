import { z } from 'zod';
import { CallClient, type ProcessPort } from '../base/message-calls.ts';
import { type LimitState, type LimitStore, limitStateForm, type Report, reportForm } from './store.ts';

/** Name of the service that `primaryLimits` serves. */
export const LIMITS = 'limits';
/** Characters of the name of a limit: a name of the configuration. */
const LONGEST_NAME = 1024;

/** The body of the call that settles a limit. */
export const settleForm = z.object({ name: z.string().max(LONGEST_NAME), report: reportForm });

/**
 * The limits of the primary process, or of another process that serves them. Each call ends within
 * `CALL_DEADLINE_MS`, and at once when the port is closed.
 */
export class ChannelLimitStore implements LimitStore {
  readonly #calls: CallClient;

  constructor(port: ProcessPort) {
    this.#calls = new CallClient({ port, service: LIMITS });
  }

  async settle(name: string, report: Report): Promise<LimitState> {
    const body: z.input<typeof settleForm> = { name, report };
    return limitStateForm.parse(await this.#calls.call('settle', body));
  }

  /** Does not close the port. */
  async close(): Promise<void> {
    this.#calls.close();
  }
}
