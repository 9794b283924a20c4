import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../base/error-code.ts';
import { ignoreAbort, reportDefect } from '../../base/expected-errors.ts';
import type { AuditKeys } from '../keys.ts';
import { lastStampedAt } from '../segments/head-files.ts';
import { foldersIn } from '../segments/segment.ts';
import { type FoundPosition, PositionFile, type SinkPosition } from '../segments/signed-file.ts';
import {
  type Delivery,
  Follower,
  type FollowerDeps,
  type FollowerOptions,
  type SinkLog,
  type Source,
} from './follower.ts';
import { HeadSource } from './head-source.ts';
import { OtlpDelivery, type OtlpOptions } from './otlp.ts';
import { RecordSource, type SourceEvents } from './record-source.ts';
import { RedisStream } from './redis-stream.ts';
import { S3Delivery, type S3Options } from './s3.ts';
import { SegmentSource } from './segment-source.ts';
import { type RedisSinkOptions, StreamedLog, type StreamedLogDeps } from './streamed-log.ts';
import { SyslogDelivery, type SyslogOptions } from './syslog.ts';
import { TimestampDelivery, type TimestampOptions } from './timestamp-delivery.ts';
import { WitnessDelivery, type WitnessOptions } from './witness-delivery.ts';

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

/** How far a sink is, over the logs of all processes. */
export interface SinkStatus {
  /** Why nothing arrives from at least one log; undefined: everything does. */
  readonly failing: string | undefined;
  /** Since when the oldest record that waits could be sent, in Unix milliseconds; undefined: none waits. */
  readonly since: number | undefined;
  /** Records that wait. */
  readonly behind: number;
  /** Records that arrived, attempts that failed, and records that can never be sent; since the start. */
  readonly delivered: number;
  readonly failures: number;
  readonly skipped: number;
  /** True: a log is not a continuation of what the witness has cosigned. */
  readonly rejected: boolean;
}

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
    while (!signal.aborted) {
      try {
        const folders = await foldersIn(directory, replica);
        await Promise.all(this.#sinks.map((sink) => sink.follow(folders)));
      } catch (error) {
        this.#log.warn({ reason: messageOf(error) }, 'audit directory cannot be read for the sinks');
      }
      await delay(RESCAN_MS, undefined, { signal }).catch(ignoreAbort);
    }
  }
}

type AnyFollower = Pick<Follower<unknown>, 'finish' | 'behind' | 'since' | 'failing' | 'rejected' | 'counts'>;

/** A log, and where a sink is in it. */
interface FollowedLog {
  readonly folder: string;
  readonly replica: string;
  readonly start: FoundPosition | undefined;
  /** When its last time stamp was stored, in Unix milliseconds; 0: it has none. */
  readonly stampedAt: number;
  readonly events: SourceEvents;
}

/** A delivery with the matching kind of source. */
interface Receiver {
  follow(log: FollowedLog, options: FollowerOptions, deps: CommonDeps): AnyFollower;
  close(): Promise<void>;
}

type CommonDeps = Omit<FollowerDeps<unknown>, 'source' | 'delivery'>;

function receiverOf(sink: SinkOptions, keys: AuditKeys, deps: SinkSetDeps): Receiver {
  switch (sink.kind) {
    case 'redis':
      return streamReceiver(sink, keys, deps);
    case 'syslog':
      return receiver(new SyslogDelivery(sink), (log) => recordsOf(log, keys));
    case 'otlp':
      return receiver(new OtlpDelivery(sink), (log) => recordsOf(log, keys));
    case 'witness':
      return receiver(
        new WitnessDelivery(sink),
        (log) => new HeadSource({ ...headsOf(log, keys), every: sink.every, isWitnessed: true }),
      );
    case 'timestamps':
      return receiver(new TimestampDelivery(sink), (log) => {
        const { every } = sink;
        return new HeadSource({ ...headsOf(log, keys), every, isWitnessed: false, lastSent: log.stampedAt });
      });
    case 's3':
      return receiver(new S3Delivery(sink), (log) => new SegmentSource(log));
  }
}

