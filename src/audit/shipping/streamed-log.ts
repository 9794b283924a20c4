import { join } from 'node:path';
import type { RedisOptions } from '../../redis/connection.ts';
import { processOf } from '../replica-name.ts';
import type { Head } from '../seal.ts';
import { type Archive, begunSegments } from '../segments/archive.ts';
import { segmentsIn } from '../segments/segment.ts';
import { syncSegment } from '../segments/segment-file.ts';
import { headerOf } from '../segments/segment-reader.ts';
import type { FoundPosition, SinkPosition } from '../segments/signed-file.ts';
import type { CommonOptions, Delivery, SinkLog, Source, Unit } from './follower.ts';
import { RetryLater } from './receiver.ts';
import {
  hasSealOf,
  ignoreDamage,
  isDamage,
  lastRecord,
  RecordSource,
  recordsBehind,
  type Shipment,
  type SourceEvents,
} from './record-source.ts';
import { type RedisStream, StreamRemoved } from './redis-stream.ts';

/** Records and characters after which no further batch is added to a call: about a millisecond of Redis. */
const MOST = { records: 200, characters: 128 * 1024 };
/** Interval of heads in the stream, in milliseconds. */
const ANCHOR_EVERY_MS = 60_000;
/** How long a position that the log lacks is watched at the start before the log is sent again, in milliseconds. */
const WATCH_MS = 5_000;
/** Interval at which a log tries again while another gateway sends under its name, in milliseconds. */
const OTHER_RETRY_MS = 60_000;
/** The longest that the other gateway must have sent nothing before the log is sent again, in milliseconds. */
const MAX_QUIET_MS = 3_600_000;

export interface RedisSinkOptions extends CommonOptions {
  readonly kind: 'redis';
  readonly redis: RedisOptions;
  /** Records of all replicas that the stream keeps. */
  readonly maxLength: number;
  /** True: what is sent must survive the end of the machine, as all that the log has. */
  readonly sync: boolean;
  /** How long another gateway of the same name must send nothing, in milliseconds; undefined: a minute. */
  readonly quietMs?: number | undefined;
}

/** The log of one process. */
interface StreamedLogOptions extends Archive {
  readonly sink: RedisSinkOptions;
  /** The last position that the stream had, as the folder says under the present key; undefined: it says nothing. */
  readonly sent: SinkPosition | undefined;
  readonly events: SourceEvents;
}

export interface StreamedLogDeps {
  readonly stream: RedisStream;
  readonly log: SinkLog;
  /**
   * Records that the log has lost a seal that the stream has, and all after it, so that `audit verify` tells it from
   * now on. Resolves to false if it cannot be recorded now.
   */
  readonly recordLoss: (lost: Head) => Promise<boolean>;
}

/**
 * A log and its copy in Redis, which has the position: it moves in the call that adds the batches. So a call that hung
 * and arrives late adds nothing twice, and a Redis that lost its newest entries gets them again.
 */
export class StreamedLog implements Source<Shipment>, Delivery<Shipment> {
  readonly #options: StreamedLogOptions;
  readonly #deps: StreamedLogDeps;
  #source: RecordSource | undefined;
  /** The position in Redis as a text, and the last one that this process has set or found; undefined: not yet. */
  #position: string | undefined;
  #sent: SinkPosition | undefined;
  /** The position in Redis that the log lacks, and when it was found. `moved`: another gateway sends. */
  #lacked: { readonly text: string; readonly since: number; readonly moved: boolean } | undefined;
  /** Doubles each time the log is sent again after another gateway, so that two idle ones do not flood the stream. */
  #quietMs: number;
  #isForgeryLogged = false;
  #isLossRecorded = false;
  #anchored = Number.NEGATIVE_INFINITY;

  constructor(options: StreamedLogOptions, deps: StreamedLogDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#quietMs = options.sink.quietMs ?? OTHER_RETRY_MS;
  }

  async next(): Promise<Unit<Shipment> | undefined> {
    if (this.#source === undefined) {
      const found = await this.#find();
      if (found === undefined) return undefined;
      this.#source = await this.#sourceAt(found.position);
    }
    return this.#source.next();
  }

