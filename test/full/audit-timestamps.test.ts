import { spawnSync } from 'node:child_process';
import { appendFile, cp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Certificate, ContentInfo, SignedData, TimeStampResp } from 'pkijs';
import type { AuditOptions } from '../../src/audit/audit.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import { TimestampDelivery, type TimestampOptions } from '../../src/audit/shipping/head-deliveries.ts';
import { HeadSource } from '../../src/audit/shipping/head-source.ts';
import { timestampRequest } from '../../src/audit/timestamp.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, openTestAudit, REPLICA, recordAccess, useFolders } from '../support/audit-log.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { newSigningKey } from '../support/signing-key.ts';
import { useSinks } from '../support/sink-scene.ts';
import { POLICIES, startTsa, type TestTsa } from '../support/time-stamping-authority.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';

const key = newSigningKey();
const scene = useSinks();
const makeFolder = useFolders();
const SEGMENT = { size: 2000, age: 1e9, keep: 1e9 };
const DAY_MS = 86_400_000;
let tsa: TestTsa;

beforeEach(async () => {
  tsa = await startTsa();
});
afterEach(async () => {
  await tsa[Symbol.asyncDispose]();
});

function sink(change: Partial<TimestampOptions> = {}): TimestampOptions {
  const { url, ca: authorities } = tsa;
  const common = { kind: 'timestamps', name: 'timestamps', timeout: 60_000, tls: undefined } as const;
  return { ...common, url, authorities, policy: undefined, every: 1, ...change };
}

/** Writes so many records and stops. */
async function write(directory: string, records: number, change: Partial<AuditOptions> = {}): Promise<void> {
  const { audit } = await openTestAudit(directory, { signingKey: key.secret, segment: SEGMENT, ...change });
  for (let index = 0; index < records; index += 1) await recordAccess(audit, { requestId: `q${index}` });
  await audit.close('stop');
}

/** A log of so many records whose last head is stamped; returns the file with the head. */
async function stampedLog(records: number) {
  const { directory, follow } = await scene();
  await write(directory, records);
  const followed = follow(sink());
  await followed.untilSent();
  await followed.finish();
  const [file = ''] = await stampedFiles(directory);
  return { directory, file };
}

async function stampedFiles(directory: string): Promise<string[]> {
  const names = await readdir(join(directory, REPLICA));
  return names.filter((name) => name.endsWith('.stamped')).map((name) => join(directory, REPLICA, name));
}

async function check(directory: string, authorities = tsa.ca, publicKey = key.publicKey, isCopy = false) {
  const { alterations, notes, stamped, stampedAt } = await verified(directory, {
    keys: 'unknown',
    publicKeys: [publicKey],
    timestampAuthorities: authorities,
    isCopy,
  });
  const messages = alterations.map(({ message }) => message);
  return {
    kinds: alterations.map(({ kind }) => kind),
    notes: notes.map(({ kind }) => kind),
    messages,
    stamped,
    stampedAt,
  };
}

test('the newest head gets a time stamp, which openssl accepts, too', async () => {
  const { directory, file } = await stampedLog(9);
  const found = await check(directory);
  expect(found).toMatchObject({ kinds: [], stamped: 1 });
  expect(Math.abs(Date.now() - found.stampedAt)).toBeLessThan(600_000);
  const { checkpoint, timestamp } = JSON.parse(await readFile(file, 'utf8')) as Stored;
  const verdict = await verdictOfOpenssl(checkpoint, Buffer.from(timestamp, 'base64'), '-token_in');
  expect(verdict).toContain('Verification: OK');
});

/** The output of `openssl ts -verify` for a response, or with `-token_in` for a token. */
async function verdictOfOpenssl(text: string, stamp: Buffer, ...form: string[]): Promise<string> {
  const place = await makeFolder();
  await writeFile(join(place, 'head'), text);
  await writeFile(join(place, 'stamp'), stamp);
  const args = ['ts', '-verify', '-in', 'stamp', ...form, '-data', 'head', '-CAfile', tsa.caFile];
  const { stdout, stderr } = spawnSync('openssl', args, { cwd: place, encoding: 'utf8' });
  return stdout + stderr;
}

