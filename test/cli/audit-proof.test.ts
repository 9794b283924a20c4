import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { served } from '../config/issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { AUDIT_KEY, openTestAudit, recordAccess, useFolders } from '../support/audit-log.ts';
import { gateway } from '../support/program.ts';

const folder = useFolders();

/** A log with signed heads, of which an auditor gets a copy and the public key. */
async function place() {
  const directory = await folder();
  const [config, signing, log] = ['gateway.yaml', 'signing', 'log'].map((name) => join(directory, name)) as [
    string,
    string,
    string,
  ];
  expect((await gateway(['audit', 'key', 'new', '--out', signing])).status).toBe(0);
  await writeFile(join(directory, 'key'), AUDIT_KEY, { mode: 0o600 });
  const audit = '{ directory: log, keyFile: key, signingKeyFile: signing }';
  await writeFile(config, served(`${CREDENTIALS}\n${DEPLOYMENTS}\naudit: ${audit}\n`));
  const signingKey = new Secret(await readFile(signing, 'utf8'));
  const opened = await openTestAudit(log, { signingKey });
  for (const requestId of ['q1', 'q2', 'q3']) await recordAccess(opened.audit, { requestId });
  await opened.audit.close('stop');
  return { directory, config, signing, publicKey: `${signing}.pub`, log };
}

test('audit key new makes a private key for this user alone, and replaces none', async () => {
  const { directory, signing } = await place();
  expect((await stat(signing)).mode & 0o777).toBe(0o600);
  const { status, stderr } = await gateway(['audit', 'key', 'new', '--out', signing]);
  expect([status, stderr]).toEqual([1, expect.stringContaining('signing.pub exists: name another file')]);
  expect((await gateway(['audit', 'key', 'new', '--out', join(directory, 'no', 'key')])).status).toBe(1);
  // Without its public half there is none that looks like it, either.
  await rm(`${signing}.pub`);
  const again = await gateway(['audit', 'key', 'new', '--out', signing]);
  expect([again.status, again.stderr]).toEqual([
    1,
    expect.stringContaining('signing exists: name another file'),
  ]);
  await expect(stat(`${signing}.pub`)).rejects.toThrow('ENOENT');
});

test('check accepts the key, and says how to make one', async () => {
  const { config, signing } = await place();
  const check = () => gateway(['check', '--config', config], { U: 'user', P: 'password' });
  expect((await check()).status).toBe(0);
  await writeFile(signing, 'x');
  expect((await check()).stdout).toMatch(
    /audit\.signingKeyFile: .*signing does not hold an Ed25519 private key in PEM form: name the file of the key, or move this one away and make one with digest-gateway audit key new --out /,
  );
  await writeFile(
    config,
    (await readFile(config, 'utf8')).replace('signingKeyFile: signing', 'signingKeyFile: none'),
  );
  expect((await check()).stdout).toMatch(/none does not exist: make it with/);
});

test('audit verify --public-key needs a copy of the log and no secret', async () => {
  const { config, publicKey, log, directory } = await place();
  const verify = (...args: string[]) => gateway(['audit', 'verify', '--public-key', publicKey, ...args]);
  const { status, stdout } = await verify('--directory', log);
  expect([status, stdout]).toEqual([
    0,
    expect.stringMatching(
      /: ok — 1 replica, 4 records, 6 seals, 1 segment, 2 signed heads over 4 records\n$/,
    ),
  ]);
  await writeFile(join(directory, 'key'), 'unreadable');
  expect((await verify('--config', config)).status).toBe(0);
  const file = join(log, 'r1', '000000000001.jsonl');
  await writeFile(file, (await readFile(file, 'utf8')).replace('"q2"', '"q9"'));
  const altered = await verify('--directory', log);
  expect([altered.status, altered.stdout]).toEqual([
    1,
    expect.stringContaining('r1/000000000001.jsonl:6: line 6 was changed'),
  ]);
});

test.each([
  [['--directory', 'log'], 'Give --config, or --directory with --public-key'],
  [['--config', 'x', '--directory', 'log'], '--directory needs --public-key'],
  [['--public-key', 'PUBLIC'], 'give either --config or --directory'],
  [['--public-key', 'PUBLIC', '--directory', 'log', '--key', 'x'], 'give one of both'],
  [['--public-key', 'PRIVATE', '--directory', 'log'], 'does not hold an Ed25519 public key in PEM form'],
  [['--public-key', 'none', '--directory', 'log'], 'none does not exist'],
])('audit verify %j is refused: %s', async (args, reason) => {
  const { publicKey, signing } = await place();
  const named: Record<string, string> = { PUBLIC: publicKey, PRIVATE: signing };
  const { status, stderr } = await gateway(['audit', 'verify', ...args.map((each) => named[each] ?? each)]);
  expect([status, stderr]).toEqual([2, expect.stringContaining(reason)]);
});

