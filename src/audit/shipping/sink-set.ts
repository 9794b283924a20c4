import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../base/error-code.ts';
import { ignoreAbort, reportDefect } from '../../base/expected-errors.ts';
import type { AuditKeys } from '../keys.ts';
import type { Archive } from '../segments/archive.ts';
import { lastStampedAt } from '../segments/head-files.ts';
import { foldersIn } from '../segments/segment.ts';
import { type FoundPosition, PositionFile, type SinkPosition } from '../segments/signed-file.ts';
import {
  addStatus,
  type Delivery,
  endedStatus,
  Follower,
  type FollowerDeps,
  NO_STATUS,
  type SinkLog,
  type SinkStatus,
  type Source,
} from './follower.ts';
import {
  TimestampDelivery,
  type TimestampOptions,
  WitnessDelivery,
  type WitnessOptions,
} from './head-deliveries.ts';
import { HeadSource } from './head-source.ts';
import { OtlpDelivery, type OtlpOptions } from './otlp.ts';
import { hasSealOf, RecordSource, type SourceEvents } from './record-source.ts';
import { RedisStream } from './redis-stream.ts';
import { S3Delivery, type S3Options } from './s3.ts';
import { SegmentSource } from './segment-source.ts';
import { type RedisSinkOptions, StreamedLog, type StreamedLogDeps } from './streamed-log.ts';
import { SyslogDelivery, type SyslogOptions } from './syslog.ts';

/** Interval at which logs of further processes are looked for, in milliseconds. */
const RESCAN_MS = 1_000;

/** The stream shows what a loss of power takes from the log, so it must not be far behind; in milliseconds. */
const STREAM_POLL_MS = 50;

/** Records and characters of one delivery, about. */
const MOST = { records: 1_000, characters: 512 * 1024 };

export type SinkOptions =
  | SyslogOptions
  | S3Options
  | OtlpOptions
  | RedisSinkOptions
  | WitnessOptions
  | TimestampOptions;

interface SinkSetOptions {
  readonly directory: string;
  /** The replica whose logs are sent, with those of its workers. */
  readonly replica: string;
  readonly keys: AuditKeys;
  readonly sinks: readonly SinkOptions[];
}

export type SinkSetDeps = Omit<StreamedLogDeps, 'stream'>;

/** Follows the logs of one replica and all its workers, those that no longer run among them, for several sinks. */
export class SinkSet {
  readonly #options: SinkSetOptions;
  readonly #log: SinkLog;
  readonly #sinks: readonly FollowingSink[];
  readonly #closing = new AbortController();
  readonly #scanning: Promise<void>;

  constructor(options: SinkSetOptions, deps: SinkSetDeps) {
    this.#options = options;
    this.#log = deps.log;
    this.#sinks = options.sinks.map((sink) => new FollowingSink(sink, options, deps));
    this.#scanning = this.#scan();
  }

  async status(): Promise<Record<string, SinkStatus>> {
    const entries = this.#sinks.map(async (sink) => [sink.name, await sink.status()] as const);
    return Object.fromEntries(await Promise.all(entries));
  }

