import type { AuditLine, History, Tick } from '../view.ts';

/** Until a stream that was refused is asked for again, in milliseconds. */
const AGAIN_MS = 5_000;

export interface LiveHandlers {
  onHistory(history: History): void;
  /** Lines from before the first tick, oldest first. */
  onAudit(lines: readonly AuditLine[]): void;
  onTick(tick: Tick): void;
  /** Whether the gateway answers. */
  onConnection(connected: boolean): void;
}

/** Follows the gateway while somebody looks at the page. */
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
      // A connection that broke off the browser opens again; one that was refused it does not.
      if (source?.readyState === EventSource.CLOSED) void whyRefused();
    });
  };

  const whyRefused = async (): Promise<void> => {
    const status = await fetch('/api/history').then(
      (answer) => answer.status,
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
