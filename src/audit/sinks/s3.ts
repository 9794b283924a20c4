import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { AwsV4Signer } from 'aws4fetch';
import type { Agent, Dispatcher } from 'undici';
import { errorCode, messageOf } from '../../base/error-code.ts';
import { agentFor, askedWait, loadUndici, RetryLater } from '../../receivers/http.ts';
import { compressedName } from '../segments/segment.ts';
import { openRegular } from '../segments/segment-reader.ts';
import type { Delivery } from './follower.ts';
import type { S3Options } from './options.ts';
import type { ClosedSegment } from './segment-source.ts';

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
