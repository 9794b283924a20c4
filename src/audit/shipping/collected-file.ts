import { constants, type FileHandle, open, stat, truncate } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { z } from 'zod';
import { linesOf } from '../line.ts';
import { readBlocks } from '../segments/segment-reader.ts';
import type { Reached } from './collector.ts';

const line = z.object({
  kind: z.string(),
  replica: z.string(),
  seq: z.number(),
  time: z.string().optional(),
});

const LINE_STARTS = ['{"seq":', '{"kind'] as const;

const row = z.object({
  replica: z.string(),
  seq: z.number(),
  time: z.string(),
  head: z.number(),
  hmac: z.string(),
});

/**
 * The file that the records of all replicas are collected in, and a small database beside it with the progress. The lock
 * of the database keeps a second collector away.
 */
export class CollectedFile {
  readonly #file: FileHandle;
  readonly #database: DatabaseSync;
  /** How far each replica had been collected when the file was opened. */
  readonly reached: ReadonlyMap<string, Reached>;

  private constructor(file: FileHandle, database: DatabaseSync, reached: ReadonlyMap<string, Reached>) {
    this.#file = file;
    this.#database = database;
    this.reached = reached;
  }

  /**
   * Opens or creates the file. Lines of a collector that was killed count as collected; an incomplete line is cut off.
   * @throws Error if another collector writes to it, or it holds anything else; it says what to do
   */
  static async open(path: string): Promise<CollectedFile> {
    const database = openDatabase(path);
    try {
      const reached = new Map(
        database
          .prepare('SELECT replica, seq, time, head, hmac FROM reached')
          .all()
          .map((each) => {
            const { replica, ...rest } = row.parse(each);
            return [replica, rest] as const;
          }),
      );
      const size = await stat(path).then(
        (found) => found.size,
        () => 0,
      );
      const known = Number(database.prepare('SELECT size FROM file').get()?.['size'] ?? 0);
      // A file that became shorter was moved away or rotated; its records stay collected.
      const end = await readOn(path, size < known ? 0 : known, size, reached);
      if (end < size) await truncate(path, end);
      const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT;
      return new CollectedFile(await open(path, flags, 0o600), database, reached);
    } catch (error) {
      database.close();
      throw error;
    }
  }

  /** Appends lines; resolves when they are durable. */
  async append(text: string, reached: ReadonlyMap<string, Reached>): Promise<void> {
    await this.#file.appendFile(text);
    await this.#file.datasync();
    const { size } = await this.#file.stat();
    this.#database.exec('BEGIN');
    const put = this.#database.prepare(
      'INSERT OR REPLACE INTO reached (replica, seq, time, head, hmac) VALUES (?, ?, ?, ?, ?)',
    );
    for (const [replica, { seq, time, head, hmac }] of reached) put.run(replica, seq, time, head, hmac);
    this.#database.prepare('INSERT OR REPLACE INTO file VALUES (0, ?)').run(size);
    this.#database.exec('COMMIT');
  }

  async close(): Promise<void> {
    this.#database.close();
    await this.#file.close();
  }
}

function openDatabase(path: string): DatabaseSync {
  const database = new DatabaseSync(`${path}.progress`, { timeout: 0 });
  try {
    // Progress that is lost is read from the file itself, so the database need not be durable. The lock lasts from now on.
    database.exec(`
      PRAGMA locking_mode = EXCLUSIVE;
      PRAGMA synchronous = OFF;
      CREATE TABLE IF NOT EXISTS reached (replica TEXT PRIMARY KEY, seq INTEGER, time TEXT, head INTEGER);
      CREATE TABLE IF NOT EXISTS file (id INTEGER PRIMARY KEY, size INTEGER);
      BEGIN EXCLUSIVE; COMMIT`);
    // An earlier version did not store the seal.
    const columns = database.prepare('PRAGMA table_info(reached)').all();
    if (!columns.some(({ name }) => name === 'hmac')) {
      database.exec("ALTER TABLE reached ADD COLUMN hmac TEXT NOT NULL DEFAULT ''");
    }
    return database;
  } catch (error) {
    database.close();
    throw new Error(
      `${path} belongs to another audit export that is running: stop that one, or name another file`,
      {
        cause: error,
      },
    );
  }
}

/** Reads the progress from the lines after `from`; resolves to the end of the last whole line. */
async function readOn(
  path: string,
  from: number,
  size: number,
  reached: Map<string, Reached>,
): Promise<number> {
  let end = from;
  if (size === from) return end;
  for await (const { bytes, whole } of readBlocks(path, from)) {
    if (whole ? !noteAll(bytes, reached) : !beginsLine(bytes)) {
      throw new Error(`${path} holds something else than records of an audit log: name another file`);
    }
    if (whole) end += bytes.length;
  }
  return end;
}

/** Notes the progress of lines; false: a line is not a collector's. */
function noteAll(bytes: Buffer, reached: Map<string, Reached>): boolean {
  for (const [start, end] of linesOf(bytes))
    if (!note(bytes.toString('utf8', start, end), reached)) return false;
  return true;
}

/** True if an incomplete line may be a collector's. */
function beginsLine(bytes: Buffer): boolean {
  const text = bytes.toString('latin1', 0, LINE_STARTS[0].length);
  return LINE_STARTS.some((start) => start.startsWith(text));
}

/** Notes the progress of a line; false: it is not a collector's. */
function note(text: string, reached: Map<string, Reached>): boolean {
  const parsed = line.safeParse(jsonOf(text));
  if (!parsed.success) return false;
  const { kind, replica, seq, time = '' } = parsed.data;
  const before = reached.get(replica);
  if (kind !== 'head') reached.set(replica, { seq, time, head: before?.head ?? 0, hmac: '' });
  else if (before !== undefined) reached.set(replica, { ...before, head: seq });
  return true;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