test('a log goes on being stamped over segments and restarts', async () => {
  const { directory, follow } = await scene();
  for (let run = 1; run <= 3; run += 1) {
    await write(directory, 8);
    const followed = follow(sink());
    await followed.untilSent();
    await followed.finish();
    expect(followed.logged).toEqual([]);
    expect(await check(directory)).toMatchObject({ kinds: [], stamped: run });
  }
  expect((await stampedFiles(directory)).length).toBe(3);
});

test('a head waits until the last time stamp is old enough, also after a restart, and no lag is told', async () => {
  const { directory } = await scene();
  await write(directory, 3);
  const folder = join(directory, REPLICA);
  const options = { folder, replica: REPLICA, keys: auditKeys(new Secret(AUDIT_KEY)), start: undefined };
  const source = (lastSent: number): HeadSource =>
    new HeadSource({ ...options, every: DAY_MS, isWitnessed: false, lastSent });
  const early = source(Date.now() - DAY_MS / 2);
  expect(await early.next()).toBeUndefined();
  expect(await early.next(true)).toBeUndefined();
  expect(await early.behind()).toBe(0);
  await early.close();
  const due = source(Date.now() - 2 * DAY_MS);
  expect(await due.behind()).toBe(4);
  expect(await due.next()).toMatchObject({ records: 4, content: { size: 4, proof: [] } });
  expect(await due.next()).toBeUndefined();
  await due.close();
  const ahead = source(Date.now() + 100 * DAY_MS);
  expect(await ahead.next()).toBeUndefined();
  await ahead.close();
});

test('the time of the last time stamp is kept beside the log', async () => {
  const { directory, follow } = await scene();
  await write(directory, 3);
  const first = follow(sink());
  await first.untilSent();
  await first.finish();
  await write(directory, 3);
  const early = follow(sink({ every: DAY_MS }));
  await until(async () => (await early.status()).behind === 0);
  await early.finish();
  expect(tsa.requests).toBe(1);
  for (const file of await stampedFiles(directory)) await rm(file);
  const again = follow(sink({ every: DAY_MS }));
  await again.untilSent();
  expect(tsa.requests).toBe(2);
});

test('an authority that is away stops nothing, and stamps the newest head when it is back', async () => {
  const { directory, follow, open } = await scene();
  const { answer } = tsa;
  tsa.answer = async (_query, response) => void response.writeHead(503).end('busy');
  const audit = await open(REPLICA, { signingKey: key.secret, segment: SEGMENT });
  const followed = follow(sink());
  for (let index = 0; index < 5; index += 1) await recordAccess(audit);
  await until(async () => (await followed.status()).failures > 0);
  expect((await followed.status()).failing).toMatch(/^127\.0\.0\.1:\d+: status 503$/);
  await audit.close('stop');
  expect(await check(directory)).toMatchObject({ kinds: ['timestamp-missing'], stamped: 0 });
  tsa.answer = answer;
  await followed.untilSent();
  expect(await check(directory)).toMatchObject({ kinds: [], stamped: 1 });
});

/** A line beside the log. */
interface Stored {
  readonly checkpoint: string;
  readonly timestamp: string;
}

/** The token with another certificate in it, which no signature covers. */
function withCertificate(timestamp: string, certificate: Buffer): string {
  const info = ContentInfo.fromBER(Buffer.from(timestamp, 'base64'));
  const signed = new SignedData({ schema: info.content });
  signed.certificates = [Certificate.fromBER(certificate)];
  info.content = signed.toSchema(true);
  return Buffer.from(info.toSchema().toBER()).toString('base64');
}

