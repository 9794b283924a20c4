import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { AwsV4Signer } from 'aws4fetch';
import type { Agent, Dispatcher } from 'undici';
import { errorCode, messageOf } from '../../base/error-code.ts';
import { ignoreAbsent } from '../../base/expected-errors.ts';
import type { Secret } from '../../base/secret.ts';
import { loadUndici } from '../../base/undici.ts';
import { compressedName } from '../segments/segment.ts';
import { openRegular } from '../segments/segment-reader.ts';
import type { CommonOptions, Delivery } from './follower.ts';
import type { ReceiverTls } from './receiver.ts';
import { agentFor, askedWait, RetryLater } from './receiver.ts';
import type { ClosedSegment } from './segment-source.ts';

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
const NOT_SIGNED = 'the request cannot be signed: the access key or the session token is malformed';
const OTHER_OBJECT = 'another object is there, which is not replaced';
const IF_NEW = { 'if-none-match': '*' };
const CHECKSUM_WANTED = { 'x-amz-checksum-mode': 'ENABLED' };

interface HashedFile {
  readonly path: string;
  readonly name: string;
  readonly size: number;
  readonly sha256: Buffer;
}

/**
 * Puts closed segments into a bucket, each once: an object that is there is compared, never replaced. A file with heads
 * grows, so its object gets another version if it is the beginning of the file. After each put the object is looked at:
 * its size, its SHA-256 and its lock.
 */
export class S3Delivery implements Delivery<ClosedSegment> {
  readonly #options: S3Options;
  readonly #agent: Agent;

  constructor(options: S3Options) {
    this.#options = options;
    this.#agent = agentFor(options.tls);
  }

  async deliver(
    { replica, folder, names, evidence, records }: ClosedSegment,
    signal: AbortSignal,
  ): Promise<number> {
    const start = `${this.#options.prefix}${replica}/`;
    for (const [index, name] of names.entries()) {
      const file = await hashed(folder, name, signal);
      // Retention may have removed the segment, or somebody a file that was set aside.
      if (file === undefined && index === 0) return records;
      if (file !== undefined) await this.#put(`${start}${file.name}`, file, false, signal);
    }
    for (const name of evidence) {
      const file = await hashed(folder, name, signal);
      if (file !== undefined) await this.#put(`${start}${name}`, file, true, signal);
    }
    return 0;
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }

  /** Puts a file, unless all of it is there. `grows`: its object is replaced if that is the beginning of the file. */
  async #put(key: string, file: HashedFile, grows: boolean, signal: AbortSignal): Promise<void> {
    // Services like Ceph's ignore If-None-Match in a bucket with versions.
    const found = await this.#call('HEAD', key, { headers: CHECKSUM_WANTED, signal });
    if (found.statusCode !== 200) return this.#send(key, file, IF_NEW, signal);
    const size = Number(found.headers['content-length']);
    if (!grows || !(size < file.size)) return this.#verify(key, file, signal);
    // An attacker who changes the file of the gateway must not hide the heads in the bucket.
    const beginning = await hashOf(file.path, size, signal);
    if ((await this.#checksumOf(key, found.headers, signal)) !== beginning.toString('base64')) {
      throw this.#failed(key, OTHER_OBJECT);
    }
    await this.#send(key, file, {}, signal);
  }

  /** @throws Error unless the receiver has the file then, with a lock if one is configured */
  async #send(
    key: string,
    { path, size, sha256 }: HashedFile,
    conditions: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<void> {
    const { lock } = this.#options;
    const until = lock && new Date(Date.now() + lock.keep);
    const headers = {
      'content-length': String(size),
      'content-type': 'application/octet-stream',
      ...conditions,
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
    const head = await this.#call('HEAD', key, { headers: CHECKSUM_WANTED, signal });
    if (head.statusCode !== 200) throw this.#refused(key, head.statusCode, '');
    const known = await this.#checksumOf(key, head.headers, signal);
    if (Number(head.headers['content-length']) !== size || known !== sha256.toString('base64')) {
      throw this.#failed(key, OTHER_OBJECT);
    }
    const mode = head.headers['x-amz-object-lock-mode'];
    if (this.#options.lock !== undefined && mode === undefined) throw this.#failed(key, NO_LOCK);
  }

  /** SHA-256 of an object in base64. A receiver that stores no checksum has to send the object. */
  async #checksumOf(
    key: string,
    { 'x-amz-checksum-sha256': checksum }: Dispatcher.ResponseData['headers'],
    signal: AbortSignal,
  ): Promise<string> {
    if (checksum !== undefined) return String(checksum);
    const { statusCode, body } = await this.#request('GET', key, { signal });
    const hash = createHash('sha256');
    for await (const chunk of body) hash.update(chunk as Buffer);
    if (statusCode !== 200) throw this.#refused(key, statusCode, '');
    return hash.digest('base64');
  }

  async #call(method: 'PUT' | 'HEAD', key: string, call: Call) {
    const { statusCode, headers, body } = await this.#request(method, key, call);
    const wait = askedWait({ statusCode, headers });
    let text = '';
    for await (const chunk of body)
      if (text.length < LONGEST_ERROR) text += (chunk as Buffer).toString('latin1');
    if (wait !== undefined) throw new RetryLater(this.#refused(key, statusCode, text).message, wait);
    return { statusCode, headers, error: text };
  }

  async #request(
    method: 'PUT' | 'HEAD' | 'GET',
    key: string,
    { headers = {}, body, sha256, signal }: Call,
  ): Promise<Dispatcher.ResponseData> {
    const signed = await this.#sign(method, key, {
      ...headers,
      'x-amz-content-sha256': sha256?.toString('hex') ?? EMPTY_SHA256,
    });
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

  async #sign(method: string, key: string, headers: Readonly<Record<string, string>>) {
    const { region, accessKeyId, secretAccessKey, sessionToken } = this.#options;
    try {
      return await new AwsV4Signer({
        method,
        url: this.#urlOf(key),
        headers,
        service: 's3',
        region,
        accessKeyId: accessKeyId.reveal(),
        secretAccessKey: secretAccessKey.reveal(),
        ...(sessionToken && { sessionToken: sessionToken.reveal() }),
      }).sign();
    } catch {
      // The error quotes an access key or a session token that a header field cannot have.
      throw this.#failed(key, NOT_SIGNED);
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
      // A file with heads may grow meanwhile.
      await using handle = await openRegular(path);
      const { size } = await handle.stat();
      return { path, name: candidate, size, sha256: await hashOf(path, size, signal) };
    } catch (error) {
      ignoreAbsent(error);
    }
  }
  return undefined;
}

/** SHA-256 of the first bytes of a file. */
async function hashOf(path: string, size: number, signal: AbortSignal): Promise<Buffer> {
  const hash = createHash('sha256');
  if (size === 0) return hash.digest();
  const handle = await openRegular(path);
  const stream = handle.createReadStream({ start: 0, end: size - 1, signal });
  for await (const chunk of stream) hash.update(chunk as Buffer);
  return hash.digest();
}
