import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { AwsV4Signer } from 'aws4fetch';
import type { Agent, Dispatcher } from 'undici';
import { errorCode, messageOf } from '../../base/error-code.ts';
import type { Secret } from '../../base/secret.ts';
import { loadUndici } from '../../base/undici.ts';
import { NEWLINE } from '../line.ts';
import {
  compressedName,
  isSetAside,
  parseHeader,
  type Segment,
  type SegmentHeader,
  segmentName,
  segmentsIn,
} from '../segments/segment.ts';
import { openRegular, readBlocks } from '../segments/segment-reader.ts';
import type { FoundPosition, SinkPosition } from '../segments/signed-file.ts';
import type { CommonOptions, Delivery, Source, Unit } from './follower.ts';
import type { ReceiverTls } from './receiver.ts';
import { agentFor, askedWait, RetryLater } from './receiver.ts';
import type { SourceEvents } from './record-source.ts';

export interface S3Options extends CommonOptions {
  readonly kind: 's3';
  readonly bucket: string;
  readonly region: string;
  /** Origin of the receiver. */
  readonly endpoint: string;
  /** True: the bucket stands in the path, not in the host name. */
  readonly pathStyle: boolean;
  /** Stands before every key; empty, or with a slash at its end. */
  readonly prefix: string;
  readonly accessKeyId: Secret;
  readonly secretAccessKey: Secret;
  readonly sessionToken: Secret | undefined;
  /** For how long objects cannot be changed, in milliseconds; undefined: they are not locked. */
  readonly lock: { readonly mode: 'governance' | 'compliance'; readonly keep: number } | undefined;
  readonly tls: ReceiverTls | undefined;
}

const EMPTY_SHA256 = createHash('sha256').digest('hex');
/** Bytes of an error document that are read for its code. */
const LONGEST_ERROR = 64 * 1024;
const NO_LOCK = 'the object is there, and not locked';

interface HashedFile {
  readonly path: string;
  readonly name: string;
  readonly size: number;
  readonly sha256: Buffer;
}

/**
 * Puts closed segments into a bucket, each once: an object that is there is compared, never replaced. After each put the
 * object is looked at: its size, its SHA-256 and its lock.
 */
export class S3Delivery implements Delivery<ClosedSegment> {
  readonly #options: S3Options;
  readonly #agent: Agent;

  constructor(options: S3Options) {
    this.#options = options;
    this.#agent = agentFor(options.tls);
  }

  async deliver({ replica, folder, names, records }: ClosedSegment, signal: AbortSignal): Promise<number> {
    for (const [index, name] of names.entries()) {
      const file = await hashed(folder, name, signal);
      // Retention may have removed the segment, or somebody a file that was set aside.
      if (file === undefined && index === 0) return records;
      if (file === undefined) continue;
      await this.#put(`${this.#options.prefix}${replica}/${file.name}`, file, signal);
    }
    return 0;
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }

