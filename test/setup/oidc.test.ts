import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { openIdProvider } from '../../src/app/deployments.ts';
import { readSetup } from '../../src/setup/setup.ts';
import { fromTransfer, toTransfer } from '../../src/setup/transfer.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'setup-oidc-'));
});
afterEach(() => rm(folder, { recursive: true }));

async function read(secret: string, environment: Record<string, string> = {}) {
  const file = join(folder, 'c.yaml');
  await writeFile(
    file,
    `credentials: { a: { username: { env: U }, password: { env: P } } }
anonymous: true
deployments: { d: { baseUrl: "https://a.example", match: { pathPrefix: /a/ }, credential: a } }
control:
  oidc:
    issuer: https://login.example
    clientId: console
    publicUrl: https://console.example
    roles: { operator: [ops] }
    ${secret}
`,
  );
  return readSetup(file, { environment: { U: 'u', P: 'p', ...environment } });
}

test('secret and authorities of the provider are read with the configuration, or the issue is at their key', async () => {
  const provider = openIdProvider(await read('clientSecret: { env: S }', { S: 'a secret' }));
  expect([provider?.issuer, provider?.clientSecret?.reveal()]).toEqual(['https://login.example', 'a secret']);
  await expect(read('clientSecret: { env: S }')).rejects.toThrow(
    'control.oidc.clientSecret: the environment variable S is not set',
  );
  await expect(read('caFile: none.pem')).rejects.toThrow(/control\.oidc\.caFile: .*none\.pem does not exist/);
});

test('a secret in the configuration itself is a warning', async () => {
  const { warnings } = await read('clientSecret: { value: "a secret" }');
  expect(warnings).toEqual([expect.objectContaining({ path: 'control.oidc.clientSecret' })]);
});

test('a worker gets no secret of the provider', async () => {
  const setup = await read('clientSecret: { value: "the secret of the console" }');
  const { rest } = toTransfer(setup);
  expect(Buffer.concat(rest).includes('the secret of the console')).toBe(false);
  expect((await fromTransfer(toTransfer(setup))).oidc).toBeUndefined();
});
