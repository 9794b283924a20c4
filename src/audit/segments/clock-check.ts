import { join } from 'node:path';
import { z } from 'zod';
import { type Archive, sealedHeader } from './archive.ts';
import { MOST_SEQ, type Segment, segmentsIn } from './segment.ts';
import { SignedFile } from './signed-file.ts';

const DAY_MS = 86_400_000;
/** Beyond the age of a segment, no more than this lies between two, in milliseconds; otherwise the clock may be wrong. */
const MOST_GAP_MS = 7 * DAY_MS;

const counted = z.strictObject({ segment: z.int().min(1).max(MOST_SEQ), ms: z.int().min(0) });

interface ClockCheckOptions extends Archive {
  /** Age at which segments are closed, in milliseconds. */
  readonly age: number;
}

/** A place in the log where the time goes on further than the gateway waits between two segments. */
interface Gap {
  /** Number of the first record of the last segment before it. */
  readonly segment: number;
  readonly days: number;
}

/**
 * Doubts a clock that is far ahead of the log, until it has been so for a day of running processes, or an operator
 * accepts it. How long is in a signed file: a start neither begins the day again nor shortens it, nor does the clock.
 */
export class ClockCheck {
  readonly #options: ClockCheckOptions;
  readonly #file: SignedFile<z.infer<typeof counted>>;
  /** Of an operator. In the other file, a gateway that counts at the same time would overwrite it. */
  readonly #acceptance: SignedFile<z.infer<typeof counted>>;
  /** When segments were begun, by their first record: under a seal that does not change. */
  readonly #opened = new Map<number, number>();
  /** Until when the time is in the file, on the monotonic clock. */
  #countedTo: number | undefined;

  constructor(options: ClockCheckOptions) {
    this.#options = options;
    const { folder, replica, keys } = options;
    const fileOf = (name: string): SignedFile<z.infer<typeof counted>> =>
      new SignedFile({
        path: join(folder, name),
        key: keys.sinkPosition,
        schema: counted,
        textOf: ({ segment, ms }) => [name, replica, segment, ms].join('\n'),
      });
    this.#file = fileOf('clock');
    this.#acceptance = fileOf('clock.accepted');
  }

  /**
   * Counts the time since the last call; undefined: the clock is not in doubt. Otherwise how many days it is ahead.
   * @throws Error if a file cannot be read or written
   */
  async doubt(): Promise<number | undefined> {
    const gap = await this.#newestGap();
    const ms = gap === undefined ? DAY_MS : await this.#accepted(gap);
    if (gap === undefined || ms >= DAY_MS) {
      this.#countedTo = undefined;
      return undefined;
    }
    const now = performance.now();
    const total = Math.round(ms + now - (this.#countedTo ?? now));
    await this.#file.write({ segment: gap.segment, ms: total });
    this.#countedTo = now;
    return total < DAY_MS ? gap.days : undefined;
  }

  /** Counts the time of a process that ends. */
  async end(): Promise<void> {
    if (this.#countedTo !== undefined) await this.doubt();
  }

  /** Accepts the clock as it is; false: it is not in doubt. */
  async accept(): Promise<boolean> {
    const gap = await this.#newestGap();
    if (gap === undefined || (await this.#accepted(gap)) >= DAY_MS) return false;
    await this.#acceptance.write({ segment: gap.segment, ms: DAY_MS });
    return true;
  }

  /** Later times than the present one are those of a clock that has been set back. */
  async #newestGap(): Promise<Gap | undefined> {
    const now = Date.now();
    let gap: Gap | undefined;
    let before: { readonly segment: number; readonly opened: number } | undefined;
    const note = (opened: number): void => {
      if (before === undefined || opened - before.opened <= this.#options.age + MOST_GAP_MS) return;
      gap = { segment: before.segment, days: Math.floor((opened - before.opened) / DAY_MS) };
    };
    for (const segment of await segmentsIn(this.#options.folder)) {
      const opened = await this.#openedAt(segment);
      if (!(opened <= now)) continue;
      note(opened);
      before = { segment: segment.first, opened };
    }
    note(now);
    return gap;
  }

  /** NaN: no seal of the key says that. */
  async #openedAt(segment: Segment): Promise<number> {
    const known = this.#opened.get(segment.first);
    if (known !== undefined) return known;
    const opened = Date.parse((await sealedHeader(this.#options, segment))?.opened ?? '');
    if (!Number.isNaN(opened)) this.#opened.set(segment.first, opened);
    return opened;
  }

  /** For how long it has been seen, in milliseconds. A file that no gateway wrote says nothing. */
  async #accepted({ segment }: Gap): Promise<number> {
    const found = await Promise.all([this.#file.trusted(), this.#acceptance.trusted()]);
    return Math.max(...found.map((seen) => (seen?.segment === segment ? seen.ms : 0)));
  }
}
