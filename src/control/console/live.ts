import type { AuditLine, History, Tick } from '../view.ts';

/** Pause before a refused stream is requested again, in milliseconds. */
const AGAIN_MS = 5_000;

export interface LiveHandlers {
  onHistory(history: History): void;
  /** Lines from before the first tick, oldest first. */
  onAudit(lines: readonly AuditLine[]): void;
  onTick(tick: Tick): void;
  /** Called when the gateway becomes reachable or unreachable. */
  onConnection(connected: boolean): void;
}

/** Receives the stream of the gateway while the page is visible. */
export function follow(handlers: LiveHandlers): void {
  let source: EventSource | undefined;
  let again: number | undefined;

  const open = (): void => {
    clearTimeout(again);
    source?.close();
    source = new EventSource('/api/events');
    const on = (name: string, handle: (data: unknown) => void): void => {
      source?.addEventListener(name, ({ data }: MessageEvent<string>) => handle(JSON.parse(data)));
    };
    on('history', (data) => handlers.onHistory(data as History));
    on('audit', (data) => handlers.onAudit(data as AuditLine[]));
    on('tick', (data) => {
      handlers.onConnection(true);
      handlers.onTick(data as Tick);
    });
    source.addEventListener('error', () => {
      handlers.onConnection(false);
      // The browser reopens a connection that broke, but not one that was refused.
      if (source?.readyState === EventSource.CLOSED) void whyRefused();
    });
  };

  const whyRefused = async (): Promise<void> => {
    const status = await fetch('/api/history').then(
      (response) => response.status,
      () => 0,
    );
    if (status === 401) location.assign('/login');
    else again = setTimeout(open, AGAIN_MS);
  };

  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      clearTimeout(again);
      source?.close();
    } else open();
  });
  if (!document.hidden) open();
}
