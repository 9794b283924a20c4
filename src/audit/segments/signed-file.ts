import { createHmac, type KeyObject } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { replaceDurably } from '../../base/durable-file.ts';
import { messageOf } from '../../base/error-code.ts';
import { ignoreAbsent, reportDefect } from '../../base/expected-errors.ts';
import { parseJson } from '../../base/json.ts';
import { equalInConstantTime } from '../../base/secret.ts';
import type { AuditKeys } from '../keys.ts';
import { MOST_SEQ } from './segment.ts';
import { readSmall } from './segment-reader.ts';

/** The largest file that is read, in bytes. */
const LARGEST = 4096;

interface SignedFileOptions<T> {
  readonly path: string;
  readonly key: KeyObject;
  readonly schema: z.ZodType<T>;
  /** The text that is signed: all values, and the purpose of the file. */
  readonly textOf: (value: T) => string;
}

/** A small file beside a log with values that only a holder of the key can change unnoticed. */
export class SignedFile<T extends object> {
  readonly #options: SignedFileOptions<T>;

  constructor(options: SignedFileOptions<T>) {
    this.#options = options;
  }

  /**
   * The values, and whether the key signed them; undefined: there is no file.
   * @throws Error if the file cannot be read, or has another form
   */
  async read(): Promise<{ readonly value: T; readonly isSigned: boolean } | undefined> {
    const { path } = this.#options;
    const text = await readSmall(path, LARGEST).catch(ignoreAbsent);
    if (text === undefined) return undefined;
    const parsed = this.#parse(text);
    if (parsed === undefined) throw new Error(`${path} is not a file that a gateway wrote`);
    const isSigned = equalInConstantTime(parsed.mac, this.#mac(parsed.value));
    return { value: parsed.value, isSigned };
  }

  /** The values, if the key signed them; undefined: there is no file, or none that can be used. */
  async trusted(): Promise<T | undefined> {
    const found = await this.read().catch(reportDefect);
    return found?.isSigned === true ? found.value : undefined;
  }

  /**
   * Replaces the file, durably: after a crash there is the old one or the new one.
   * @throws Error of the file system
   */
  async write(value: T): Promise<void> {
    const text = JSON.stringify({ ...value, mac: this.#mac(value) });
    await replaceDurably(this.#options.path, `${text}\n`);
  }

  #parse(text: string): { value: T; mac: string } | undefined {
    const { mac, ...value } = Object(parseJson(text)) as { readonly mac?: unknown };
    const { data } = this.#options.schema.safeParse(value);
    return data && { value: data, mac: String(mac) };
  }

  #mac(value: T): string {
    const { key, textOf } = this.#options;
    return createHmac('sha256', key).update(textOf(value)).digest('base64url');
  }
}

const seal = z.string().regex(/^[\w-]{43}$/);
const position = z.strictObject({
  seq: z.int().min(0).max(MOST_SEQ),
  hmac: z.union([seal, z.literal('')]),
  key: z.string().regex(/^[0-9a-f]{16}$/),
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
  readonly #keys: AuditKeys;
  readonly #file: SignedFile<z.infer<typeof position>>;

  constructor(folder: string, sink: string, replica: string, keys: AuditKeys) {
    this.#path = join(folder, `${sink}.sink`);
    this.#keys = keys;
    this.#file = new SignedFile({
      path: this.#path,
      key: keys.sinkPosition,
      schema: position,
      textOf: ({ seq, hmac, key }) => [sink, replica, seq, hmac, key].join('\n'),
    });
  }

  /**
   * Reads the position; undefined: there is no file.
   * @throws Error if the file cannot be read, or no gateway wrote it as it is
   */
  async read(): Promise<FoundPosition | undefined> {
    const found = await this.#file.read();
    if (found === undefined) return undefined;
    const { key, ...rest } = found.value;
    // Another key signed it, so its signature cannot be checked: the caller compares it with the log.
    if (key !== this.#keys.id) return { position: rest, key };
    if (!found.isSigned) throw new Error(`${this.#path} has no valid signature`);
    return { position: rest, key: undefined };
  }

  /** @throws Error that names the file: an error of the disk alone looks like one of the receiver */
  async write({ seq, hmac }: SinkPosition): Promise<void> {
    try {
      await this.#file.write({ seq, hmac, key: this.#keys.id });
    } catch (error) {
      reportDefect(error);
      throw new Error(`${this.#path} cannot be written: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Removes the position, if there is one. */
  async remove(): Promise<void> {
    await rm(this.#path, { force: true });
  }
}
