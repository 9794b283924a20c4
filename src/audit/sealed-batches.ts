import { LogCursor } from './log-cursor.ts';
import { headOf, linesOf } from './raw-line.ts';
import { parseSeal, type Seal } from './seal.ts';
import { parseHeader } from './segment.ts';

/** A record as it stands in the log, without its line end. */
export interface NumberedLine {
  readonly seq: number;
  readonly line: string;
}

/** What was written together; a part of it may be from before the record that was asked for. */
export interface SealedBatch {
  readonly records: readonly NumberedLine[];
  readonly seal: Seal;
}

/** Reads one replica's log batch by batch, as it grows. What has no seal yet is not given. */
export class SealedBatches {
  readonly #cursor: LogCursor;
  #records: NumberedLine[] = [];
  #ready: SealedBatch[] = [];

  /** Begins in the segment that holds record `seq`, with what comes first there. */
  constructor(folder: string, seq: number) {
    this.#cursor = new LogCursor(folder, seq);
  }

  /**
   * Undefined: there is none yet.
   * @throws Error when a file cannot be read
   */
  async next(): Promise<SealedBatch | undefined> {
    while (this.#ready.length === 0) {
      const block = await this.#cursor.next();
      if (block === undefined) return undefined;
      this.#read(block);
      this.#ready.reverse();
    }
    return this.#ready.pop();
  }

  close(): Promise<void> {
    return this.#cursor.close();
  }

  #read(block: Buffer): void {
    for (const [start, end] of linesOf(block)) {
      const seq = headOf(block, start)?.seq;
      const line = block.toString('utf8', start, end);
      if (seq !== undefined) this.#records.push({ seq, line });
      else this.#readOther(line);
    }
  }

  #readOther(line: string): void {
    const seal = parseSeal(line);
    if (seal !== undefined) {
      this.#ready.push({ records: this.#records, seal });
      this.#records = [];
      return;
    }
    const header = parseHeader(line);
    if (header === undefined) return;
    // What has no seal and comes again in this segment was taken back.
    this.#records = this.#records.filter(({ seq }) => seq < header.first);
  }
}
