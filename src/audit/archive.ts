import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, rename, rm, stat, unlink, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createZstdCompress } from 'node:zlib';
import { ChainWalk } from './chain-walk.ts';
import { compressedName, indexName, type Segment, segmentsIn } from './segment.ts';
import { syncDirectory } from './segment-file.ts';
import { readBlocks } from './segment-reader.ts';

const TEMPORARY = '.tmp';

/** A closed segment that was removed because it was old enough. */
export interface Retired {
  readonly segment: string;
  /** Number of its last record. */
  readonly last: number;
  /** `hmac` of its last seal: where the chain begins from now on. */
  readonly hmac: string;
}

/** Compresses every closed segment of the folder, the newest one being open. Rejects when the disk does not let it. */
export async function compressClosed(folder: string): Promise<void> {
  const closed = (await segmentsIn(folder)).slice(0, -1).filter(({ compressed }) => !compressed);
  for (const { name } of closed) await compress(folder, name);
}

/** The plain file goes only after what was written instead was read back and found to be the same. */
async function compress(folder: string, name: string): Promise<void> {
  const plain = join(folder, name);
  const final = join(folder, compressedName(name));
  const temporary = `${final}${TEMPORARY}`;
  const { atime, mtime } = await stat(plain);
  const handle = await open(temporary, 'w', 0o600);
  try {
    await pipeline(createReadStream(plain), createZstdCompress(), async (compressed) => {
      for await (const chunk of compressed as AsyncIterable<Buffer>) await handle.writeFile(chunk);
    });
    await handle.sync();
  } finally {
    await handle.close();
  }
  // The name decides how it is read, so it is renamed before it is compared.
  await utimes(temporary, atime, mtime);
  await rename(temporary, final);
  if ((await digestOf(plain)) !== (await digestOf(final))) {
    await rm(final);
    throw new Error(`${final} could not be read back as it was written`);
  }
  await syncDirectory(folder);
  await unlink(plain);
  await syncDirectory(folder);
}

async function digestOf(file: string): Promise<string> {
  const digest = createHash('sha256');
  for await (const { bytes } of readBlocks(file)) digest.update(bytes);
  return digest.digest('hex');
}

/** Closed segments that were last written before `before` (Unix time in ms), oldest first, and how the chain goes on. */
export async function outlived(folder: string, before: number): Promise<Retired[]> {
  const retired: Retired[] = [];
  for (const segment of (await segmentsIn(folder)).slice(0, -1)) {
    const { mtimeMs } = await stat(join(folder, segment.name));
    if (mtimeMs >= before) break;
    retired.push(await endOf(folder, segment));
  }
  return retired;
}

/** Removes a segment that was retired. */
export async function remove(folder: string, { segment }: Retired): Promise<void> {
  await rm(join(folder, segment));
  await rm(join(folder, indexName(Number.parseInt(segment, 10))), { force: true });
  await syncDirectory(folder);
}

async function endOf(folder: string, { name }: Segment): Promise<Retired> {
  const walk = new ChainWalk([], undefined, { onFault: () => undefined });
  for await (const { bytes, whole } of readBlocks(join(folder, name))) if (whole) walk.walk(bytes);
  const { previous, nextSeq } = walk.state;
  return { segment: name, last: nextSeq - 1, hmac: previous };
}
