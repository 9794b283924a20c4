import type { SignatureFault, ValueSigner } from './value-signer.ts';

/** Characters of a message; keys hold names of the configuration and an origin. */
const LONGEST_MESSAGE = 4096;
/** How long a message counts, in milliseconds. */
const MESSAGE_LIFE_MS = 60_000;

export interface ChangeFeedOptions {
  /** Names this process among all. */
  readonly process: string;
  readonly channel: string;
  readonly signer: ValueSigner;
  /** True if this process uses the key. */
  readonly isUsed: (key: string) => boolean;
  readonly onChange: (key: string) => void;
  readonly onRejected: (reason: 'malformed' | SignatureFault) => void;
}

/** Announces changes to other processes, and receives theirs. Messages of strangers cost a bounded amount of work. */
export class ChangeFeed {
  readonly #options: ChangeFeedOptions;
  readonly #pause: ChangePause;

  constructor(options: ChangeFeedOptions) {
    this.#options = options;
    this.#pause = new ChangePause(options.onChange);
  }

  /** The message that this process changed something under the key. */
  announcement(key: string): string {
    const { process, signer } = this.#options;
    return signer.sign(this.#place, `${process} ${key}`, 0, MESSAGE_LIFE_MS);
  }

  hear(message: string): void {
    const fault = this.#tellOf(message);
    if (fault !== undefined) this.#options.onRejected(fault);
  }

  /** Tells nothing any more. */
  close(): void {
    this.#pause.close();
  }

  /** Tells of what the message says; returns what is wrong with it. */
  #tellOf(message: string): 'malformed' | SignatureFault | undefined {
    const { process, signer, isUsed } = this.#options;
    if (message.length > LONGEST_MESSAGE) return 'malformed';
    const opened = signer.open(this.#place, message);
    if (typeof opened === 'string') return opened;
    const { text } = opened;
    const at = text.indexOf(' ');
    if (at < 1) return 'malformed';
    const key = text.slice(at + 1);
    if (text.slice(0, at) !== process && isUsed(key)) this.#pause.announce(key);
    return undefined;
  }

  get #place() {
    return { kind: 'change', place: this.#options.channel } as const;
  }
}

/** Pause between the first two announcements of one key, in milliseconds: each costs calls to the store. */
const PAUSE_MS = 50;
/** With each that follows without a quiet pause between, it is twice as long, up to this. */
const LONGEST_PAUSE_MS = 1000;

/**
 * Passes announcements of changed keys on: the first of a key at once, those of the pause after it as one. Many processes
 * that answer each other's changes would otherwise keep a slow store busy with nothing else.
 */
export class ChangePause {
  readonly #onChange: (key: string) => void;
  /** Keys that were announced lately; true: announced once more when the pause is over. */
  readonly #announced = new Map<string, boolean>();
  #closed = false;

  constructor(onChange: (key: string) => void) {
    this.#onChange = onChange;
  }

  announce(key: string): void {
    if (this.#announced.has(key)) this.#announced.set(key, true);
    else this.#tell(key, PAUSE_MS);
  }

  /** Announces nothing any more. */
  close(): void {
    this.#closed = true;
  }

  #tell(key: string, pauseMs: number): void {
    this.#announced.set(key, false);
    setTimeout(() => {
      const again = this.#announced.get(key);
      this.#announced.delete(key);
      if (again === true && !this.#closed) this.#tell(key, Math.min(2 * pauseMs, LONGEST_PAUSE_MS));
    }, pauseMs).unref();
    this.#onChange(key);
  }
}