describe('a verification finds', () => {
  test('a log that was cut off', async () => {
    const { directory, follow } = await scene();
    const old = await makeFolder();
    await write(directory, 2);
    await cp(directory, old, { recursive: true });
    await write(directory, 1);
    const followed = follow(sink());
    await followed.untilSent();
    await followed.finish();
    const [file = ''] = await stampedFiles(directory);
    await cp(file, join(old, REPLICA, '000000000001.stamped'));
    const { kinds, messages } = await check(old);
    expect(kinds).toEqual(['timestamp-mismatch']);
    expect(messages[0]).toMatch(/^the time stamp of 20\S+Z is of another log up to record 5: /);
  });

  test('a log whose newest segment is missing, which only a copy of closed segments may lack', async () => {
    const { directory, file } = await stampedLog(12);
    await rm(file.replace('.stamped', '.jsonl'));
    expect((await check(directory)).kinds).toEqual(['timestamp-mismatch']);
    const copied = await check(directory, tsa.ca, key.publicKey, true);
    expect([copied.kinds, copied.notes]).toEqual([[], ['timestamp-ahead']]);
  });

  test('a log that was written anew with all keys', async () => {
    const { directory, file } = await stampedLog(3);
    const other = await scene();
    await write(other.directory, 3);
    await cp(file, join(other.directory, REPLICA, '000000000001.stamped'));
    expect((await check(directory)).kinds).toEqual([]);
    expect((await check(other.directory)).kinds).toEqual(['timestamp-mismatch']);
  });

  test('a log that was written anew without signed heads, and that the next start signs again', async () => {
    const { file } = await stampedLog(3);
    const other = await scene();
    await write(other.directory, 5, { signingKey: undefined });
    await write(other.directory, 1);
    await cp(file, join(other.directory, REPLICA, '000000000001.stamped'));
    expect((await check(other.directory)).kinds).toEqual(['timestamp-mismatch']);
  });

  test('a head or a time stamp that was changed, and leaves torn lines out', async () => {
    const { directory, file } = await stampedLog(1);
    const line = await readFile(file, 'utf8');
    await appendFile(file, '{"checkpoint":"dig\n');
    expect(await check(directory)).toMatchObject({ kinds: [], stamped: 1 });
    const { checkpoint, timestamp } = JSON.parse(line) as Stored;
    const token = Buffer.from(timestamp, 'base64');
    const altered = Buffer.from(token);
    altered.writeUInt8(altered.readUInt8(altered.length - 1) ^ 1, altered.length - 1);
    const lines = [
      { checkpoint: checkpoint.replace(REPLICA, `${REPLICA}x`), timestamp },
      { checkpoint: `${checkpoint}— other AAAAAAAA\n`, timestamp },
      { checkpoint, timestamp: altered.toString('base64') },
      { checkpoint, timestamp: token.subarray(0, 100).toString('base64') },
    ];
    await writeFile(file, lines.map((each) => `${JSON.stringify(each)}\n`).join(''));
    const { kinds, messages, stamped } = await check(directory);
    expect([new Set(kinds), stamped]).toEqual([new Set(['timestamp-invalid']), 0]);
    const start = 'of 000000000001.stamped is not a time-stamped head:';
    expect(messages).toEqual([
      `line 1 ${start} none of the given public keys signed the text as a head of this log`,
      `line 2 ${start} the time stamp is of another text`,
      `line 3 ${start} the signature of the time stamp is wrong`,
      `line 4 ${start} the time stamp has not the form of one`,
    ]);
  });

  test('any number of wrong time stamps: 20 of a file are named', async () => {
    const { directory, file } = await stampedLog(3);
    await writeFile(file, '{"checkpoint":"x","timestamp":""}\n'.repeat(1000));
    expect((await check(directory)).kinds).toEqual(Array(20).fill('timestamp-invalid'));
  });

  test('time stamps of another authority, and heads of another key', async () => {
    const { directory } = await stampedLog(3);
    const { ca } = await createTestAuthority('CN=TSA Root');
    const { kinds, messages } = await check(directory, ca);
    expect(kinds).toEqual(['timestamp-invalid']);
    expect(messages[0]).toContain('leads to none of the given authorities');
    expect(await check(directory, `${ca}${tsa.ca}`)).toMatchObject({ kinds: [], stamped: 1 });
    const foreign = await check(directory, tsa.ca, newSigningKey().publicKey);
    expect(foreign.kinds).toContain('timestamp-invalid');
  });

  test('a time stamp that names no certificate, or another one than signed it', async () => {
    // Before the time stamp: a certificate has to be valid at its time.
    const twin = await tsa.twin();
    const { directory, file } = await stampedLog(1);
    const { checkpoint, timestamp } = JSON.parse(await readFile(file, 'utf8')) as Stored;
    const { body } = await timestampRequest(checkpoint, undefined);
    const unnamed = TimeStampResp.fromBER(await tsa.replyAs('critical,timeStamping', body)).timeStampToken;
    const lines = [
      {
        checkpoint,
        timestamp: Buffer.from(unnamed?.toSchema().toBER() ?? new ArrayBuffer(0)).toString('base64'),
      },
      { checkpoint, timestamp: withCertificate(timestamp, twin) },
    ];
    await writeFile(file, lines.map((each) => `${JSON.stringify(each)}\n`).join(''));
    const { kinds, messages, stamped } = await check(directory);
    expect([new Set(kinds), stamped]).toEqual([new Set(['timestamp-certificate']), 0]);
    const start = 'of 000000000001.stamped is not a time-stamped head: the time stamp';
    expect(messages).toEqual([
      `line 1 ${start} does not name the certificate that signed it`,
      `line 2 ${start} names another certificate than the one that signed it`,
    ]);
  });

  test('a log whose time stamps were removed', async () => {
    const { directory, file } = await stampedLog(3);
    await rm(file);
    expect(await check(directory)).toMatchObject({ kinds: ['timestamp-missing'], stamped: 0 });
  });
});

