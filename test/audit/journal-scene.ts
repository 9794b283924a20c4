import { join } from 'node:path';
import { afterEach, jest } from '@jest/globals';
import { ChainWriter, type WriteError } from '../../src/audit/journal/chain-writer.ts';
import { Journal, type JournalOptions } from '../../src/audit/journal/journal.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import type { Verified } from '../../src/audit/reader/verify.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, REPLICA, useFolders } from '../support/audit-log.ts';
import { verified } from '../support/verified-log.ts';

export const DEADLINE_MS = 1_000;
/** Interval at which the journal looks after what nobody waits for. */
export const TICK_MS = 100;

const keys = auditKeys(new Secret(AUDIT_KEY));

export interface SceneOptions extends Partial<JournalOptions> {
  /** Left out: a new one. */
  readonly directory?: string;
  readonly sync?: boolean;
  /** Left out: no record needs a key. */
  readonly keysReady?: () => Promise<void> | undefined;
}

export interface JournalScene {
  readonly directory: string;
  readonly journal: Journal;
  readonly chain: ChainWriter;
  /** The path of the segment whose first record has the number. */
  segment(first: number): string;
  /** Why nothing could be written, and undefined when it could again, in their order. */
  readonly states: (WriteError | undefined)[];
  /** Numbers of the last records under the seals so far. */
  readonly seals: number[];
  /** Numbers of those who were told that their records are not written. */
  readonly unrecorded: number[];
  /** Segments that were closed. */
  closed(): number;
  /** Adds a record that nobody waits for. */
  add(event: string): number;
  /** Adds a record; resolves to whether it is said to be written. */
  addAwaited(event: string): Promise<boolean>;
  verified(): Promise<Verified>;
  close(): Promise<void>;
}

/** Opens journals on a real disk. Intervals and deadlines pass only when a test says so. */
export function useJournals(): (options?: SceneOptions) => Promise<JournalScene> {
  const folder = useFolders();
  const scenes: JournalScene[] = [];
  afterEach(async () => {
    for (const { close } of scenes.splice(0)) {
      const end = close();
      jest.advanceTimersByTime(2 * DEADLINE_MS);
      await end;
    }
    jest.useRealTimers();
  });
  return async (options = {}) => {
    jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask', 'setImmediate', 'setTimeout'] });
    const { directory = await folder(), ...others } = options;
    const opened = await openScene(directory, others);
    scenes.push(opened);
    return opened;
  };
}

async function openScene(
  directory: string,
  { sync = false, keysReady = () => undefined, ...options }: SceneOptions,
) {
  const place = join(directory, REPLICA);
  const { chain } = await ChainWriter.open({
    folder: place,
    replica: REPLICA,
    keys,
    signing: undefined,
    sync,
  });
  const states: (WriteError | undefined)[] = [];
  const seals: number[] = [];
  const unrecorded: number[] = [];
  let closed = 0;
  let end: Promise<void> | undefined;
  const segment = { size: 2 ** 28, age: 86_400_000 };
  const journal = new Journal(
    { nextSeq: 1, deadlineMs: DEADLINE_MS, segment, ...options },
    {
      chain,
      onState: (error) => states.push(error),
      onSeal: ({ seq }) => seals.push(seq),
      onRecord: () => undefined,
      onUnrecorded: (count) => unrecorded.push(count),
      onClosed: () => {
        closed += 1;
      },
      keysReady,
    },
  );
  const textOf = (event: string) => () => `"kind":"admin","event":"${event}"}`;
  return {
    directory,
    journal,
    chain,
    segment: (first: number) => join(place, `${String(first).padStart(12, '0')}.jsonl`),
    states,
    seals,
    unrecorded,
    closed: () => closed,
    add: (event: string) => journal.append(textOf(event)),
    addAwaited: (event: string) =>
      new Promise<boolean>((resolve) => {
        const waiter = { recorded: () => resolve(true), unrecorded: () => resolve(false) };
        journal.append(textOf(event), waiter);
      }),
    verified: () => verified(directory),
    close: () => {
      end ??= journal.close();
      return end;
    },
  };
}

/** Lets everything happen that the event loop has to do without time passing. */
export async function turns(count = 20): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}
