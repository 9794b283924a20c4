import { headOf } from './raw-line.ts';
import type { StreamEntry } from './redis-stream.ts';
import { parseHead } from './seal.ts';

/** How far one replica's log was collected. */
export interface Reached {
  readonly seq: number;
  readonly time: string;
  /** Record up to which the chain's end was collected. */
  readonly head: number;
}

const NOTHING: Reached = { seq: 0, time: '', head: 0 };

/** How far each replica's log was collected, so that nothing is taken twice. */
export class Progress {
  readonly #replicas: Map<string, Reached>;
  readonly #onNote: (note: string) => void;

  /** `onNote` is told of what is missing. */
  constructor(replicas: Iterable<readonly [string, Reached]>, onNote: (note: string) => void) {
    this.#replicas = new Map(replicas);
    this.#onNote = onNote;
  }

  get replicas(): ReadonlyMap<string, Reached> {
    return this.#replicas;
  }

  /** The entry as a line, with its end; undefined: it was collected before, or is no longer there. */
  take({ replica, seq, record, head }: StreamEntry): string | undefined {
    const before = this.#replicas.get(replica) ?? NOTHING;
    if (record !== undefined)
      return this.#takeRecord(replica, seq, record, before) ? `${record}\n` : undefined;
    const end = head === undefined ? undefined : parseHead(head);
    if (end === undefined || end.seq <= before.head) return undefined;
    this.#replicas.set(replica, { ...before, head: end.seq });
    return `${JSON.stringify({ kind: 'head', ...end })}\n`;
  }

  #takeRecord(replica: string, seq: number, record: string, before: Reached): boolean {
    const time = headOf(Buffer.from(record.slice(0, 80)), 0)?.time ?? '';
    if (seq <= before.seq) {
      // The same number again, and later: the machine lost the end of its log, and wrote other records instead.
      if (time <= before.time) return false;
      this.#onNote(
        `${replica}: record ${seq} comes a second time with another content: its log lost its end`,
      );
    } else if (before.seq > 0 && seq > before.seq + 1) {
      this.#onNote(
        `${replica}: records ${before.seq + 1} to ${seq - 1} are no longer in the stream: they are in its files`,
      );
    }
    this.#replicas.set(replica, { seq, time, head: Math.min(before.head, seq) });
    return true;
  }
}