  /** Sends what is in the logs, until the signal is aborted, and closes. */
  async finish(signal: AbortSignal): Promise<void> {
    this.#closing.abort();
    await this.#scanning;
    await Promise.all(this.#sinks.map((sink) => sink.finish(signal)));
  }

  async #scan(): Promise<void> {
    const { directory, replica } = this.#options;
    const { signal } = this.#closing;
    // A reason that lasts, such as a broken link, is logged once.
    let logged = new Set<string>();
    while (!signal.aborted) {
      const found = new Set<string>();
      const warn = (error: unknown): void => {
        const reason = messageOf(error);
        if (!logged.has(reason)) this.#log.warn({ reason }, 'audit directory cannot be read for the sinks');
        found.add(reason);
      };
      try {
        const folders = await foldersIn(directory, replica, warn);
        await Promise.all(this.#sinks.map((sink) => sink.follow(folders)));
      } catch (error) {
        warn(error);
      }
      logged = found;
      await delay(RESCAN_MS, undefined, { signal }).catch(ignoreAbort);
    }
  }
}

/** A log, and where a sink is in it. */
interface FollowedLog {
  readonly folder: string;
  readonly replica: string;
  readonly start: FoundPosition | undefined;
  readonly events: SourceEvents;
}

/** A receiver, and the kind of units that it takes of a log. */
interface Receiver {
  open(log: FollowedLog): Promise<Pick<FollowerDeps<unknown>, 'source' | 'delivery'>>;
  close(): Promise<void>;
}

function receiverOf(sink: SinkOptions, keys: AuditKeys, deps: SinkSetDeps): Receiver {
  const recordsOf = (log: FollowedLog) => new RecordSource({ ...log, keys, from: 0, most: MOST });
  switch (sink.kind) {
    case 'redis': {
      const stream = new RedisStream(sink.redis, [keys]);
      return {
        async open({ start, ...log }) {
          const sent = start?.key === undefined ? start?.position : undefined;
          const streamed = new StreamedLog({ ...log, sink, keys, sent }, { stream, ...deps });
          return { source: streamed, delivery: streamed };
        },
        close: () => stream.close(),
      };
    }
    case 'syslog':
      return receiver(new SyslogDelivery(sink), recordsOf);
    case 'otlp':
      return receiver(new OtlpDelivery(sink), recordsOf);
    case 'witness':
      return receiver(
        new WitnessDelivery(sink),
        ({ start, ...log }) =>
          new HeadSource({ ...log, keys, start: start?.position, every: sink.every, isWitnessed: true }),
      );
    case 'timestamps':
      return receiver(new TimestampDelivery(sink), async ({ start, ...log }) => {
        const lastSent = await lastStampedAt(log.folder);
        const of = { ...log, keys, start: start?.position, every: sink.every };
        return new HeadSource({ ...of, isWitnessed: false, lastSent });
      });
    case 's3':
      return receiver(new S3Delivery(sink), (log) => new SegmentSource({ ...log, keys }));
  }
}

function receiver<T>(
  delivery: Delivery<T>,
  sourceOf: (log: FollowedLog) => Source<T> | Promise<Source<T>>,
): Receiver {
  return {
    open: async (log) => ({ delivery, source: await sourceOf(log) }),
    close: () => delivery.close(),
  };
}

/**
 * Signs a position of an earlier key with the present one, if the log has its seal: retention believes no other, and in
 * a log without new records the position does not move.
 */
async function signedAnew(found: FoundPosition, file: PositionFile, log: Archive): Promise<FoundPosition> {
  const { position, key } = found;
  const isBelieved = key !== undefined && (await hasSealOf(log, found).catch(reportDefect));
  if (!isBelieved) return found;
  // It counts although it cannot be written.
  await file.write(position).catch(reportDefect);
  return { position, key: undefined };
}

/** One sink with a follower for each log. */
class FollowingSink {
  readonly #sink: SinkOptions;
  readonly #options: SinkSetOptions;
  readonly #log: SinkLog;
  readonly #receiver: Receiver;
  readonly #followers = new Map<string, Follower<unknown>>();
  /** The sums of followers whose log is gone. */
  #ended = NO_STATUS;
  #skipped = 0;

  constructor(sink: SinkOptions, options: SinkSetOptions, deps: SinkSetDeps) {
    this.#sink = sink;
    this.#options = options;
    this.#log = deps.log;
    this.#receiver = receiverOf(sink, options.keys, deps);
  }

  get name(): string {
    return this.#sink.name;
  }

  async status(): Promise<SinkStatus> {
    const all = await Promise.all(Array.from(this.#followers.values(), (follower) => follower.status()));
    return all.reduce(addStatus, { ...this.#ended, skipped: this.#ended.skipped + this.#skipped });
  }

  /** Follows these logs and no others. */
  async follow(folders: readonly string[]): Promise<void> {
    for (const [replica, follower] of this.#followers) {
      if (folders.includes(replica)) continue;
      this.#followers.delete(replica);
      await follower.finish(AbortSignal.abort());
      this.#ended = addStatus(this.#ended, endedStatus(await follower.status()));
    }
    for (const replica of folders) {
      if (!this.#followers.has(replica)) this.#followers.set(replica, await this.#start(replica));
    }
  }

  async finish(signal: AbortSignal): Promise<void> {
    await Promise.all(Array.from(this.#followers.values(), (follower) => follower.finish(signal)));
    await this.#receiver.close();
  }

  async #start(replica: string): Promise<Follower<unknown>> {
    const { directory, keys } = this.#options;
    const { name: sink, timeout, kind } = this.#sink;
    const folder = join(directory, replica);
    const file = new PositionFile(folder, sink, replica, keys);
    const found = await this.#readPosition(file, replica);
    const start = found && (await signedAnew(found, file, { folder, replica, keys }));
    const events = {
      onSkipped: (first: number, last: number, reason: string): void => {
        this.#skipped += last - first + 1;
        this.#log.error({ sink, log: replica, first, last, reason }, 'audit records never reach the sink');
      },
      onDiverged: async (_position: SinkPosition, reason: string): Promise<void> => {
        // Retention would take the position for that of the present log.
        await file.remove();
        this.#log.error({ sink, log: replica, reason }, 'audit records are sent to the sink again');
      },
    };
    const opened = await this.#receiver.open({ folder, replica, start, events });
    const pollMs = kind === 'redis' ? STREAM_POLL_MS : undefined;
    return new Follower(
      { sink, replica, timeout, pollMs },
      { ...opened, file, position: start?.position, log: this.#log },
    );
  }

  async #readPosition(file: PositionFile, replica: string): Promise<FoundPosition | undefined> {
    try {
      return await file.read();
    } catch (error) {
      const reason = messageOf(error);
      const msg = 'position of an audit sink cannot be used; the whole log is sent again';
      this.#log.error({ sink: this.name, log: replica, reason }, msg);
      return undefined;
    }
  }
}
