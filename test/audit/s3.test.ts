import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { S3Delivery } from '../../src/audit/shipping/s3.ts';
import { Secret } from '../../src/base/secret.ts';
import { useFolders } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';

const folder = useFolders();
const NAME = '000000000001.jsonl';

test.each([
  ['an access key', { accessKeyId: new Secret('[default]\naws_secret_access_key = marked') }],
  ['a session token', { sessionToken: new Secret('marked\ntoken') }],
  ['a session token with typographic quotes', { sessionToken: new Secret('“marked”') }],
])('the error of a delivery with %s that no header field can have does not quote it', async (_name, keys) => {
  const delivery = new S3Delivery({
    kind: 's3',
    name: 'archive',
    timeout: 60_000,
    bucket: 'archive',
    region: 'eu-central-1',
    endpoint: 'http://127.0.0.1:1',
    pathStyle: true,
    prefix: '',
    accessKeyId: new Secret('A'),
    secretAccessKey: new Secret('s'),
    sessionToken: undefined,
    lock: undefined,
    tls: undefined,
    ...keys,
  });
  closing.push(() => delivery.close());
  const path = await folder();
  await writeFile(join(path, NAME), 'x\n');
  const segment = { replica: 'r1', folder: path, names: [NAME], evidence: [], records: 1 };
  const error = await delivery.deliver(segment, new AbortController().signal).catch((thrown) => thrown);
  expect(error).toEqual(
    new Error(
      `archive/r1/${NAME}: the request cannot be signed: the access key or the session token is malformed`,
    ),
  );
  expect(error.cause).toBeUndefined();
});