test('audit prove prints a proof that audit check-proof accepts', async () => {
  const { directory, config, publicKey, log } = await place();
  const proof = join(directory, 'q2.proof');
  const { status, stdout } = await gateway(['audit', 'prove', 'q2', '--config', config]);
  expect(status).toBe(0);
  expect(stdout).toBe((await gateway(['audit', 'prove', 'q2', '--directory', log])).stdout);
  // Hashes and signatures may have these letters, but no quote.
  expect(stdout).not.toMatch(/"q1|"q3/);
  await writeFile(proof, stdout);
  const checkProof = () => gateway(['audit', 'check-proof', proof, '--public-key', publicKey]);
  const accepted = await checkProof();
  expect([accepted.status, accepted.stdout]).toEqual([
    0,
    expect.stringMatching(
      /^\{"seq":2,.*\}\n.*q2\.proof: ok — 1 record of request q2 in digest-gateway\/r1\/1\n$/,
    ),
  ]);
  await writeFile(proof, stdout.replace('\\"status\\":200', '\\"status\\":404'));
  const refused = await checkProof();
  expect([refused.status, refused.stdout]).toEqual([
    1,
    expect.stringContaining('REFUSED — it has a record that is not in digest-gateway/r1/1 as its proof says'),
  ]);
});

test('audit verify checks cosignatures with the public keys of gateway and witness only', async () => {
  const { directory, publicKey, log } = await place();
  const verify = (...args: string[]) => gateway(['audit', 'verify', '--directory', log, ...args]);
  const keys = ['--public-key', publicKey, '--witness-key', publicKey];
  const none = await verify(...keys);
  expect([none.status, none.stdout]).toEqual([
    1,
    expect.stringContaining('no witness has seen it [cosignature-missing]'),
  ]);
  const wrong = [
    [
      ['--witness-key', publicKey, '--config', join(directory, 'gateway.yaml')],
      /--directory|--witness-key needs --public-key/,
    ],
    [['--public-key', publicKey, '--witness-heads', publicKey], /--witness-heads needs --witness-key/],
    [
      [...keys, '--witness-heads', publicKey],
      /signing\.pub has no head that the witness of --witness-key has cosigned/,
    ],
    [[...keys, '--witness-heads', join(directory, 'none')], /none does not exist/],
    [
      ['--public-key', publicKey, '--witness-key', join(directory, 'key')],
      /key does not hold an Ed25519 public key/,
    ],
  ] as const;
  for (const [args, message] of wrong) {
    const { status, stderr } = await verify(...args);
    expect([status, stderr]).toEqual([2, expect.stringMatching(message)]);
  }
});

test('check says what is wrong with a witness', async () => {
  const { config } = await place();
  const text = await readFile(config, 'utf8');
  const check = async (witness: string, audit = text) => {
    await writeFile(
      config,
      audit.replace('signingKeyFile: signing', `signingKeyFile: signing, witness: ${witness}`),
    );
    return gateway(['check', '--config', config], { U: 'user', P: 'password' });
  };
  const key = 'witness.example.org+00000000+BAAA';
  expect((await check(`{ url: 'https://w.example', publicKey: x }`)).stdout).toMatch(
    /audit\.witness\.publicKey: must be a key as NAME\+ID/,
  );
  expect((await check(`{ url: 'https://w.example', publicKey: ${key} }`)).stdout).toMatch(
    /audit\.witness\.publicKey: does not hold a key for Ed25519 cosignatures/,
  );
  expect((await check(`{ url: w, publicKey: ${key} }`)).stdout).toMatch(
    /audit\.witness\.url: must be the http/,
  );
  await writeFile(
    config,
    text.replace('signingKeyFile: signing', `witness: { url: 'http://w', publicKey: ${key} }`),
  );
  expect((await gateway(['check', '--config', config])).stdout).toMatch(
    /audit\.signingKeyFile: is missing: a witness cosigns signed heads/,
  );
});

test('audit prove says why there is no proof', async () => {
  const { log } = await place();
  const { status, stderr } = await gateway(['audit', 'prove', 'q9', '--directory', log]);
  expect([status, stderr]).toEqual([
    1,
    expect.stringMatching(
      /^the audit log in \/.* has no record of request q9; audit verify shows whether records are missing$/m,
    ),
  ]);
  const numbers = await gateway(['audit', 'prove', 'q1', '--directory', log, '--record', '0']);
  expect([numbers.status, numbers.stderr]).toEqual([
    2,
    expect.stringContaining('A record has a number from 1 on'),
  ]);
  const replica = await gateway(['audit', 'prove', 'q1', '--directory', log, '--replica', 'r2']);
  expect([replica.status, replica.stderr]).toEqual([2, expect.stringContaining('has no log of r2')]);
});

test('audit check-proof names a file that it cannot read', async () => {
  const { directory, publicKey } = await place();
  const { status, stderr } = await gateway(['audit', 'check-proof', directory, '--public-key', publicKey]);
  expect([status, stderr]).toEqual([2, `${directory} is a folder: name a file\n`]);
});

test('no more is read of a file that never ends than a proof or a key may have', async () => {
  const { publicKey } = await place();
  const ofProof = await gateway(['audit', 'check-proof', '/dev/zero', '--public-key', publicKey]);
  expect(ofProof).toMatchObject({
    status: 2,
    stderr: '/dev/zero cannot be read: it is too large for a proof\n',
  });
  const ofKey = await gateway(['audit', 'check-proof', publicKey, '--public-key', '/dev/zero']);
  expect(ofKey).toMatchObject({ status: 2, stderr: '/dev/zero cannot be read: it is too large\n' });
});
