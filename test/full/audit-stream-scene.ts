import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from '@jest/globals';
import type { Audit, AuditOptions } from '../../src/audit/audit.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import type { SinkStatus } from '../../src/audit/shipping/follower.ts';
import { RedisStream } from '../../src/audit/shipping/redis-stream.ts';
import { SinkSet } from '../../src/audit/shipping/sink-set.ts';
import type { RedisSinkOptions } from '../../src/audit/shipping/streamed-log.ts';
import { Secret } from '../../src/base/secret.ts';
import type { RedisServers } from '../../src/redis/connection.ts';
import { AUDIT_KEY, openTestAudit, REPLICA, recordAccess, useFolders } from '../support/audit-log.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { PROGRAM } from '../support/program.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { redisOptions, single } from '../support/redis-store.ts';
import { until } from '../support/until.ts';

const KEYS = auditKeys(new Secret(AUDIT_KEY));
/** Name of the sink in the tests. */
const SINK = 'stream';

/** A journal that sends to a Redis, and collectors of that. */
export interface StreamScene {
  readonly redis: RedisServer;
  readonly directory: string;
  /** Opens the audit log of a replica, and sends it and those of its workers. */
  open(replica?: string, change?: Partial<AuditOptions>, maxLength?: number): Promise<StreamedAudit>;
  stream(): RedisStream;
  /** `audit export --follow`. */
  collector(...more: string[]): Collector;
}

export interface StreamedAudit {
  readonly audit: Audit;
  /** Of the sink, without messages. */
  readonly logged: Record<string, unknown>[];
  status(): Promise<SinkStatus>;
  /** Can be called again. */
  close(): Promise<void>;
}

export interface Collector {
  readonly ended: Promise<unknown>;
  /** Resolves to what it printed on both. */
  end(signal: NodeJS.Signals): Promise<{ stdout: string; stderr: string; status: number | null }>;
}

/** Sets scenes; what is opened ends after the test. */
export function useStreams(): (settings?: readonly string[]) => Promise<StreamScene> {
  // Hooks run in this order: folders go when nothing writes there any more.
  const folder = useFolders();
  return async (settings = []) => {
    const directory = await folder();
    const redis = await closedAtEnd(startRedis({ settings }));
    const config = join(directory, 'gateway.yaml');
    await writeFile(join(directory, 'key'), AUDIT_KEY, { mode: 0o600 });
    await writeFile(
      config,
      `redis: { url: "${redis.url}", keyPrefix: test }
audit: { directory: log, keyFile: key, parameters: [ids], sinks: [{ name: stream, redis: {} }] }
anonymous: true
credentials: { a: { username: { env: U }, password: { env: P } } }
deployments: { d: { baseUrl: "https://a.example", match: { pathPrefix: /a/ }, credential: a } }
`,
    );
    const stream = (): RedisStream => {
      const opened = streamOn(single(redis.port));
      closing.push(() => opened.close());
      return opened;
    };
    const log = join(directory, 'log');
    return {
      redis,
      directory,
      stream,
      async open(replica = REPLICA, change = {}, maxLength = 1_000_000) {
        return closedAtEnd(openStreamed(log, single(redis.port), replica, change, maxLength));
      },
      collector(...more) {
        const child = spawn(
          process.execPath,
          [PROGRAM, 'audit', 'export', '--follow', '--config', config, ...more],
          { stdio: ['ignore', 'pipe', 'pipe'] },
        );
        const printed = Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
        closing.push(() => child.kill('SIGKILL'));
        return {
          ended: printed,
          async end(signal) {
            child.kill(signal);
            const [stdout, stderr, [status]] = await printed;
            return { stdout, stderr, status: status as number | null };
          },
        };
      },
    };
  };
}

/** A connection to the stream of those servers, to be closed. */
export function streamOn(servers: RedisServers): RedisStream {
  return new RedisStream(redisOptions(servers), [KEYS]);
}

/** A sink to the stream of those servers. */
export function streamTo(servers: RedisServers, change: Partial<RedisSinkOptions> = {}): RedisSinkOptions {
  const redis = redisOptions(servers);
  return { kind: 'redis', name: SINK, timeout: 10_000, redis, maxLength: 1_000_000, sync: false, ...change };
}

/** Opens the audit log of a replica, and sends it to the stream of those servers. */
export async function openStreamed(
  directory: string,
  servers: RedisServers,
  replica = REPLICA,
  change: Partial<AuditOptions> = {},
  maxLength = 1_000_000,
  quietMs?: number,
): Promise<StreamedAudit> {
  const logged: Record<string, unknown>[] = [];
  const note = (entry: object): void => void logged.push(entry as Record<string, unknown>);
  const { audit } = await openTestAudit(directory, { replica, ...change });
  const keys = change.key === undefined ? KEYS : auditKeys(change.key);
  const set = new SinkSet(
    { directory, replica, keys, sinks: [streamTo(servers, { maxLength, quietMs })] },
    { log: { warn: note, error: note, info: note }, recordLoss: (lost) => audit.recordLoss(lost) },
  );
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closed ??= audit.close().then(() => set.finish(AbortSignal.timeout(2_000)));
    return closed;
  };
  return {
    audit,
    logged,
    async status() {
      const { [SINK]: found } = await set.status();
      if (found === undefined) throw new Error('no such sink');
      return found;
    },
    close,
  };
}

/**
 * Records one request after the other until it is told to stop; resolves to the number of records in the log. A machine
 * that writes too slowly for the deadline of a record adds one about that.
 */
export function recordSteadily(audit: Audit): () => Promise<number> {
  let going = true;
  const work = (async () => {
    for (let count = 0; going; count += 1) {
      await recordAccess(audit, { requestId: `q${count}` });
      // Without a pause, the log of a slow machine would grow faster than it is sent.
      await delay(1);
    }
    return audit.counts.records;
  })();
  return () => {
    going = false;
    return work;
  };
}

/** Resolves when the stream has what the file of that replica has: so many records. */
export async function untilSent(stream: RedisStream, count: number, replica = REPLICA): Promise<void> {
  await until(async () => {
    const found = await stream.position(replica).catch(() => undefined);
    return found?.position?.seq === count;
  });
}

/** Numbers of the records in lines of a log. */
export function numbersIn(lines: string): number[] {
  return Array.from(lines.matchAll(/^\{"seq":(\d+)/gm), ([, seq]) => Number(seq));
}

/** The log has a line with the reason for each outage, and one for its end; a slow machine may see a second outage. */
export function expectOutagesAndTheirEnds(logged: readonly Record<string, unknown>[]): void {
  const reasons = logged.map(({ reason }) => reason);
  const pairs = reasons.map((_, index) => (index % 2 === 0 ? expect.stringMatching(/./) : undefined));
  expect(reasons.length).toBeGreaterThanOrEqual(2);
  expect(reasons.length % 2).toBe(0);
  expect(reasons).toEqual(pairs);
}
