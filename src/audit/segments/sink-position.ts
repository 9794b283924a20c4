import { createHmac, timingSafeEqual } from 'node:crypto';
import { constants } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errorCode } from '../../base/error-code.ts';
import type { AuditKeys } from '../keys.ts';
import { MOST_SEQ } from './segment.ts';
import { openRegular } from './segment-reader.ts';

/** The largest file that is read as a position, in bytes. */
const LARGEST = 4096;
const { O_CREAT, O_NOFOLLOW, O_TRUNC, O_WRONLY } = constants;

const hmac = z.string().regex(/^[\w-]{43}$/);
const stored = z.strictObject({
  seq: z.int().min(0).max(MOST_SEQ),
  hmac: z.union([hmac, z.literal('')]),
  key: z.string().regex(/^[0-9a-f]{16}$/),
  mac: hmac,
});

/** How far a sink has got with the log of one process: everything up to a seal was delivered. */
export interface SinkPosition {
  /** Number of the last record. */
  readonly seq: number;
  /** `hmac` of the seal. */
  readonly hmac: string;
}

/** A position as it was found; `key`: id of the key that signed it, if that is not the present one. */
export interface FoundPosition {
  readonly position: SinkPosition;
  readonly key: string | undefined;
}

/** The file with the position of one sink in the folder of one process. */
export class PositionFile {
  readonly #path: string;
  readonly #sink: string;
  readonly #replica: string;
  readonly #keys: AuditKeys;

  constructor(folder: string, sink: string, replica: string, keys: AuditKeys) {
    this.#path = join(folder, `${sink}.sink`);
    this.#sink = sink;
    this.#replica = replica;
    this.#keys = keys;
  }

  /**
   * Reads the position; undefined: there is no file.
   * @throws Error if the file cannot be read, or no gateway wrote it as it is
   */
  async read(): Promise<FoundPosition | undefined> {
    const text = await readSmall(this.#path);
    if (text === undefined) return undefined;
    const { key, mac, ...position } = parse(text, this.#path);
    const signed = timingSafeEqual(Buffer.from(this.#mac(position, key)), Buffer.from(mac));
    // Another key signed it, so its signature cannot be checked: the caller compares it with the log.
    if (key !== this.#keys.id) return { position, key };
    if (!signed) throw new Error(`${this.#path} has no valid signature`);
    return { position, key: undefined };
  }

  /**
   * Replaces the position, durably: after a crash there is the old one or the new one.
   * @throws Error of the file system
   */
  async write(position: SinkPosition): Promise<void> {
    const { id: key } = this.#keys;
    await writeSmall(this.#path, `${JSON.stringify({ ...position, key, mac: this.#mac(position, key) })}\n`);
  }

  /** Removes the position, if there is one. */
  async remove(): Promise<void> {
    await rm(this.#path, { force: true });
  }

  #mac({ seq, hmac: seal }: SinkPosition, key: string): string {
    const text = [this.#sink, this.#replica, seq, seal, key].join('\n');
    return createHmac('sha256', this.#keys.sinkPosition).update(text).digest('base64url');
  }
}

/**
 * Replaces a file, durably: after a crash there is the old one or the new one.
 * @throws Error of the file system
 */
export async function writeSmall(path: string, text: string): Promise<void> {
  const temporary = `${path}.tmp`;
  // Something else than a file may stand there.
  await rm(temporary, { force: true, recursive: true });
  const handle = await open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o600);
  try {
    await handle.writeFile(text);
    // Without this, some file systems keep the name and lose the content when the machine fails.
    await handle.datasync();
  } finally {
    await handle.close();
  }
  await rename(temporary, path);
}

/** Reads a small file; undefined: there is none. @throws Error if it cannot be read */
export async function readSmall(path: string): Promise<string | undefined> {
  try {
    const handle = await openRegular(path);
    try {
      const { bytesRead, buffer } = await handle.read(Buffer.alloc(LARGEST + 1), 0, LARGEST + 1, 0);
      return buffer.toString('latin1', 0, bytesRead);
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

function parse(text: string, path: string): z.infer<typeof stored> {
  try {
    if (text.length <= LARGEST) return stored.parse(JSON.parse(text));
  } catch {
    // The message would quote the content.
  }
  throw new Error(`${path} is not the position of a sink`);
}
