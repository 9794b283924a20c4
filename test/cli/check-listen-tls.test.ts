import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, expect, test } from '@jest/globals';
import { formatPath } from '../../src/config/issues.ts';
import { writtenPath } from '../../src/config/listen.ts';
import { readListenTls } from '../../src/setup/listen-tls.ts';
import { CLIENTS, CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { useFolders } from '../support/audit-log.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { gateway } from '../support/program.ts';

const authority = await createTestAuthority();
const second = await createTestAuthority('CN=Second CA');
const [pair, other, expired, early] = await Promise.all([
  authority.server(),
  authority.server(),
  authority.server({ notBefore: Date.UTC(2020), notAfter: Date.UTC(2021) }),
  authority.server({ notBefore: Date.UTC(2199), notAfter: Date.UTC(2200) }),
]);

const makeFolder = useFolders();
let folder: string;
beforeEach(async () => {
  folder = await makeFolder();
});

/** Issues that `readListenTls` finds, each with the name of its file. */
async function issuesOf(
  cert: string | undefined,
  key: string | undefined,
  ca = authority.ca,
  crl?: string,
): Promise<string[]> {
  const files = { certFile: 'cert.pem', keyFile: 'key.pem', clientCaFile: 'ca.pem', crlFile: 'crl.pem' };
  const contents = { 'cert.pem': cert, 'key.pem': key, 'ca.pem': ca, 'crl.pem': crl };
  for (const [name, content] of Object.entries(contents)) {
    if (content !== undefined) await writeFile(join(folder, name), content, { mode: 0o600 });
  }
  const at = (name: keyof typeof files) => join(folder, files[name]);
  const section = {
    certFile: at('certFile'),
    keyFile: { file: at('keyFile'), readableByOthers: false },
    clientCaFile: at('clientCaFile'),
    ...(crl !== undefined && { crlFile: at('crlFile') }),
    minVersion: 'TLSv1.2',
  } as const;
  const { issues, warnings } = await readListenTls(section, 0, process.geteuid?.());
  return [...issues, ...warnings].map(({ path, message }) =>
    `${formatPath(writtenPath(path, false))}: ${message}`.replaceAll(`${folder}/`, ''),
  );
}

const NO_PEM = 'name a readable file in PEM form';

test.each([
  ['a pair', pair.cert, pair.key, undefined, []],
  ['a chain', `${pair.cert}\n${authority.ca}`, pair.key, undefined, []],
  [
    'two halves of pairs',
    pair.cert,
    other.key,
    undefined,
    ['listen.tls.keyFile: is not the key of the first certificate in certFile: name a pair'],
  ],
  [
    'each in the place of the other',
    pair.key,
    pair.cert,
    undefined,
    [
      `listen.tls.certFile: cert.pem holds no certificate: ${NO_PEM}`,
      `listen.tls.keyFile: key.pem holds no private key without passphrase: ${NO_PEM}`,
    ],
  ],
  [
    'nothing',
    undefined,
    undefined,
    'none',
    [
      'listen.tls.certFile: cert.pem does not exist: create it, or name another file',
      `listen.tls.clientCaFile: ca.pem holds no certificate: ${NO_PEM}`,
      'listen.tls.keyFile: key.pem does not exist: create it, or name another file',
    ],
  ],
  [
    'a certificate of the past',
    expired.cert,
    expired.key,
    undefined,
    ['listen.tls.certFile: expired at 2021-01-01T00:00:00.000Z: replace it'],
  ],
  [
    'a certificate of the future',
    early.cert,
    early.key,
    undefined,
    [
      'listen.tls.certFile: is not valid before 2199-01-01T00:00:00.000Z: replace it, or check the clock of this host',
    ],
  ],
])('%s', async (_title, cert, key, ca, wanted) => {
  expect((await issuesOf(cert, key, ca)).sort()).toEqual(wanted);
});

test('check reads the files, and says at which line they are named', async () => {
  const file = join(folder, 'gateway.yaml');
  await writeFile(join(folder, 'cert.pem'), pair.cert);
  await writeFile(join(folder, 'key.pem'), other.key, { mode: 0o600 });
  const tls = 'listen: { tls: { certFile: cert.pem, keyFile: key.pem } }';
  await writeFile(file, `${tls}\n${CREDENTIALS}\n${DEPLOYMENTS}\n${CLIENTS}\n`);
  const environment = { U: 'me', P: 'hunter2' };
  const { status, stdout } = await gateway(['check', '--config', file], environment);
  expect([status, stdout]).toEqual([
    2,
    `${file}:1:47 listen.tls.keyFile: is not the key of the first certificate in certFile: name a pair\n`,
  ]);
  await writeFile(join(folder, 'key.pem'), pair.key);
  expect((await gateway(['check', '--config', file], environment)).status).toBe(0);
});

test.each([
  ['a list', authority.ca, () => authority.revoke([]), []],
  [
    'lists of several authorities in one file',
    `${authority.ca}${second.ca}`,
    async () => `${await authority.revoke([])}\n${await second.revoke([])}`,
    [],
  ],
  [
    'an authority without a list',
    `${authority.ca}\n${second.ca}`,
    () => authority.revoke([]),
    ['listen.tls.crlFile: has no list of CN=Second CA, all of whose certificates would be refused: add it'],
  ],
  [
    'a list that has expired',
    authority.ca,
    () => authority.revoke([], Date.UTC(2026, 0, 2)),
    [
      'listen.tls.crlFile: has a list that expired at 2026-01-02T00:00:00.000Z, so that all certificates of its authority are refused: replace it',
    ],
  ],
  [
    'no list',
    authority.ca,
    async () => authority.ca,
    [`listen.tls.crlFile: crl.pem holds no list of revoked certificates: ${NO_PEM}`],
  ],
  [
    'a list that is damaged',
    authority.ca,
    async () => (await authority.revoke([])).replace(/-----\n.{40}/, '-----\n'),
    [`listen.tls.crlFile: crl.pem holds no list of revoked certificates: ${NO_PEM}`],
  ],
] as const)('crlFile with %s', async (_title, ca, list, issues) => {
  expect(await issuesOf(pair.cert, pair.key, ca, await list())).toEqual(issues);
});
