import { signal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import type { AuditLine, Snapshot, Tick } from '../view.ts';
import { signIn } from './api.ts';

/** A stream without an event for this time is opened again, in milliseconds. The gateway sends one every second. */
const SILENCE_MS = 5_000;
/** A stream without a first state after this time is opened again, in milliseconds: a large one takes long on a slow line. */
const FIRST_MS = 15_000;
/** Interval of the check for silence, in milliseconds. */
const CHECK_MS = 1_000;
/** Maximum number of audit lines that are kept. */
const LINES = 1000;

/** The state of the gateway, every second; undefined before the first one. */
export const snapshot = signal<Snapshot | undefined>(undefined);
/** The newest lines of the audit log, oldest first. */
export const auditLines = signal<readonly AuditLine[]>([]);
/** `lostAt` is in Unix milliseconds. */
export const connection = signal<{ readonly connected: boolean; readonly lostAt?: number }>({
  connected: false,
});

/** Names of the configured clients, and of those that sent requests, and of the deployments. */
export function knownNames(): Readonly<Record<'client' | 'deployment', readonly string[]>> {
  const { clients = [], deployments = [] } = snapshot.value ?? {};
  const names = clients.map(({ name }) => name).filter((name) => name !== '');
  return { client: names, deployment: deployments.map(({ name }) => name) };
}

/** Receives the stream of the gateway while the page is visible. */
export function follow(): void {
  let source: EventSource | undefined;
  /** True if the stream has had a state. */
  let isLive = false;
  /** When the stream was requested, or had an event. Monotonic: the clock of the computer can be corrected. */
  let lastSign = 0;
  const onSign = (): void => {
    lastSign = performance.now();
  };

  const open = (): void => {
    source?.close();
    source = new EventSource('/api/events');
    isLive = false;
    onSign();
    const on = (name: string, handle: (data: unknown) => void): void => {
      source?.addEventListener(name, ({ data }: MessageEvent<string>) => {
        onSign();
        handle(JSON.parse(data));
      });
    };
    on('audit', (data) => {
      auditLines.value = data as AuditLine[];
    });
    on('tick', (data) => {
      isLive = true;
      onTick(data as Tick);
    });
    source.addEventListener('error', () => {
      onLoss();
      // The browser reopens a connection that broke, but not one that was refused.
      if (source?.readyState === EventSource.CLOSED) void signInIfAsked();
    });
  };

  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      source?.close();
      connection.value = { ...connection.value, connected: false };
    } else open();
  });
  // A connection that dies without FIN or RST, or is held by a proxy, raises no error event.
  setInterval(() => {
    const silence = performance.now() - lastSign;
    const isAwaited = !isLive && source?.readyState !== EventSource.CLOSED;
    if (document.hidden || silence < (isAwaited ? FIRST_MS : SILENCE_MS)) return;
    onLoss(silence);
    open();
  }, CHECK_MS);
  if (!document.hidden) open();
}

/** `agoMs`: the time since the last sign of the gateway. A connection that is lost already keeps its time. */
function onLoss(agoMs = 0): void {
  connection.value = { connected: false, lostAt: connection.value.lostAt ?? Date.now() - agoMs };
}

async function signInIfAsked(): Promise<void> {
  const status = await fetch('/api/snapshot').then(
    (response) => response.status,
    () => 0,
  );
  if (status === 401) signIn();
}

function onTick(tick: Tick): void {
  if (!connection.value.connected) connection.value = { connected: true };
  snapshot.value = tick.snapshot;
  if (tick.audit.length > 0) auditLines.value = [...auditLines.value, ...tick.audit].slice(-LINES);
}

/** Counts of one moment, in Unix milliseconds. */
interface Sample {
  readonly at: number;
  readonly counts: ReadonlyMap<string, number>;
}

/** Seconds that a rate is the average of. */
const SECONDS = 5;

/**
 * Returns the rate of a count per second, from the counts that a component got before; undefined: it got too few. A
 * process that begins anew counts from zero.
 */
export function useRates(
  at: number,
  counts: ReadonlyMap<string, number>,
): (name: string) => number | undefined {
  const samples = useRef<Sample[]>([]);
  const list = samples.current;
  if ((list.at(-1)?.at ?? 0) < at) list.push({ at, counts });
  while (list.length > 2 && (list[1]?.at ?? 0) <= at - SECONDS * 1000) list.shift();
  const first = list[0];
  return (name) => {
    if (first === undefined || first.at >= at) return undefined;
    const rise = (counts.get(name) ?? 0) - (first.counts.get(name) ?? 0);
    return Math.max(0, rise) / ((at - first.at) / 1000);
  };
}