describe('no time stamp is stored if', () => {
  const NOTE = 'digest-gateway/gateway-1/1\n0\n\n';
  const flip = (bytes: Buffer, at: number): Buffer => {
    const copy = Buffer.from(bytes);
    copy.writeUInt8(copy.readUInt8(at) ^ 1, at);
    return copy;
  };

  /** What a delivery throws. */
  async function refusal(change: Partial<TimestampOptions> = {}, limitMs = 60_000): Promise<Error> {
    const { directory } = await scene();
    const delivery = new TimestampDelivery(sink(change));
    const head = { folder: directory, segment: 1, note: NOTE, size: 1, old: 0, proof: [] };
    try {
      return await delivery.deliver(head, AbortSignal.timeout(limitMs)).then(
        () => new Error('it was stored'),
        (error: Error) => error,
      );
    } finally {
      await delivery.close();
      expect((await readdir(directory)).filter((name) => name.endsWith('.stamped'))).toEqual([]);
    }
  }

  test.each<[string, TestTsa['answer'], RegExp]>([
    ['its nonce is another', (query) => tsa.reply(flip(query, query.length - 4)), /the nonce differs$/],
    [
      'it is of another text',
      (query) => tsa.reply(flip(query, query.indexOf('0420', 'hex') + 2)),
      /another text$/,
    ],
    [
      'its signature is wrong',
      async (query) => {
        const reply = await tsa.reply(query);
        return flip(reply, reply.length - 1);
      },
      /signature of the time stamp is wrong$/,
    ],
    ['the response is something else', async () => Buffer.from('<html>'), /is not a time stamp response$/],
    ['the response is empty', async () => Buffer.alloc(0), /is not a time stamp response$/],
    ['the response has no token', async () => Buffer.from('30053003020100', 'hex'), /has no token$/],
    [
      'the certificate is for a server',
      (query) => tsa.replyAs('critical,serverAuth', query),
      /not for time stamps alone/,
    ],
    ['the usage is not critical', (query) => tsa.replyAs('timeStamping', query), /not for time stamps alone/],
    [
      'the certificate is for more',
      (query) => tsa.replyAs('critical,timeStamping,serverAuth', query),
      /not for time stamps alone/,
    ],
  ])('%s', async (_name, answer, reason) => {
    tsa.answer = answer;
    const { message } = await refusal();
    expect(message).toMatch(reason);
    expect(message).toMatch(/^127\.0\.0\.1:\d+: /);
  });

  test.each<[string, string[][], RegExp, string]>([
    [
      'an authority has more authorities below it than it may',
      [['basicConstraints=critical,CA:TRUE,pathlen:0'], ['basicConstraints=critical,CA:TRUE']],
      /may not have so many authorities below it \(pathlen\)$/,
      'path length constraint exceeded',
    ],
    [
      'an authority has a critical extension that is not known',
      [['basicConstraints=critical,CA:TRUE', '1.2.3.4=critical,ASN1:UTF8String:x']],
      /a critical extension that is not known$/,
      'unhandled critical extension',
    ],
  ])('%s, which openssl refuses, too', async (_name, authorities, reason, verdict) => {
    let reply: Buffer = Buffer.alloc(0);
    tsa.answer = async (query) => {
      reply = await tsa.replyThrough(authorities, query);
      return reply;
    };
    expect((await refusal()).message).toMatch(reason);
    expect(await verdictOfOpenssl(NOTE, reply)).toContain(verdict);
  });

  test('it does not name its certificate', async () => {
    tsa.answer = (query) => tsa.replyAs('critical,timeStamping', query);
    expect((await refusal()).message).toMatch(/does not name the certificate that signed it$/);
  });

  test('its certificate leads to another authority', async () => {
    const { ca } = await createTestAuthority('CN=TSA Root');
    expect((await refusal({ authorities: ca })).message).toContain('leads to none of the given authorities');
  });

  test('the authority refuses the policy', async () => {
    expect((await refusal({ policy: '1.2.3.9' })).message).toMatch(
      /it refused to make a time stamp \(status 2, unacceptedPolicy\)$/,
    );
  });

  test('it has another policy', async () => {
    const [own, other] = POLICIES.map((policy) => Buffer.of(6, 3, 0x2a, 3, Number(policy.at(-1))));
    tsa.answer = (query) =>
      tsa.reply(
        Buffer.from(
          query.toString('latin1').replace(`${other?.toString('latin1')}`, `${own?.toString('latin1')}`),
          'latin1',
        ),
      );
    expect((await refusal({ policy: POLICIES[1] })).message).toMatch(
      /another policy than audit\.timestamps\.policy$/,
    );
  });

  test('the response does not end', async () => {
    tsa.answer = async (_query, response) => {
      const write = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(8192))) {}
      };
      response.on('drain', write);
      write();
      return undefined;
    };
    expect((await refusal()).message).toMatch(/the response is too long$/);
  });

  test('there is no response in time', async () => {
    tsa.answer = async () => undefined;
    expect((await refusal({}, 300)).name).toBe('TimeoutError');
  });
});