function headsOf({ folder, replica, start }: FollowedLog, keys: AuditKeys) {
  return { folder, replica, keys, start: start?.position };
}

function recordsOf(log: FollowedLog, keys: AuditKeys): RecordSource {
  return new RecordSource({ ...log, keys, from: 0, most: MOST });
}

function receiver<T>(delivery: Delivery<T>, sourceOf: (log: FollowedLog) => Source<T>): Receiver {
  return {
    follow: (log, options, deps) => new Follower(options, { ...deps, delivery, source: sourceOf(log) }),
    close: () => delivery.close(),
  };
}

function streamReceiver(sink: RedisSinkOptions, keys: AuditKeys, deps: SinkSetDeps): Receiver {
  const stream = new RedisStream(sink.redis, [keys]);
  return {
    follow({ folder, replica, events }, options, common) {
      const streamed = new StreamedLog({ sink, folder, replica, keys, events }, { stream, ...deps });
      return new Follower(
        { ...options, pollMs: STREAM_POLL_MS },
        { ...common, source: streamed, delivery: streamed },
      );
    },
    close: () => stream.close(),
  };
}

/** One sink with a follower for each log. */
class FollowingSink {
  readonly #sink: SinkOptions;
  readonly #options: SinkSetOptions;
  readonly #log: SinkLog;
  readonly #receiver: Receiver;
  readonly #followers = new Map<string, AnyFollower>();
  /** Counts of followers whose log is gone. */
  readonly #ended = { delivered: 0, failures: 0, refused: 0 };
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
    const followers = [...this.#followers.values()];
    // A folder that was removed since has nothing to send.
    const behind = await Promise.all(
      followers.map((follower) => follower.behind().catch((error: unknown) => reportDefect(error) ?? 0)),
    );
    const since = followers.flatMap((follower) => follower.since ?? []);
    const sum = (key: 'delivered' | 'failures' | 'refused'): number =>
      followers.reduce((total, { counts }) => total + counts[key], this.#ended[key]);
    return {
      failing: followers.find(({ failing }) => failing !== undefined)?.failing,
      since: since.length === 0 ? undefined : Math.min(...since),
      behind: behind.reduce((total, each) => total + each, 0),
      delivered: sum('delivered'),
      failures: sum('failures'),
      skipped: this.#skipped + sum('refused'),
      rejected: followers.some(({ rejected }) => rejected),
    };
  }

  /** Follows these logs and no others. */
  async follow(folders: readonly string[]): Promise<void> {
    for (const [replica, follower] of this.#followers) {
      if (folders.includes(replica)) continue;
      this.#followers.delete(replica);
      await follower.finish(AbortSignal.abort());
      this.#ended.delivered += follower.counts.delivered;
      this.#ended.failures += follower.counts.failures;
      this.#ended.refused += follower.counts.refused;
    }
    for (const replica of folders) {
      if (!this.#followers.has(replica)) this.#followers.set(replica, await this.#start(replica));
    }
  }

  async finish(signal: AbortSignal): Promise<void> {
    await Promise.all(Array.from(this.#followers.values(), (follower) => follower.finish(signal)));
    await this.#receiver.close();
  }

  async #start(replica: string): Promise<AnyFollower> {
    const { directory, keys } = this.#options;
    const { name: sink, timeout } = this.#sink;
    const folder = join(directory, replica);
    const file = new PositionFile(folder, sink, replica, keys);
    const start = await this.#readPosition(file, replica);
    const stampedAt = this.#sink.kind === 'timestamps' ? await lastStampedAt(folder) : 0;
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
    const common = { file, position: start?.position, log: this.#log };
    return this.#receiver.follow(
      { folder, replica, start, stampedAt, events },
      { sink, replica, timeout },
      common,
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