  behind(): Promise<number> {
    return recordsBehind(this.#options.folder, this.#sent);
  }

  /** A call that timed out may still take effect. From the position, a damaged file behind it would be read each time. */
  async returnToPosition(error: unknown): Promise<void> {
    if (!isDamage(error)) await this.close();
  }

  async close(): Promise<void> {
    const source = this.#source;
    this.#source = undefined;
    await source?.close();
  }

  async deliver({ batches }: Shipment): Promise<number> {
    const { replica, folder, sink } = this.#options;
    const { stream } = this.#deps;
    const last = batches.at(-1);
    if (last === undefined) return 0;
    // A position must name a seal that stays in the log.
    if (sink.sync) await syncSegment(folder, last.header.first);
    const to = { seq: last.seal.last, hmac: last.seal.hmac };
    const anchor = performance.now() - this.#anchored > ANCHOR_EVERY_MS;
    const { maxLength } = sink;
    const there = await stream
      .append(replica, { from: this.#position ?? '', to, batches, anchor, maxLength })
      .catch((error: unknown) => this.#rejectAppend(error));
    if (there !== stream.formatPosition(replica, to)) {
      await this.#find();
      throw new Error('the stream is at another position than before: it lost entries');
    }
    this.#position = there;
    this.#sent = to;
    if (this.#lacked?.moved) this.#quietMs = Math.min(2 * this.#quietMs, MAX_QUIET_MS);
    this.#lacked = undefined;
    if (anchor) this.#anchored = performance.now();
    return 0;
  }

  /** Logs that entries are lost, which the reason of a failed delivery alone does not say. */
  #rejectAppend(error: unknown): never {
    const { replica, sink } = this.#options;
    const msg = 'audit stream begins anew: entries that no collector has read are in the audit logs only';
    if (error instanceof StreamRemoved)
      this.#deps.log.error({ sink: sink.name, log: replica, reason: error.message }, msg);
    throw error;
  }

  /**
   * Reads the position in Redis; undefined: it is not known yet whether another gateway sends.
   * @throws RetryLater if another gateway sends
   */
  async #find(): Promise<{ readonly position: SinkPosition | undefined } | undefined> {
    const { replica, sink } = this.#options;
    const { text, position: found, isSigned } = await this.#deps.stream.position(replica);
    const position = isSigned ? found : await this.#underEarlierKey(found);
    const isNew = position !== undefined && text !== this.#position;
    if (isNew && !(await this.#canContinue(text, position))) return undefined;
    this.#position = text;
    if (position !== undefined) this.#sent = position;
    if (text === '' || position !== undefined) return { position };
    const msg = 'position of this log in Redis has no valid signature; ignored';
    if (!this.#isForgeryLogged) this.#deps.log.error({ sink: sink.name, log: replica }, msg);
    this.#isForgeryLogged = true;
    // This process knows what it sent.
    return { position: this.#sent };
  }

  /**
   * A position whose seal the log has under another key than the present one, which cannot check it: so what was sent
   * counts if that is less far. After a crash it is, and a forged position skips no record.
   */
  async #underEarlierKey(position: SinkPosition | undefined): Promise<SinkPosition | undefined> {
    const { folder, keys, sent } = this.#options;
    if (position === undefined || sent === undefined) return undefined;
    const segment = (await segmentsIn(folder)).findLast(({ first }) => first <= position.seq);
    const key = segment && (await headerOf(join(folder, segment.name)).catch(ignoreDamage))?.key;
    if (key === undefined || key === keys.id) return undefined;
    if (!(await hasSealOf(this.#options, { position, key }))) return undefined;
    return position.seq > sent.seq ? sent : position;
  }

  /**
   * True if the log has the seal of a position that this process did not set, or no other gateway moves it: a log that
   * lost its end finds one that stays where it is. False: it is not known yet.
   * @throws RetryLater if another gateway sends
   */
  async #canContinue(text: string, position: SinkPosition): Promise<boolean> {
    const now = performance.now();
    if (this.#lacked?.text !== text) {
      const isOwn =
        (await this.#isRetired(position)) || (await hasSealOf(this.#options, { position, key: undefined }));
      const moved = this.#position !== undefined || this.#lacked !== undefined;
      this.#lacked = isOwn ? undefined : { text, since: now, moved };
    }
    if (this.#lacked === undefined) return true;
    const { since, moved } = this.#lacked;
    if (now - since >= (moved ? this.#quietMs : WATCH_MS)) return true;
    if (!moved) return false;
    const { replica } = processOf(this.#options.replica);
    throw new RetryLater(
      `another gateway sends its log under the name ${replica}: give each an audit.replica of its own`,
      Math.min(this.#quietMs, OTHER_RETRY_MS),
    );
  }

  /** True if retention may have removed its seal: a Redis that was restored has such a position. */
  async #isRetired({ seq }: SinkPosition): Promise<boolean> {
    const [oldest] = await segmentsIn(this.#options.folder);
    return oldest !== undefined && seq < oldest.first;
  }

  /** A source without the records that the stream would drop at once. */
  async #sourceAt(position: SinkPosition | undefined): Promise<RecordSource> {
    const { folder, replica, keys, sink } = this.#options;
    const events: SourceEvents = {
      ...this.#options.events,
      onDiverged: async (at, reason) => {
        // The records of another gateway are no loss of this log.
        if (!this.#lacked?.moved) await this.#recordLoss({ replica, ...at });
        await this.#options.events.onDiverged(at, reason);
      },
    };
    const start: FoundPosition | undefined = position && { position, key: undefined };
    // Not by a file that somebody put behind them: its number would be above those of all records.
    const last = await lastRecord(folder, await begunSegments({ folder, replica, keys }));
    const from = Math.max(0, last - sink.maxLength + 1);
    return new RecordSource({ folder, replica, keys, start, from, most: MOST, events });
  }

  /** The position in Redis, by which `audit verify` knows of the loss, moves only when the log has a record of it. */
  async #recordLoss(lost: Head): Promise<void> {
    if (this.#isLossRecorded) return;
    const { log, recordLoss } = this.#deps;
    const { replica, seq } = lost;
    const msg =
      'the audit stream has records that the audit log lacks; the log was cut, altered or begun anew';
    log.error({ sink: this.#options.sink.name, log: replica, seq }, msg);
    if (!(await recordLoss(lost))) throw new Error('the audit log cannot record that it has lost records');
    this.#isLossRecorded = true;
  }
}
