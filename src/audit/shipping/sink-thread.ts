import { setInterval as every } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { fromPlain } from '../../base/plain-form.ts';
import type { Secret } from '../../base/secret.ts';
import { auditKeys } from '../keys.ts';
import type { Head } from '../seal.ts';
import type { SinkLog, SinkStatus } from './follower.ts';
import { type SinkOptions, SinkSet } from './sink-set.ts';

/** Interval of the status reports, in milliseconds. */
const STATUS_EVERY_MS = 1_000;

/** The data of the thread, in its plain form. */
export interface ThreadData {
  readonly directory: string;
  readonly replica: string;
  readonly key: Secret;
  readonly sinks: readonly SinkOptions[];
}

/** A message of the thread. */
export type ThreadMessage =
  | { readonly kind: 'log'; readonly level: keyof SinkLog; readonly fields: object; readonly msg: string }
  | { readonly kind: 'status'; readonly sinks: Readonly<Record<string, SinkStatus>> }
  | { readonly kind: 'lost'; readonly lost: Head };

/** A message to the thread: the rest may be sent for that long; or whether what a log has lost is recorded. */
export type ThreadRequest =
  | { readonly kind: 'finish'; readonly graceMs: number }
  | { readonly kind: 'recorded'; readonly replica: string; readonly isRecorded: boolean };

// This module runs in the thread of audit-sinks.ts.
const { key, ...options } = fromPlain(workerData) as ThreadData;
const log: SinkLog = { info: logger('info'), warn: logger('warn'), error: logger('error') };
/** Losses that are being recorded, by their logs. */
const losses = new Map<string, (isRecorded: boolean) => void>();
const set = new SinkSet({ ...options, keys: auditKeys(key) }, { log, recordLoss });
const ended = new AbortController();
parentPort?.on('message', (request: ThreadRequest) => {
  if (request.kind === 'finish') void finish(request.graceMs);
  else losses.get(request.replica)?.(request.isRecorded);
});
try {
  for await (const _ of every(STATUS_EVERY_MS, undefined, { signal: ended.signal })) await tell();
} catch (error) {
  if (!ended.signal.aborted) throw error;
}

async function finish(graceMs: number): Promise<void> {
  await set.finish(AbortSignal.timeout(graceMs));
  ended.abort();
  await tell();
  parentPort?.close();
}

async function tell(): Promise<void> {
  post({ kind: 'status', sinks: await set.status() });
}

function recordLoss(lost: Head): Promise<boolean> {
  return new Promise((resolve) => {
    losses.set(lost.replica, resolve);
    post({ kind: 'lost', lost });
  });
}

function logger(level: keyof SinkLog) {
  return (fields: object, msg: string): void => post({ kind: 'log', level, fields, msg });
}

function post(message: ThreadMessage): void {
  parentPort?.postMessage(message);
}