  async #put(key: string, { path, size, sha256 }: HashedFile, signal: AbortSignal): Promise<void> {
    // Services like Ceph's ignore If-None-Match in a bucket with versions.
    const before = await this.#call('HEAD', key, { signal });
    if (before.statusCode === 200) {
      await this.#verify(key, { size, sha256 }, signal);
      return;
    }
    const { lock } = this.#options;
    const until = lock && new Date(Date.now() + lock.keep);
    const headers = {
      'content-length': String(size),
      'content-type': 'application/octet-stream',
      'if-none-match': '*',
      'x-amz-checksum-sha256': sha256.toString('base64'),
      'x-amz-meta-sha256': sha256.toString('hex'),
      ...(lock &&
        until && {
          'x-amz-object-lock-mode': lock.mode.toUpperCase(),
          'x-amz-object-lock-retain-until-date': until.toISOString(),
        }),
    };
    const handle = await openRegular(path);
    // `end` keeps a file that grows from sending more than its length.
    const body = handle.createReadStream({ start: 0, end: Math.max(0, size - 1) });
    try {
      const { statusCode, error } = await this.#call('PUT', key, { headers, body, sha256, signal });
      if (statusCode !== 200 && statusCode !== 412) throw this.#refused(key, statusCode, error);
    } finally {
      body.destroy();
    }
    await this.#verify(key, { size, sha256 }, signal);
  }

  /** @throws Error unless the object has this content, and a lock if one is configured */
  async #verify(
    key: string,
    { size, sha256 }: Pick<HashedFile, 'size' | 'sha256'>,
    signal: AbortSignal,
  ): Promise<void> {
    const asked = { 'x-amz-checksum-mode': 'ENABLED' };
    const head = await this.#call('HEAD', key, { headers: asked, signal });
    if (head.statusCode !== 200) throw this.#refused(key, head.statusCode, '');
    const { 'content-length': length, 'x-amz-checksum-sha256': checksum } = head.headers;
    const known = checksum === undefined ? await this.#hashOf(key, signal) : String(checksum);
    if (Number(length) !== size || known !== sha256.toString('base64')) {
      throw this.#failed(key, 'another object is there, which is not replaced');
    }
    const mode = head.headers['x-amz-object-lock-mode'];
    if (this.#options.lock !== undefined && mode === undefined) throw this.#failed(key, NO_LOCK);
  }

  /** For a receiver that stores no checksum. */
  async #hashOf(key: string, signal: AbortSignal): Promise<string> {
    const { statusCode, body } = await this.#send('GET', key, { signal });
    const hash = createHash('sha256');
    for await (const chunk of body) hash.update(chunk as Buffer);
    if (statusCode !== 200) throw this.#refused(key, statusCode, '');
    return hash.digest('base64');
  }

  async #call(method: 'PUT' | 'HEAD', key: string, call: Call) {
    const { statusCode, headers, body } = await this.#send(method, key, call);
    const wait = askedWait({ headers });
    let text = '';
    for await (const chunk of body)
      if (text.length < LONGEST_ERROR) text += (chunk as Buffer).toString('latin1');
    if (wait !== undefined && [429, 503].includes(statusCode)) {
      throw new RetryLater(this.#refused(key, statusCode, text).message, wait);
    }
    return { statusCode, headers, error: text };
  }

  async #send(
    method: 'PUT' | 'HEAD' | 'GET',
    key: string,
    { headers = {}, body, sha256, signal }: Call,
  ): Promise<Dispatcher.ResponseData> {
    const { region, accessKeyId, secretAccessKey, sessionToken } = this.#options;
    const signed = await new AwsV4Signer({
      method,
      url: this.#urlOf(key),
      headers: { ...headers, 'x-amz-content-sha256': sha256?.toString('hex') ?? EMPTY_SHA256 },
      service: 's3',
      region,
      accessKeyId: accessKeyId.reveal(),
      secretAccessKey: secretAccessKey.reveal(),
      ...(sessionToken && { sessionToken: sessionToken.reveal() }),
    }).sign();
    try {
      return await loadUndici().request(signed.url, {
        method,
        headers: Object.fromEntries(signed.headers),
        ...(body && { body }),
        signal,
        dispatcher: this.#agent,
      });
    } catch (error) {
      throw this.#failed(key, errorCode(error) || messageOf(error), error);
    }
  }

  #urlOf(key: string): string {
    const { endpoint, bucket, pathStyle } = this.#options;
    const path = key.split('/').map(encodeURIComponent).join('/');
    if (pathStyle) return `${endpoint}/${bucket}/${path}`;
    const url = new URL(endpoint);
    return `${url.protocol}//${bucket}.${url.host}/${path}`;
  }

  /** The code of the error document is from a fixed list; its message may quote the request. */
  #refused(key: string, status: number, document: string): Error {
    const [, code = ''] = /<Code>(\w{1,64})<\/Code>/.exec(document) ?? [];
    return this.#failed(key, `status ${status} ${code}`.trim());
  }

  #failed(key: string, reason: string, cause?: unknown): Error {
    return new Error(`${this.#options.bucket}/${key}: ${reason}`, { cause });
  }
}

interface Call {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Dispatcher.DispatchOptions['body'];
  readonly sha256?: Buffer;
  readonly signal: AbortSignal;
}

/** Reads a file for its hash; undefined: it is gone, and has not become a compressed one. */
async function hashed(folder: string, name: string, signal: AbortSignal): Promise<HashedFile | undefined> {
  for (const candidate of [name, compressedName(name)]) {
    const path = join(folder, candidate);
    try {
      const handle = await openRegular(path);
      const hash = createHash('sha256');
      let size = 0;
      for await (const chunk of handle.createReadStream({ signal })) {
        hash.update(chunk as Buffer);
        size += (chunk as Buffer).length;
      }
      return { path, name: candidate, size, sha256: hash.digest() };
    } catch (error) {
      if (errorCode(error) !== 'ENOENT') throw error;
    }
  }
  return undefined;
}

