import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AwsClient } from 'aws4fetch';
import type { S3Options } from '../../../src/audit/shipping/s3.ts';
import { Secret } from '../../../src/base/secret.ts';
import { freePort, type ServerProcess, startServer } from '../../support/server-process.ts';
import { SINK } from '../../support/sink-scene.ts';
import { needPackages } from '../../support/system-packages.ts';

const SCRIPT = fileURLToPath(new URL('s3-server.sh', import.meta.url));
export const ACCESS = { accessKeyId: 'test-access-key', secretAccessKey: 'test-secret-of-s3' };

/** Ceph's S3 gateway from the system's packages. */
export interface S3Server {
  readonly origin: string;
  readonly process: ServerProcess;
  /** Creates a bucket, with object lock unless it says otherwise. */
  bucket(name: string, lock?: boolean): Promise<Bucket>;
  close(): Promise<void>;
}

export interface Bucket {
  readonly name: string;
  keys(): Promise<string[]>;
  head(key: string): Promise<Headers>;
  put(key: string, content: string): Promise<void>;
  /** Tries to remove a version of an object; resolves to the status. */
  remove(key: string, version: string): Promise<number>;
  /** Writes all objects below the prefix to a folder. */
  download(prefix: string, folder: string): Promise<void>;
}

export async function startS3(): Promise<S3Server> {
  needPackages('radosgw', 'ceph-mon', 'ceph-osd', 'ceph-common');
  const monitor = await freePort();
  const { accessKeyId, secretAccessKey } = ACCESS;
  const process = await startServer({
    answers: ({ port }) =>
      fetch(`http://127.0.0.1:${port}/`).then(
        ({ ok }) => ok,
        () => false,
      ),
    prepare: async ({ folder, port }) => [
      'sh',
      SCRIPT,
      folder,
      String(monitor),
      String(port),
      accessKeyId,
      secretAccessKey,
    ],
  });
  const origin = `http://127.0.0.1:${process.place.port}`;
  const client = new AwsClient({ ...ACCESS, service: 's3', region: 'default', retries: 0 });
  const call = async (path: string, init: RequestInit = {}): Promise<Response> => {
    const response = await client.fetch(`${origin}/${path}`, init);
    if (!response.ok) throw new Error(`${init.method} ${path}: ${response.status} ${await response.text()}`);
    return response;
  };
  return {
    origin,
    process,
    async bucket(name, lock = true) {
      const headers: Record<string, string> = lock ? { 'x-amz-bucket-object-lock-enabled': 'true' } : {};
      await call(name, { method: 'PUT', headers });
      const keys = async (): Promise<string[]> => {
        const list = await (await call(`${name}?list-type=2`)).text();
        return Array.from(list.matchAll(/<Key>([^<]+)<\/Key>/g), ([, key = '']) => key).sort();
      };
      const pathOf = (key: string): string => `${name}/${key.split('/').map(encodeURIComponent).join('/')}`;
      return {
        name,
        keys,
        head: async (key) => (await call(pathOf(key), { method: 'HEAD' })).headers,
        put: async (key, content) => void (await call(pathOf(key), { method: 'PUT', body: content })),
        async remove(key, version) {
          const url = `${origin}/${pathOf(key)}?versionId=${version}`;
          return (await client.fetch(url, { method: 'DELETE' })).status;
        },
        async download(prefix, folder) {
          for (const key of (await keys()).filter((each) => each.startsWith(prefix))) {
            const file = join(folder, key.slice(prefix.length));
            await mkdir(dirname(file), { recursive: true });
            await writeFile(file, Buffer.from(await (await call(pathOf(key))).arrayBuffer()));
          }
        },
      };
    },
    close: () => process.close(),
  };
}

/** A sink to a bucket of that server. */
export function s3To(
  { origin }: { readonly origin: string },
  bucket: string,
  change: Partial<S3Options> = {},
): S3Options {
  return {
    kind: 's3',
    name: SINK,
    timeout: 60_000,
    bucket,
    region: 'default',
    endpoint: origin,
    pathStyle: true,
    prefix: 'audit/',
    accessKeyId: new Secret(ACCESS.accessKeyId),
    secretAccessKey: new Secret(ACCESS.secretAccessKey),
    sessionToken: undefined,
    lock: { mode: 'compliance', keep: 3_600_000 },
    tls: undefined,
    ...change,
  };
}
