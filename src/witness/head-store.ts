import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type Checkpoint,
  checkpointIn,
  checkpointLine,
  cosignatureOf,
  originOf,
  type WitnessKey,
} from '../audit/checkpoint.ts';
import { type Lock, lockFile, makeFolder } from '../audit/segments/replica-folder.ts';
import { readSmall } from '../audit/segments/segment-reader.ts';
import { replaceDurably, syncDirectory } from '../base/durable-file.ts';

const NAME = /^[0-9a-f]{64}\.head$/;
/** The largest file that is read, in bytes. */
const LARGEST = 16 * 1024;

/** A head with its cosignature. */
interface StoredHead {
  readonly checkpoint: Checkpoint;
  readonly note: string;
  /** When it was cosigned, in Unix milliseconds. */
  readonly time: number;
}

/** The last head of each tree that a witness has cosigned, in one file each. */
export class HeadStore {
  readonly #directory: string;
  readonly #heads = new Map<string, StoredHead>();
  readonly #lock: Lock;

  private constructor(directory: string, lock: Lock) {
    this.#directory = directory;
    this.#lock = lock;
  }

  /**
   * Opens the folder, which is made if it does not exist, and reads the heads in it. `own`: the key of the witness.
   * @throws Error if another process uses the folder, or a file in it is not as this witness wrote it
   */
  static async open(directory: string, own: WitnessKey): Promise<HeadStore> {
    await makeFolder(directory);
    const taken = `${directory} belongs to another witness that is running: stop that one, or name another folder`;
    const store = new HeadStore(directory, lockFile(join(directory, 'lock'), taken));
    try {
      for (const name of await readdir(directory)) if (NAME.test(name)) await store.#read(name, own);
      return store;
    } catch (error) {
      store.close();
      throw error;
    }
  }

  get all(): StoredHead[] {
    return [...this.#heads.values()];
  }

  of(origin: string): StoredHead | undefined {
    return this.#heads.get(origin);
  }

  /**
   * Replaces the head of a tree, durably: when this resolves, no failure of process or machine brings the old one back.
   * @throws Error of the file system
   */
  async write(head: StoredHead): Promise<void> {
    const origin = originOf(head.checkpoint);
    await replaceDurably(join(this.#directory, nameOf(origin)), checkpointLine(head.note));
    await syncDirectory(this.#directory);
    this.#heads.set(origin, head);
  }

  close(): void {
    this.#lock.release();
  }

  async #read(name: string, own: WitnessKey): Promise<void> {
    const path = join(this.#directory, name);
    const checkpoint = checkpointIn((await readSmall(path, LARGEST)).replace(/\n$/, ''));
    const isOwn = checkpoint !== undefined && nameOf(originOf(checkpoint)) === name;
    const cosignature = isOwn ? cosignatureOf(checkpoint, [own]) : undefined;
    if (checkpoint === undefined || cosignature === undefined) {
      const remedy = 'restore it, or give the witness another name, key and folder';
      throw new Error(`${path} is not a head that this witness has cosigned: ${remedy}`);
    }
    this.#heads.set(originOf(checkpoint), { checkpoint, note: checkpoint.note, time: cosignature.time });
  }
}

/** Origins have a slash, which no file name may have. */
function nameOf(origin: string): string {
  return `${createHash('sha256').update(origin).digest('hex')}.head`;
}