/** Age in milliseconds after which a closed segment is sent although it was not compressed: it may have been changed. */
const PLAIN_AFTER_MS = 600_000;

/** A closed segment with the files that were set aside from it. */
export interface ClosedSegment {
  readonly replica: string;
  readonly folder: string;
  /** Names of the files; the segment is the first. */
  readonly names: readonly string[];
  readonly records: number;
}

export interface SegmentSourceOptions {
  readonly folder: string;
  readonly replica: string;
  /** Undefined: everything is to be sent. */
  readonly start: FoundPosition | undefined;
  readonly events: SourceEvents;
}

/** Finds the closed segments of one process's log after the position of a sink. */
export class SegmentSource implements Source<ClosedSegment> {
  readonly #options: SegmentSourceOptions;
  #last: FoundPosition | undefined;

  constructor(options: SegmentSourceOptions) {
    this.#options = options;
    this.#last = options.start;
  }

  async next(): Promise<Unit<ClosedSegment> | undefined> {
    const { folder } = this.#options;
    const segments = await segmentsIn(folder);
    const at = await this.#indexOfNext(segments);
    const [segment, next] = [segments[at], segments[at + 1]];
    if (segment === undefined || next === undefined) return undefined;
    const following = await headerOf(folder, next);
    const since = Date.parse(following?.opened ?? '') || 0;
    const later = segments.slice(at + 1).some(({ compressed }) => compressed);
    // The writer compresses segments in their order, and leaves one that was changed as it is.
    if (!segment.compressed && !later && Date.now() - since < PLAIN_AFTER_MS) return undefined;
    const [first, last] = [segment.first, next.first - 1];
    const position = { seq: last, hmac: following?.previous ?? '' };
    const records = last - first + 1;
    const content = await this.#contentOf(segment, records);
    // Only now, since a segment whose files cannot be listed is tried again.
    this.#tellSkipped(first);
    this.#last = { position, key: undefined };
    return { content, records, since, position };
  }

  /** Records in closed segments. */
  async behind(position: SinkPosition | undefined): Promise<number> {
    const segments = await segmentsIn(this.#options.folder);
    const [oldest, newest] = [segments[0], segments.at(-1)];
    if (oldest === undefined || newest === undefined) return 0;
    return Math.max(0, newest.first - 1 - (position?.seq ?? oldest.first - 1));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  async #contentOf(segment: Segment, records: number): Promise<ClosedSegment> {
    const { folder, replica } = this.#options;
    // The log names these files, so it can only be verified with them.
    const aside = (await readdir(folder)).filter(
      (name) => isSetAside(name) && name.startsWith(segmentName(segment.first)),
    );
    return { replica, folder, names: [segment.name, ...aside.sort()], records };
  }

  async #indexOfNext(segments: readonly Segment[]): Promise<number> {
    if (this.#last === undefined || segments.length === 0) return 0;
    const { position } = this.#last;
    const at = segments.findIndex(({ first }) => first > position.seq);
    if (await this.#isFollowed(this.#last, segments[at - 1], segments[at])) return at;
    await this.#options.events.onDiverged(position, 'the log is not the one that the position belongs to');
    this.#last = undefined;
    return 0;
  }

  /** True if the segment `next` continues at the position, or retention removed what lay between. */
  async #isFollowed(
    { position, key }: FoundPosition,
    before: Segment | undefined,
    next: Segment | undefined,
  ): Promise<boolean> {
    const { folder } = this.#options;
    if (next === undefined) return false;
    if (key !== undefined && (before === undefined || (await headerOf(folder, before))?.key !== key))
      return false;
    if (next.first > position.seq + 1) return before === undefined;
    return ((await headerOf(folder, next))?.previous ?? '') === position.hmac;
  }

  #tellSkipped(first: number): void {
    const after = this.#last?.position.seq;
    if (after === undefined || first <= after + 1) return;
    this.#options.events.onSkipped(after + 1, first - 1, 'they were removed from the log');
  }
}

async function headerOf(folder: string, { name }: Segment): Promise<SegmentHeader | undefined> {
  for await (const { bytes } of readBlocks(join(folder, name))) {
    return parseHeader(bytes.toString('utf8', 0, bytes.indexOf(NEWLINE)));
  }
  return undefined;
}
