import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { readSetup } from '../../src/setup/setup.ts';
import { createCertificates } from '../../src/simulator/certificates.ts';
import { served } from '../config/issue-lines.ts';
import { withMore } from '../config/texts.ts';
import { useFolders } from '../support/audit-log.ts';
import { makeClientCertificate } from '../support/issued-certificates.ts';
import { gateway } from '../support/program.ts';

const environment = { U: 'me', P: 'hunter2', K: 'hunter3' };
const FILES = 'certFile: cert.pem, keyFile: key.pem';

const makeFolder = useFolders();
let folder: string;
beforeEach(async () => {
  folder = await makeFolder();
});

async function configFile(...lines: string[]): Promise<string> {
  const file = join(folder, 'gateway.yaml');
  await writeFile(file, `${served(withMore(...lines))}\n`);
  return file;
}

async function keep(texts: { certificate?: string; key?: string }): Promise<void> {
  if (texts.certificate !== undefined) await writeFile(join(folder, 'cert.pem'), texts.certificate);
  if (texts.key !== undefined) await writeFile(join(folder, 'key.pem'), texts.key, { mode: 0o600 });
}

/** Output of `check` without the name of the file. */
async function check(...lines: string[]): Promise<string> {
  const file = await configFile(...lines);
  const { stdout } = await gateway(['check', '--config', file], environment);
  expect(stdout).not.toMatch(/hunter|PRIVATE/);
  return stdout.replaceAll(`${file}:`, '').replaceAll(`${folder}/`, '').trimEnd();
}

test('a client certificate is read with its key, encrypted or not', async () => {
  for (const passphrase of [undefined, 'hunter3']) {
    const { key, certificate } = makeClientCertificate(passphrase);
    await keep({ key, certificate });
    const secret = passphrase === undefined ? '' : ', keyPassphrase: { env: K }';
    const file = await configFile(`tls: { ${FILES}${secret} }`);
    const { files } = await readSetup(file, { environment });
    const read = files.get('d')?.clientCertificate;
    expect(read?.chain).toBe(certificate);
    expect(read?.key.reveal()).toMatch(/^-----BEGIN PRIVATE KEY-----\n/);
    expect(JSON.stringify([...files])).not.toContain('PRIVATE');
  }
});

describe('what is wrong with a client certificate is a line with its place', () => {
  test('no files', async () => {
    expect(await check(`tls: { ${FILES} }`)).toBe(
      '7:22 deployments.d.tls.certFile: cert.pem does not exist: create it, or name another file',
    );
  });

  test('no certificate', async () => {
    await keep({ certificate: 'hunter4', key: '' });
    expect(await check(`tls: { ${FILES} }`)).toBe(
      '7:22 deployments.d.tls.certFile: cert.pem holds no certificate: name a readable file in PEM form',
    );
  });

  test('a key that others can read', async () => {
    await keep(makeClientCertificate());
    await chmod(join(folder, 'key.pem'), 0o644);
    expect(await check(`tls: { ${FILES} }`)).toBe(
      '7:41 deployments.d.tls.keyFile: key.pem can be read by others: run chmod 600 on it, or write { file: NAME, readableByOthers: true }',
    );
    expect(
      await check('tls: { certFile: cert.pem, keyFile: { file: key.pem, readableByOthers: true } }'),
    ).toBe(' ok — 1 deployment, 1 credential');
  });

  test('a key of another certificate', async () => {
    await keep({ ...makeClientCertificate(), key: makeClientCertificate().key });
    expect(await check(`tls: { ${FILES} }`)).toBe(
      '7:41 deployments.d.tls.keyFile: key.pem is not the key of the first certificate in cert.pem: name the two that belong together',
    );
  });

  test('no key', async () => {
    await keep({ ...makeClientCertificate(), key: 'hunter4' });
    expect(await check(`tls: { ${FILES} }`)).toBe(
      '7:41 deployments.d.tls.keyFile: key.pem holds no private key in PEM form: name a file that does',
    );
  });

  test('a key whose passphrase is not given, or another one', async () => {
    await keep(makeClientCertificate('hunter4'));
    expect(await check(`tls: { ${FILES} }`)).toBe(
      '7:41 deployments.d.tls.keyFile: key.pem is encrypted: give its passphrase in keyPassphrase',
    );
    expect(await check(`tls: { ${FILES}, keyPassphrase: { env: K } }`)).toBe(
      '7:41 deployments.d.tls.keyFile: key.pem is not opened by keyPassphrase: correct that, or name another file',
    );
  });

  test('a passphrase that is not there', async () => {
    await keep(makeClientCertificate('hunter4'));
    expect(await check(`tls: { ${FILES}, keyPassphrase: { env: NOT_SET } }`)).toBe(
      '7:65 deployments.d.tls.keyPassphrase: the environment variable NOT_SET is not set: set it for this process',
    );
  });
});

test('the authority of a proxy is read', async () => {
  const proxy = 'egress: { proxy: { url: "https://p:1", caFile: ca.pem } }';
  expect(await check(proxy)).toBe(
    '7:52 deployments.d.egress.proxy.caFile: ca.pem does not exist: create it, or name another file',
  );
  const { ca } = await createCertificates();
  await writeFile(join(folder, 'ca.pem'), ca);
  const { files } = await readSetup(await configFile(proxy), { environment });
  expect([...files]).toEqual([['d', { ca: undefined, clientCertificate: undefined, proxyCa: ca }]]);
});

test('one pin alone, and a passphrase in the configuration, are ok with warnings', async () => {
  await keep(makeClientCertificate('hunter4'));
  const pin = `"${'A'.repeat(43)}="`;
  expect(
    await check(
      'tls:',
      `  pinSha256: [${pin}]`,
      `  certFile: cert.pem`,
      '  keyFile: key.pem',
      '  keyPassphrase: { value: hunter4 }',
    ),
  ).toBe(
    [
      '11:22 deployments.d.tls.keyPassphrase: is written in the configuration itself: use env, file or sealed (warning)',
      '8:18 deployments.d.tls.pinSha256: has one pin: on the day that the upstream changes its key nothing gets through; add the pin of the next key, or of another authority (warning)',
      ' ok — 1 deployment, 1 credential',
    ].join('\n'),
  );
});
