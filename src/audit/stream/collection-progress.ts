import { hash } from 'node:crypto';
import type { AuditKeys } from '../keys.ts';
import { headOf, linesOf } from '../line.ts';
import { isAuthentic, parseSeal, type Seal } from '../seal.ts';
import type { StreamEntry } from './redis-stream.ts';

/** How far one replica's log was collected. */
export interface Reached {
  readonly seq: number;
  readonly time: string;
  /** Record up to which the chain's end was collected. */
  readonly head: number;
  /** `hmac` of the last seal; empty: not known. */
  readonly hmac: string;
}

interface Collected {
  readonly seq: number;
  readonly time: string;
  readonly line: string;
}

const NOTHING: Reached = { seq: 0, time: '', head: 0, hmac: '' };

export interface ProgressEvents {
  /** Told of what is missing, or comes again otherwise. */
  readonly onNote: (note: string) => void;
  /** Told of an entry that no gateway wrote, or that was changed; it is left out. */
  readonly onRejected: (id: string, reason: string) => void;
}

/**
 * How far each replica's log was collected, so that nothing is taken twice. Only a batch under a seal of a key is taken,
 * and only such a one says how far a replica is: a forged entry changes nothing.
 */
export class Progress {
  readonly #replicas: Map<string, Reached>;
  readonly #keys: readonly AuditKeys[];
  readonly #events: ProgressEvents;

  constructor(
    replicas: Iterable<readonly [string, Reached]>,
    keys: readonly AuditKeys[],
    events: ProgressEvents,
  ) {
    this.#replicas = new Map(replicas);
    this.#keys = keys;
    this.#events = events;
  }

  get replicas(): ReadonlyMap<string, Reached> {
    return this.#replicas;
  }

  /** The records of an entry that are new, as lines, each with its end; and the end of the chain if it asks for that. */
  take(entry: StreamEntry): string {
    if (entry.gone) return '';
    const seal = this.#sealOf(entry);
    if (seal === undefined) return '';
    const { replica, lines, previous, anchor } = entry;
    const before = this.#replicas.get(replica) ?? NOTHING;
    if (seal.hmac === before.hmac) return '';
    const records = recordsIn(Buffer.from(lines));
    // The same number again, and later: the machine lost the end of its log, and wrote other records instead.
    const fresh = records.filter(({ seq, time }) => seq > before.seq || time > before.time);
    const last = fresh.at(-1);
    if (last === undefined) {
      if (records.length === 0 && previous === before.hmac && before !== NOTHING) {
        this.#replicas.set(replica, { ...before, hmac: seal.hmac });
      }
      return '';
    }
    this.#tell(replica, before, fresh[0]?.seq ?? last.seq);
    const told = anchor && last.seq > Math.min(before.head, last.seq - 1);
    const head = told ? last.seq : Math.min(before.head, last.seq);
    this.#replicas.set(replica, { seq: last.seq, time: last.time, head, hmac: seal.hmac });
    const end = told ? `${JSON.stringify({ kind: 'head', replica, seq: seal.last, hmac: seal.hmac })}\n` : '';
    return `${fresh.map(({ line }) => `${line}\n`).join('')}${end}`;
  }

  #tell(replica: string, before: Reached, first: number): void {
    if (first <= before.seq) {
      this.#events.onNote(
        `${replica}: record ${first} comes a second time with another content: its log lost its end`,
      );
    } else if (before.seq > 0 && first > before.seq + 1) {
      this.#events.onNote(
        `${replica}: records ${before.seq + 1} to ${first - 1} are no longer in the stream: they are in its files`,
      );
    }
  }

  /** The seal of an entry, if a key made it for just these lines. */
  #sealOf({ id, replica, lines, seal: line, previous, tooLarge }: StreamEntry): Seal | undefined {
    const seal = parseSeal(line);
    const reject = (reason: string): undefined => void this.#events.onRejected(id, reason);
    if (tooLarge) return reject('it is larger than a batch can be');
    if (seal === undefined) return reject('it has no seal');
    if (hash('sha256', lines, 'base64url') !== seal.sha256)
      return reject('its lines are not those of its seal');
    const chain = { replica, previous };
    return this.#keys.some((keys) => isAuthentic(keys, chain, seal))
      ? seal
      : reject('no key that is known made its seal');
  }
}

function recordsIn(lines: Buffer): Collected[] {
  return Array.from(linesOf(lines)).flatMap(([start, end]) => {
    const head = headOf(lines, start);
    return head === undefined ? [] : [{ ...head, line: lines.toString('utf8', start, end) }];
  });
}
