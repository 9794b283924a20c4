import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Audit, AuditOptions } from '../../src/audit/audit.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import { segmentsIn } from '../../src/audit/segments/segment.ts';
import type { SinkStatus } from '../../src/audit/shipping/follower.ts';
import { type SinkOptions, SinkSet } from '../../src/audit/shipping/sink-set.ts';
import type { SyslogOptions } from '../../src/audit/shipping/syslog.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, openTestAudit, REPLICA, recordAccess, useFolders } from './audit-log.ts';
import { closedAtEnd, closing } from './closing.ts';
import { readLines } from './recorded-requests.ts';
import { type SyslogOptions as ServerOptions, type SyslogServer, startSyslog } from './syslog-server.ts';
import { until } from './until.ts';

/** Name of the sink in the tests. */
export const SINK = 'siem';

/** The sinks of a replica, in the process of the test. */
export interface FollowedLogs {
  readonly logged: Record<string, unknown>[];
  status(): Promise<SinkStatus>;
  /** Resolves when nothing waits any more. */
  untilSent(): Promise<void>;
  /** Sends the rest and closes; can be called again. */
  finish(): Promise<void>;
}

/** An audit directory with what writes to it, and sinks that read it. What is opened ends after the test. */
export interface SinkScene {
  readonly directory: string;
  open(replica?: string, change?: Partial<AuditOptions>): Promise<Audit>;
  follow(options: SinkOptions, key?: string): FollowedLogs;
  syslog(options?: ServerOptions): Promise<SyslogServer>;
}

export function useSinks(): () => Promise<SinkScene> {
  // Hooks run in this order: folders go when nothing uses them any more.
  const folder = useFolders();
  return async () => {
    const directory = await folder();
    return {
      directory,
      async open(replica = REPLICA, change = {}) {
        const { audit } = await openTestAudit(directory, { replica, ...change });
        const close = audit.close.bind(audit);
        let closed: Promise<void> | undefined;
        audit.close = (event) => {
          closed ??= close(event);
          return closed;
        };
        closing.push(() => audit.close());
        return audit;
      },
      follow(options, key = AUDIT_KEY) {
        const followed = followLogs(directory, options, key);
        closing.push(() => followed.finish());
        return followed;
      },
      async syslog(options) {
        return closedAtEnd(startSyslog(options));
      },
    };
  };
}

function followLogs(directory: string, options: SinkOptions, key: string): FollowedLogs {
  const logged: Record<string, unknown>[] = [];
  const at =
    (level: string) =>
    (fields: object, msg: string): void =>
      void logged.push({ level, msg, ...fields });
  const set = new SinkSet(
    { directory, replica: REPLICA, keys: auditKeys(new Secret(key)), sinks: [options] },
    {
      log: { info: at('info'), warn: at('warn'), error: at('error') },
      recordLoss: () => Promise.resolve(false),
    },
  );
  const status = async (): Promise<SinkStatus> => {
    const found = (await set.status())[options.name];
    if (found === undefined) throw new Error('no such sink');
    return found;
  };
  let finished: Promise<void> | undefined;
  return {
    logged,
    status,
    async untilSent() {
      await until(async () => {
        const { behind, delivered, failing } = await status();
        return behind === 0 && delivered > 0 && failing === undefined;
      });
    },
    finish() {
      // A test does not need messages that it has not awaited.
      finished ??= set.finish(AbortSignal.timeout(10));
      return finished;
    },
  };
}

/** Waits until the sinks have sent everything, and closes them. */
export async function sendAll(followed: FollowedLogs): Promise<void> {
  await followed.untilSent();
  await followed.finish();
}

/** A syslog sink to this port, in plain text unless the change says otherwise. */
export function syslogTo(port: number, change: Partial<SyslogOptions> = {}): SyslogOptions {
  return {
    kind: 'syslog',
    name: SINK,
    timeout: 60_000,
    host: '127.0.0.1',
    port,
    tls: undefined,
    facility: 13,
    enterprise: 32_473,
    ...change,
  };
}

/** Writes so many access records, one request after the other. */
export async function recordMany(audit: Audit, count: number, prefix = 'q'): Promise<void> {
  const written = Array.from({ length: count }, (_, index) =>
    recordAccess(audit, { requestId: `${prefix}${index + 1}` }),
  );
  if ((await Promise.all(written)).includes(false)) throw new Error('a record was not written');
}

/** The records of all segments of a process, as lines. */
export async function linesOf(directory: string, replica = REPLICA): Promise<string[]> {
  const folder = join(directory, replica);
  const lines: string[] = [];
  // A segment that is being compressed is there twice.
  for (const { name } of await segmentsIn(folder))
    for await (const line of readLines(join(folder, name))) lines.push(line);
  return lines.filter((line) => line.startsWith('{"seq":'));
}

/** The position file of the sink. */
export function positionOf(directory: string, replica = REPLICA): string {
  return join(directory, replica, `${SINK}.sink`);
}

/** The number in a position file; 0 without one. */
export async function storedSeq(directory: string, replica = REPLICA): Promise<number> {
  const text = await readFile(positionOf(directory, replica), 'utf8').catch(() => '{"seq":0}');
  return JSON.parse(text).seq;
}