test.each<[string, TestTsa['answer']]>([
  ['SHA-1 (RFC 3161)', (query) => tsa.replyNamedBy('sha1', query)],
  ['SHA-512 (RFC 5816)', (query) => tsa.replyNamedBy('sha512', query)],
  ['SHA-256 with issuer and serial number', (query) => tsa.replyAs('critical,timeStamping', query, true)],
])('a time stamp that names its certificate by %s is stored', async (_name, answer) => {
  tsa.answer = answer;
  const { directory } = await stampedLog(1);
  expect(await check(directory)).toMatchObject({ kinds: [], stamped: 1 });
});

test('a time stamp through authorities that may have others below them is stored', async () => {
  tsa.answer = (query) =>
    tsa.replyThrough(
      [['basicConstraints=critical,CA:TRUE,pathlen:1'], ['basicConstraints=critical,CA:TRUE,pathlen:0']],
      query,
    );
  const { directory } = await stampedLog(1);
  expect(await check(directory)).toMatchObject({ kinds: [], stamped: 1 });
});

test('a time stamp of the policy that is wanted is stored', async () => {
  const { directory, follow } = await scene();
  await write(directory, 1);
  const followed = follow(sink({ policy: POLICIES[1] }));
  await followed.untilSent();
  expect(await check(directory)).toMatchObject({ kinds: [], stamped: 1 });
});
