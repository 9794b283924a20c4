import { spawn } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { chmod, readdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { connect as connectPlain, type Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { connect } from 'node:tls';
import { expect, test } from '@jest/globals';
import { request } from 'undici';
import { cosignatureOf, witnessKey } from '../../src/audit/checkpoint.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { gateway, PROGRAM } from '../support/program.ts';
import { RawClient } from '../support/raw-client.ts';
import { newSigningKey } from '../support/signing-key.ts';
import { until } from '../support/until.ts';
import { MemoryLog, startTestWitness, WITNESS_NAME } from '../support/witness.ts';

const key = newSigningKey();
const log = new MemoryLog(
  key,
  Array.from({ length: 50 }, (_, index) => `record ${index}`),
);
const logs = { 'gateway-1': key.publicPem };

test('cosigns heads that continue the last one, and says when', async () => {
  await using witness = await startTestWitness(logs);
  const before = Math.floor(Date.now() / 1000) * 1000;
  for (const [old, size] of [
    [0, 8],
    [8, 8],
    [8, 23],
    [23, 50],
  ] as const) {
    const { status, text } = await witness.add(log.request(old, size));
    expect([old, size, status]).toEqual([old, size, 200]);
    const cosignature = cosignatureOf(log.cosigned(size, text), [witnessKey(witness.publicKey)]);
    expect(cosignature?.name).toBe(WITNESS_NAME);
    expect(cosignature?.time).toBeGreaterThanOrEqual(before);
    expect(cosignature?.time).toBeLessThanOrEqual(Date.now());
  }
  const [line = '', ...others] = (await witness.checkpoints()).split('\n');
  expect([JSON.parse(line).checkpoint, others]).toEqual([expect.stringContaining(log.note(50)), ['']]);
});

test('a cosignature is of its key, name, time and head alone', async () => {
  await using witness = await startTestWitness(logs);
  const { text } = await witness.add(log.request(0, 8));
  const checkpoint = log.cosigned(8, text);
  const own = witnessKey(witness.publicKey);
  expect(cosignatureOf(checkpoint, [own])).toBeDefined();
  expect(cosignatureOf(checkpoint, [witnessKey(witness.key.publicPem)])).toBeDefined();
  expect(cosignatureOf(checkpoint, [witnessKey(newSigningKey().publicPem)])).toBeUndefined();
  expect(cosignatureOf(checkpoint, [{ ...own, name: 'other.example.org' }])).toBeUndefined();
  expect(cosignatureOf(log.cosigned(9, text), [own])).toBeUndefined();
  const [signature] = checkpoint.signatures.filter(({ name }) => name === WITNESS_NAME);
  for (let at = 0; at < (signature?.bytes.length ?? 0); at += 1) {
    const bytes = Buffer.from(signature?.bytes ?? '');
    bytes[at] = (bytes[at] ?? 0) ^ 1;
    const changed = { ...checkpoint, signatures: [{ name: WITNESS_NAME, bytes }] };
    expect([at, cosignatureOf(changed, [own])]).toEqual([at, undefined]);
  }
});

test('a key of a witness has one form', async () => {
  await using witness = await startTestWitness(logs);
  const { publicKey } = witness;
  expect(witnessKey(`${publicKey}\n`).name).toBe(WITNESS_NAME);
  for (const other of [
    '',
    'x',
    publicKey.replace('witness', 'other'),
    publicKey.slice(0, -4),
    key.privatePem,
  ]) {
    expect(() => witnessKey(other)).toThrow(RangeError);
  }
});

test('refuses as the protocol says, and then still knows the last head', async () => {
  await using witness = await startTestWitness(logs);
  expect((await witness.add(log.request(0, 20))).status).toBe(200);
  const other = new MemoryLog(newSigningKey(), ['a', 'b']);
  const unknown = new MemoryLog(key, ['a', 'b'], 'gateway-2');
  const fork = log.forkedAt(10);
  const conflict = { status: 409, type: 'text/x.tlog.size', text: '20\n' };
  expect(await witness.add(log.request(0, 30))).toEqual(conflict);
  expect(await witness.add(log.request(19, 30))).toEqual(conflict);
  // A log that was cut off, and one that was written anew.
  expect(await witness.add(log.request(10, 12))).toEqual(conflict);
  expect(await witness.add(fork.request(20, 20))).toEqual(conflict);
  const refused = { type: 'text/plain; charset=utf-8', text: expect.stringMatching(/^[^\n]+\n$/) };
  expect(await witness.add(fork.request(20, 30))).toEqual({ ...refused, status: 422 });
  expect(await witness.add(other.request(0, 2))).toEqual({ ...refused, status: 403 });
  expect(await witness.add(unknown.request(0, 2))).toEqual({ ...refused, status: 404 });
  expect(await witness.add(log.request(30, 20))).toEqual({ ...refused, status: 400 });
  const [first = '', ...rest] = log.request(20, 30).split('\n');
  const malformed = ['', 'x', 'old 20', ['old 020', ...rest].join('\n'), `x\n${[first, ...rest].join('\n')}`];
  for (const body of malformed) expect((await witness.add(body)).status).toBe(400);
  const hashes = Array.from({ length: 64 }, () => Buffer.alloc(32).toString('base64'));
  expect((await witness.add([first, ...hashes, '', log.note(30)].join('\n'))).status).toBe(400);
  const signature = log.note(30).split('\n').at(-2) ?? '';
  const many = `${log.request(20, 30)}${`${signature}\n`.repeat(16)}`;
  expect((await witness.add(many)).status).toBe(400);
  expect((await witness.add('x'.repeat(17 * 1024))).status).toBe(413);
  const evidence = witness.logged.filter(({ request }) => typeof request === 'string');
  expect(evidence.map(({ reason }) => reason)).toEqual(['other-root', 'inconsistent']);
  expect((await witness.add(log.request(20, 30))).status).toBe(200);
});

test('a head that is sent again is cosigned, and costs no write', async () => {
  await using witness = await startTestWitness(logs);
  await witness.add(log.request(0, 20));
  const state = join(witness.directory, 'state');
  const [name = ''] = (await readdir(state)).filter((each) => each.endsWith('.head'));
  const { ino, mtimeMs } = await stat(join(state, name));
  for (let sent = 0; sent < 3; sent += 1) {
    const { status, text } = await witness.add(log.request(20, 20));
    expect(status).toBe(200);
    expect(cosignatureOf(log.cosigned(20, text), [witnessKey(witness.publicKey)])).toBeDefined();
  }
  expect(await stat(join(state, name))).toMatchObject({ ino, mtimeMs });
});

test('strangers cannot fill its log, and each piece of evidence is logged', async () => {
  await using witness = await startTestWitness(logs);
  await witness.add(log.request(0, 20));
  const fork = log.forkedAt(10);
  const other = new MemoryLog(newSigningKey(), ['a', 'b']);
  for (let sent = 0; sent < 20; sent += 1) {
    for (const body of ['x', other.request(0, 2), log.request(0, 30)]) await witness.add(body);
    await witness.add(fork.request(20, sent % 2 === 0 ? 20 : 30));
  }
  const refused = witness.logged.filter(({ msg }) => msg === 'head refused');
  expect(refused.map(({ reason }) => reason)).toEqual([
    'malformed',
    'not-signed',
    'other-size',
    'other-root',
    'inconsistent',
  ]);
});

test('closes a connection with more than eight pending requests', async () => {
  await using witness = await startTestWitness(logs);
  await witness.add(log.request(0, 20));
  const client = await RawClient.open(Number(new URL(witness.url).port));
  await client.send('GET /checkpoints HTTP/1.1\r\nHost: witness\r\n\r\n'.repeat(200));
  const received = (await client.end()).toString('latin1');
  expect(received.split('HTTP/1.1 200').length - 1).toBeLessThanOrEqual(8);
  expect((await witness.add(log.request(20, 30))).status).toBe(200);
});

test('of requests at once, one is cosigned', async () => {
  await using witness = await startTestWitness(logs);
  const fork = log.forkedAt(0);
  const requests = Array.from({ length: 20 }, (_, index) =>
    (index % 2 === 0 ? log : fork).request(0, 10 + index),
  );
  const results = await Promise.all(requests.map((body) => witness.add(body)));
  expect(results.map(({ status }) => status).sort()).toEqual([200, ...Array(19).fill(409)]);
});

test('a restart knows the last heads, and takes none that somebody changed', async () => {
  await using witness = await startTestWitness(logs);
  await witness.add(log.request(0, 20));
  await witness.restart();
  expect((await witness.add(log.request(0, 30))).text).toBe('20\n');
  expect((await witness.add(log.request(20, 30))).status).toBe(200);
  const state = join(witness.directory, 'state');
  const [name = ''] = (await readdir(state)).filter((each) => each.endsWith('.head'));
  const text = await readFile(join(state, name), 'utf8');
  await writeFile(join(state, name), text.replace('\\n30\\n', '\\n20\\n'));
  await expect(witness.restart()).rejects.toThrow(
    /directory: \S* is not a head that this witness has cosigned: restore it, or /,
  );
  await writeFile(join(state, name), text);
  await witness.restart();
});

test('a state that cannot be stored is not cosigned', async () => {
  await using witness = await startTestWitness(logs);
  await witness.add(log.request(0, 20));
  const state = join(witness.directory, 'state');
  const [name = ''] = (await readdir(state)).filter((each) => each.endsWith('.head'));
  const moved = `${state}.away`;
  await rename(state, moved);
  expect(await witness.add(log.request(20, 30))).toMatchObject({ status: 500, text: 'not stored\n' });
  await rename(moved, state);
  expect(await readFile(join(state, name), 'utf8')).toContain('\\n20\\n');
  expect((await witness.add(log.request(20, 40))).status).toBe(200);
});

test('serves TLS', async () => {
  const authority = await createTestAuthority();
  await using witness = await startTestWitness(logs, { ...(await authority.server()), ca: authority.ca });
  expect(witness.url).toMatch(/^https:/);
  expect((await witness.add(log.request(0, 20))).status).toBe(200);
});

test('uses a certificate that replaces the first one, without a restart', async () => {
  const authority = await createTestAuthority();
  const [first, second] = [await authority.server(), await authority.server()];
  await using witness = await startTestWitness(logs, { ...first, ca: authority.ca });
  const { hostname, port } = new URL(witness.url);
  const served = async (): Promise<string> => {
    const socket = connect({ host: hostname, port: Number(port), ca: authority.ca });
    await once(socket, 'secureConnect');
    const { fingerprint256 } = socket.getPeerCertificate();
    socket.destroy();
    return fingerprint256;
  };
  expect(await served()).toBe(new X509Certificate(first.cert).fingerprint256);
  await writeFile(join(witness.directory, 'cert.key'), second.key);
  await writeFile(join(witness.directory, 'cert.pem'), second.cert);
  await until(() => witness.logged.some(({ msg }) => msg === 'certificate of a listener replaced'));
  expect(await served()).toBe(new X509Certificate(second.cert).fingerprint256);
  expect((await witness.add(log.request(0, 20))).status).toBe(200);
});

test('its metrics have heads, refusals, and size and time of each tree, also after a restart', async () => {
  await using witness = await startTestWitness(logs);
  const before = Math.floor(Date.now() / 1000);
  await witness.add(log.request(0, 20));
  await witness.add(log.request(20, 20));
  await witness.add(log.request(0, 30));
  await witness.add(log.forkedAt(10).request(20, 30));
  const { status, type, text } = await witness.metrics();
  expect([status, type]).toEqual([200, expect.stringContaining('text/plain')]);
  const name = 'digest_gateway_witness';
  const lines = text.split('\n').filter((line) => line.startsWith(name) && !line.endsWith(' 0'));
  const origin = '{origin="digest-gateway/gateway-1/1"}';
  const [time = ''] = lines.filter((line) => line.startsWith(`${name}_head_timestamp_seconds`));
  expect(lines.filter((line) => line !== time)).toEqual([
    `${name}_heads_cosigned_total{log="gateway-1"} 2`,
    `${name}_heads_refused_total{reason="other-size"} 1`,
    `${name}_heads_refused_total{reason="inconsistent"} 1`,
    `${name}_tree_size${origin} 20`,
  ]);
  expect(time).toContain(origin);
  const seconds = Number(time.split(' ').at(-1));
  expect(seconds).toBeGreaterThanOrEqual(before);
  expect(seconds).toBeLessThanOrEqual(Date.now() / 1000);
  expect(text).toContain(`${name}_heads_refused_total{reason="other-root"} 0`);
  await witness.restart();
  const again = (await witness.metrics()).text;
  expect(again).toContain(`${name}_tree_size${origin} 20`);
  expect(again).toContain(`${name}_head_timestamp_seconds${origin} ${Math.floor(seconds)}`);
});

test('its metrics are for this machine, or for who has the token', async () => {
  await using open = await startTestWitness(logs);
  expect((await open.metrics({ host: 'rebound.example' })).status).toBe(421);
  const hash = createHash('sha256').update('the token').digest('hex');
  await using closed = await startTestWitness(logs, undefined, `, tokenSha256: ${hash}`);
  expect((await closed.metrics()).status).toBe(401);
  const statuses = [];
  for (const token of ['the token', ...Array.from({ length: 11 }, () => 'another'), 'the token']) {
    statuses.push((await closed.metrics({ authorization: `Bearer ${token}` })).status);
  }
  expect(new Set(statuses.slice(1, -1))).toEqual(new Set([401, 429]));
  expect([statuses[0], statuses.at(-1)]).toEqual([200, 200]);
});

/** Connects to a witness from this address. */
async function connectFrom(localAddress: string, url: string): Promise<Socket> {
  const socket = connectPlain({ host: '127.0.0.1', port: Number(new URL(url).port), localAddress });
  socket.on('error', () => socket.destroy());
  await once(socket, 'connect');
  return socket;
}

/** The status with which a witness responds to this address; undefined: it closed the connection. */
async function statusFor(localAddress: string, url: string): Promise<string | undefined> {
  const socket = await connectFrom(localAddress, url);
  socket.write('GET /livez HTTP/1.1\r\nhost: w\r\nconnection: close\r\n\r\n');
  let received = '';
  socket.on('data', (chunk) => {
    received += String(chunk);
  });
  // A reset is an error before it is the end.
  await new Promise((resolve) => socket.once('close', resolve));
  return /^HTTP\/1.1 (\d+)/.exec(received)?.[1];
}

test('one address takes neither all requests nor all connections', async () => {
  await using witness = await startTestWitness(logs);
  const { url } = witness;
  const busy = await Promise.all(Array.from({ length: 64 }, () => connectFrom('127.0.0.2', url)));
  for (const socket of busy)
    socket.write('POST /add-checkpoint HTTP/1.1\r\nhost: w\r\ncontent-length: 5\r\n\r\n');
  await until(async () => (await statusFor('127.0.0.2', url)) === '429');
  const idle = await Promise.all(Array.from({ length: 100 }, () => connectFrom('127.0.0.3', url)));
  await until(async () => (await statusFor('127.0.0.3', url)) === undefined);
  expect(await statusFor('127.0.0.4', url)).toBe('200');
  for (const socket of [...busy, ...idle]) socket.destroy();
  for (const address of ['127.0.0.2', '127.0.0.3'])
    await until(async () => (await statusFor(address, url)) === '200');
});

test('one folder has one witness, and settings that cannot be used are named', async () => {
  await using witness = await startTestWitness(logs);
  const file = join(witness.directory, 'witness.yaml');
  const run = async (text: string) => {
    await writeFile(file, text);
    const { status, stderr } = await gateway(['witness', '--config', file]);
    return [status, stderr];
  };
  const text = await readFile(file, 'utf8');
  expect(await run(text)).toEqual([
    2,
    expect.stringMatching(
      /"msg":"[^"]* directory: \S* belongs to another witness that is running: stop that/,
    ),
  ]);
  const shared = join(witness.directory, 'shared.pub');
  await writeFile(shared, '');
  await chmod(shared, 0o666);
  const wrong = [
    [text.replace('keyFile: key', 'keyFile: none'), /keyFile: .*none does not exist: make it with/],
    [
      text.replace('gateway-1.pub', 'key'),
      /logs\[0\]\.publicKeyFile: .*key does not hold an Ed25519 public key/,
    ],
    [
      text.replace('gateway-1.pub', '/dev/zero'),
      /publicKeyFile: \/dev\/zero is not a regular file: name one/,
    ],
    [
      text.replace('gateway-1.pub', 'shared.pub'),
      /publicKeyFile: .*can be written by others: run chmod go-w/,
    ],
    [text.replace('listen: {', 'listen: { tls: { certFile: no, keyFile: key },'), /listen\.tls\.certFile: /],
    [text.replace('logs: [', 'logs: [{ replica: gateway-1, publicKeyFile: x },'), /name each replica once/],
    ['', /is empty: give a mapping/],
    [text.replace(/^name: .*\n/, ''), /name: is missing/],
    [text.replace('metrics: {', 'metrics: { address: 0.0.0.0,'), /metrics\.tokenSha256: is missing: /],
  ] as const;
  for (const [settings, message] of wrong) {
    expect(await run(settings)).toEqual([2, expect.stringMatching(message)]);
  }
});

test('settings that any user can write are refused', async () => {
  await using witness = await startTestWitness(logs);
  const file = join(witness.directory, 'witness.yaml');
  await chmod(file, 0o666);
  await expect(witness.restart()).rejects.toThrow(`${file}:1:1 (file): can be written by any user`);
  await chmod(file, 0o644);
  await witness.restart();
});

test('the command serves until a signal, and logs where and with which key', async () => {
  await using witness = await startTestWitness(logs);
  await witness.add(log.request(0, 20));
  await witness.stop();
  const child = spawn(process.execPath, [
    PROGRAM,
    'witness',
    '--config',
    join(witness.directory, 'witness.yaml'),
  ]);
  const lines = createInterface(child.stderr)[Symbol.asyncIterator]();
  const { url, publicKey } = JSON.parse((await lines.next()).value ?? '');
  expect(publicKey).toBe(witness.publicKey);
  const { statusCode, body } = await request(`${url}/add-checkpoint`, {
    method: 'POST',
    body: log.request(20, 30),
  });
  await body.dump();
  expect(statusCode).toBe(200);
  child.kill('SIGTERM');
  expect(await once(child, 'exit')).toEqual([0, null]);
});

test('SIGHUP does not end the command, and a warning says what changed settings need', async () => {
  await using witness = await startTestWitness(logs);
  await witness.stop();
  const config = join(witness.directory, 'witness.yaml');
  const child = spawn(process.execPath, [PROGRAM, 'witness', '--config', config]);
  const ended = once(child, 'exit');
  const lines = createInterface(child.stderr)[Symbol.asyncIterator]();
  const { url } = JSON.parse((await lines.next()).value ?? '');
  child.kill('SIGHUP');
  const { level, msg } = JSON.parse((await lines.next()).value ?? '{}');
  expect([level, msg]).toEqual(['warn', 'SIGHUP ignored: changed settings need a restart']);
  const { statusCode, body } = await request(`${url}/livez`);
  await body.dump();
  expect(statusCode).toBe(200);
  child.kill('SIGTERM');
  expect(await ended).toEqual([0, null]);
});
