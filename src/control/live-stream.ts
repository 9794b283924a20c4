import type { ServerResponse } from 'node:http';
import type { Sampler } from './sampler.ts';
import { type ConsoleSource, takeSnapshot } from './snapshot.ts';
import type { Snapshot, Tick } from './view.ts';

/** Maximum number of open event streams. */
const VIEWERS = 50;
/** Maximum number of unsent bytes for one viewer. */
const WAITING = 2 ** 20;
/** Maximum number of audit lines in one tick; 10,000 lines a minute still fit. */
const AUDIT_LINES = 200;

export interface LiveStreamOptions {
  readonly source: ConsoleSource;
  readonly sampler: Sampler;
  readonly tickMs: number;
  readonly onError: (error: unknown) => void;
}

/** Server-sent events for every open console. One timer serves all; it stops when no console is open. */
export class LiveStream {
  readonly #options: LiveStreamOptions;
  readonly #viewers = new Set<ServerResponse>();
  #timer: NodeJS.Timeout | undefined;
  #ticking = false;
  #auditUntil = 0;

  constructor(options: LiveStreamOptions) {
    this.#options = options;
  }

  /** Starts the event stream, or responds 503 when too many are open. */
  add(res: ServerResponse): void {
    if (this.#viewers.size >= VIEWERS) {
      res.writeHead(503, { 'content-type': 'text/plain', 'retry-after': '30' });
      res.end('Too many consoles are open. Close one.\n');
      return;
    }
    res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    if (this.#viewers.size === 0) this.#start();
    res.write(event('audit', this.#auditBefore()));
    this.#viewers.add(res);
    res.on('close', () => {
      this.#viewers.delete(res);
      if (this.#viewers.size === 0) this.#stop();
    });
    void this.#tick();
  }

  snapshot(): Promise<Snapshot> {
    return takeSnapshot(this.#options.source, this.#options.sampler);
  }

  close(): void {
    for (const viewer of this.#viewers) viewer.end();
    this.#stop();
  }

  #start(): void {
    const { source, tickMs } = this.#options;
    this.#auditUntil = source.auditLines(0).position;
    this.#timer = setInterval(() => void this.#tick(), tickMs).unref();
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Returns the audit lines that earlier ticks have sent. */
  #auditBefore() {
    const { lines, position } = this.#options.source.auditLines(0);
    const sent = lines.length - (position - this.#auditUntil);
    return lines.slice(Math.max(0, sent - AUDIT_LINES), Math.max(0, sent));
  }

  async #tick(): Promise<void> {
    if (this.#ticking) return;
    this.#ticking = true;
    try {
      const text = event('tick', await this.#nextTick());
      for (const viewer of this.#viewers) {
        // A viewer that reconnects gets everything again.
        if (viewer.writableLength > WAITING) viewer.destroy();
        else viewer.write(text);
      }
    } catch (error) {
      this.#options.onError(error);
    } finally {
      this.#ticking = false;
    }
  }

  async #nextTick(): Promise<Tick> {
    const { source } = this.#options;
    const snapshot = await this.snapshot();
    const audit = source.auditLines(this.#auditUntil);
    this.#auditUntil = audit.position;
    return { snapshot, audit: audit.lines.slice(-AUDIT_LINES) };
  }
}

function event(name: string, data: unknown): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}
