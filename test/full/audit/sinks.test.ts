import { cp, mkdir, readdir, readFile, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { auditKeys } from '../../../src/audit/keys.ts';
import { recordLine } from '../../../src/audit/record.ts';
import { GENESIS, type Head, sealFor, sealLine } from '../../../src/audit/seal.ts';
import { headerLine } from '../../../src/audit/segments/segment.ts';
import { NotRegularError } from '../../../src/audit/segments/segment-reader.ts';
import type { FoundPosition } from '../../../src/audit/segments/signed-file.ts';
import { hasSealOf, RecordSource } from '../../../src/audit/shipping/record-source.ts';
import { Secret } from '../../../src/base/secret.ts';
import { AUDIT_KEY, REPLICA, recordAccess, recordsIn } from '../../support/audit-log.ts';
import { closing } from '../../support/closing.ts';
import { createTestAuthority } from '../../support/issued-certificates.ts';
import { listenOnLoopback } from '../../support/loopback-server.ts';
import { freePort } from '../../support/server-process.ts';
import {
  linesOf,
  positionOf,
  recordMany,
  SINK,
  sendAll,
  storedSeq,
  syslogTo,
  useSinks,
} from '../../support/sink-scene.ts';
import { receivedIn, type SyslogServer } from '../../support/syslog-server.ts';
import { until } from '../../support/until.ts';

const scene = useSinks();
const FIRST = '000000000001.jsonl';
const SMALL = { segment: { size: 2_000, age: 1e9, keep: 1e9 } };
/** Closed segments are removed at the next closing. */
const SHORT = { size: 2_000, age: 1e9, keep: 1 };

/** The text of everything that arrived, in its order. */
async function textsAt(server: SyslogServer): Promise<string[]> {
  return (await server.received()).map(({ text }) => text);
}

/** True when retention has removed the oldest segment. */
async function isGone(directory: string): Promise<boolean> {
  return (await readdir(join(directory, REPLICA))).every((name) => !name.startsWith(FIRST));
}

describe('a syslog sink', () => {
  test('gets each record as it is in the log, with its place', async () => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const audit = await open(REPLICA, SMALL);
    const followed = follow(syslogTo(server.port, { facility: 16, enterprise: 99_999 }));
    await recordMany(audit, 30);
    await audit.close('stop');
    await followed.untilSent();
    const received = await server.received();
    expect(received.map(({ text }) => text)).toEqual(await linesOf(directory));
    const segments = (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl'));
    expect(segments.length).toBeGreaterThan(1);
    for (const { text, ...rest } of received) {
      const { seq, time, kind } = JSON.parse(text);
      const [, segment = ''] = /segment="([^"]+)"/.exec(rest.data) ?? [];
      expect(segments.map((name) => name.replace('.zst', ''))).toContain(segment);
      expect(rest).toEqual({
        priority: '134',
        time,
        host: expect.stringMatching(/./),
        app: 'digest-gateway',
        id: kind,
        data: `[record@99999 replica="r1" segment="${segment}" seq="${seq}"]`,
      });
    }
    expect(await followed.status()).toMatchObject({ behind: 0, delivered: 31, failures: 0, skipped: 0 });
  });

  test('goes on after its position, and sends nothing twice that was confirmed', async () => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const audit = await open(REPLICA, SMALL);
    await recordMany(audit, 20);
    await sendAll(follow(syslogTo(server.port)));
    expect(await storedSeq(directory)).toBe(20);
    await recordMany(audit, 20, 'later');
    const second = follow(syslogTo(server.port));
    await second.untilSent();
    expect(await textsAt(server)).toEqual(await linesOf(directory));
    expect(second.logged).toEqual([]);
  });

  test('gets what was written while it could not be reached', async () => {
    const { directory, open, follow, syslog } = await scene();
    const port = await freePort();
    const audit = await open();
    await recordMany(audit, 100);
    const followed = follow(syslogTo(port));
    await until(async () => (await followed.status()).failures >= 3);
    const { failing, behind, since = 0 } = await followed.status();
    expect({ failing, behind }).toEqual({ failing: `127.0.0.1:${port}: ECONNREFUSED`, behind: 100 });
    expect(since).toBe(Date.parse(String((await recordsIn(directory))[0]?.['time'])));
    const server = await syslog({ port });
    await followed.untilSent();
    expect(await textsAt(server)).toEqual(await linesOf(directory));
    expect((await followed.status()).failing).toBeUndefined();
    expect(followed.logged.map(({ level, msg }) => [level, msg])).toEqual([
      ['warn', 'audit sink fails; records are kept, and sent later'],
      ['info', 'audit sink gets records again'],
    ]);
  });

  test('gets again what it had not read when it was killed', async () => {
    const { directory, open, follow, syslog } = await scene();
    const file = join(directory, 'received');
    const server = await syslog({ file });
    const { port } = server;
    const audit = await open();
    const followed = follow(syslogTo(port));
    await recordMany(audit, 50);
    await followed.untilSent();
    const pid = await server.process.pid();
    process.kill(pid, 'SIGSTOP');
    // The kernel takes the connection and the bytes; nobody reads them.
    await recordMany(audit, 50, 'unread');
    await until(async () => (await followed.status()).since !== undefined);
    process.kill(pid, 'SIGKILL');
    await until(async () => (await followed.status()).failures > 0);
    await syslog({ file, port });
    await followed.untilSent();
    const texts = (await receivedIn(file)).map(({ text }) => text);
    expect(new Set(texts)).toEqual(new Set(await linesOf(directory)));
  });

  test('fails a delivery that is not confirmed in time, and gets it when it reads again', async () => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const pid = await server.process.pid();
    process.kill(pid, 'SIGSTOP');
    const audit = await open();
    const followed = follow(syslogTo(server.port, { timeout: 1_000 }));
    await recordMany(audit, 10);
    await until(async () => (await followed.status()).failing === 'not confirmed within 1000 ms');
    expect(await storedSeq(directory)).toBe(0);
    process.kill(pid, 'SIGCONT');
    await followed.untilSent();
    expect(new Set(await textsAt(server))).toEqual(new Set(await linesOf(directory)));
  });

  test('is not trusted when it closes without reading', async () => {
    const { open, follow } = await scene();
    const server = createServer((socket) => socket.on('error', () => undefined).end());
    const { port, close } = await listenOnLoopback(server);
    closing.push(close);
    const audit = await open();
    await recordMany(audit, 10);
    const followed = follow(syslogTo(port));
    await until(async () => (await followed.status()).failures >= 3);
    expect((await followed.status()).delivered).toBe(0);
  });

  test('is verified by the authority of the configuration, and can ask for a certificate', async () => {
    const { directory, open, follow, syslog } = await scene();
    const [authority, other] = await Promise.all([createTestAuthority(), createTestAuthority('CN=Other CA')]);
    const [pair, client] = await Promise.all([authority.server(), authority.client()]);
    const { ca } = authority;
    const shown = { chain: client.cert, key: new Secret(client.key) };
    const tls = { pair, ca, clients: true, client: { key: client.key, certificate: client.cert } };
    const server = await syslog({ tls });
    const audit = await open();
    await recordMany(audit, 10);
    const failing = async (options: object): Promise<string | undefined> => {
      const followed = follow(syslogTo(server.port, { tls: options, timeout: 5_000 }));
      await until(async () => (await followed.status()).failures > 0);
      await followed.finish();
      return (await followed.status()).failing;
    };
    expect(await failing({ ca: other.ca, client: shown })).toMatch(/CERT/);
    expect(await failing({ ca })).toMatch(/./);
    expect(await textsAt(server)).toEqual([]);
    const followed = follow(syslogTo(server.port, { tls: { ca, client: shown } }));
    await followed.untilSent();
    expect(await textsAt(server)).toEqual(await linesOf(directory));
  });
});

describe('the position of a sink', () => {
  test.each([
    ['is no JSON', () => 'x'],
    ['is too large', () => ' '.repeat(5_000)],
    ['was moved by somebody without the key', (text: string) => text.replace('"seq":20', '"seq":40')],
  ])('sends the whole log again when it %s', async (_title, change) => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const audit = await open();
    await recordMany(audit, 20);
    await sendAll(follow(syslogTo(server.port)));
    await recordMany(audit, 20, 'later');
    const file = positionOf(directory);
    await writeFile(file, change(await readFile(file, 'utf8')));
    const second = follow(syslogTo(server.port));
    await until(async () => (await second.status()).delivered === 40);
    const lines = await linesOf(directory);
    expect(await textsAt(server)).toEqual([...lines.slice(0, 20), ...lines]);
    expect(second.logged).toEqual([
      {
        level: 'error',
        msg: 'position of an audit sink cannot be used; the whole log is sent again',
        sink: SINK,
        log: REPLICA,
        reason: expect.stringContaining(file),
      },
    ]);
  });

  test('is believed after the key was replaced', async () => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const before = await open();
    await recordMany(before, 20);
    await sendAll(follow(syslogTo(server.port)));
    await before.close('stop');
    const key = 'fedcba9876543210'.repeat(4);
    const after = await open(REPLICA, { key: new Secret(key) });
    await recordMany(after, 20, 'later');
    const second = follow(syslogTo(server.port), key);
    await second.untilSent();
    expect(await textsAt(server)).toEqual(await linesOf(directory));
    expect(second.logged).toEqual([]);
  });

  test('does not hide records that got numbers again after the log lost its end', async () => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const audit = await open();
    await recordMany(audit, 10);
    const kept = join(directory, 'kept');
    await cp(join(directory, REPLICA, FIRST), kept);
    await recordMany(audit, 10, 'lost');
    await sendAll(follow(syslogTo(server.port)));
    await audit.close();
    await cp(kept, join(directory, REPLICA, FIRST));
    const again = await open();
    await recordMany(again, 10, 'other');
    const second = follow(syslogTo(server.port));
    await until(async () => (await second.status()).delivered === 20);
    expect((await textsAt(server)).slice(20)).toEqual(await linesOf(directory));
    expect(second.logged).toMatchObject([
      {
        msg: 'audit records are sent to the sink again',
        reason: 'the log lacks the seal of the position',
      },
    ]);
  });

  test('does not count for a log that was begun anew', async () => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const audit = await open(REPLICA, SMALL);
    await recordMany(audit, 10);
    // In a second segment: the first segments of both logs begin alike.
    await recordMany(audit, 10);
    await sendAll(follow(syslogTo(server.port)));
    await audit.close();
    for (const name of await readdir(join(directory, REPLICA))) {
      if (name.startsWith('0')) await rm(join(directory, REPLICA, name));
    }
    const anew = await open(REPLICA, SMALL);
    await recordMany(anew, 40, 'anew');
    const second = follow(syslogTo(server.port));
    await until(async () => (await second.status()).delivered === 40);
    expect((await textsAt(server)).slice(20)).toEqual(await linesOf(directory));
    expect(second.logged).toMatchObject([
      {
        msg: 'audit records are sent to the sink again',
        reason: 'the log lacks the seal of the position',
      },
    ]);
  });

  test('is removed as soon as the log is another one', async () => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const audit = await open();
    await recordMany(audit, 20);
    await sendAll(follow(syslogTo(server.port)));
    await audit.close();
    await rm(join(directory, REPLICA, FIRST));
    await recordMany(await open(), 5, 'anew');
    const second = follow(syslogTo(await freePort()));
    await until(async () => (await second.status()).failures > 0);
    expect(second.logged).toContainEqual(
      expect.objectContaining({ msg: 'audit records are sent to the sink again' }),
    );
    expect(await storedSeq(directory)).toBe(0);
  });

  test('does not cover lines without a seal, and goes on behind them', async () => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const audit = await open();
    await recordMany(audit, 10);
    const followed = follow(syslogTo(server.port));
    await followed.untilSent();
    await audit.close();
    const file = join(directory, REPLICA, FIRST);
    const unsealed = '{"seq":11,"time":"2026-01-01T00:00:00.000Z","kind":"access"}';
    await writeFile(file, `${unsealed}\n`.repeat(30), { flag: 'a' });
    const again = await open();
    await recordMany(again, 40, 'later');
    await again.close('stop');
    const lines = (await linesOf(directory)).filter((line) => line !== unsealed);
    await until(async () => (await textsAt(server)).length === lines.length);
    expect(await textsAt(server)).toEqual(lines);
    expect(followed.logged).toEqual([]);
  });
});

test('records that do not match their seal are left out, counted and told', async () => {
  const { directory, open, follow, syslog } = await scene();
  const server = await syslog();
  const audit = await open();
  for (const requestId of ['a', 'b', 'c']) await recordAccess(audit, { requestId });
  await audit.close();
  const file = join(directory, REPLICA, FIRST);
  await writeFile(file, (await readFile(file, 'utf8')).replace('"requestId":"b"', '"requestId":"x"'));
  const followed = follow(syslogTo(server.port));
  await until(async () => (await followed.status()).delivered === 2);
  expect((await textsAt(server)).map((text) => JSON.parse(text).requestId)).toEqual(['a', 'c']);
  expect((await followed.status()).skipped).toBe(1);
  expect(followed.logged).toMatchObject([
    { level: 'error', msg: 'audit records never reach the sink', log: REPLICA, first: 2, last: 2 },
  ]);
});

test.each([
  ['that is empty', ''],
  ['of another key', 'f'.repeat(64)],
])('a file behind the newest segment %s neither ends it nor is sent', async (_title, key) => {
  const { directory, open, follow, syslog } = await scene();
  const server = await syslog();
  const audit = await open(REPLICA, SMALL);
  await recordMany(audit, 3);
  const followed = follow(syslogTo(server.port));
  await followed.untilSent();
  const name = '000000000004.jsonl';
  await writeFile(join(directory, REPLICA, name), key === '' ? '' : forgedSegment(key));
  await until(async () => (await server.received()).length >= 3);
  await recordMany(audit, 1);
  // It has begun segments behind that number since, which are sent, too.
  await recordMany(audit, 20);
  await until(async () => (await textsAt(server)).length >= 24);
  const sealed = (await linesOf(directory)).filter((line) => !line.includes('forged'));
  expect(await textsAt(server)).toEqual(sealed);
  expect(followed.logged).toEqual([]);
});

/** A segment of one record, as somebody without the key of the gateway could write it. */
function forgedSegment(key: string): string {
  const [keys, time] = [auditKeys(new Secret(key)), '2026-01-01T00:00:00.000Z'];
  const header = headerLine({ replica: REPLICA, first: 4, previous: GENESIS, key: keys.id, opened: time });
  const lines = Buffer.from(header + recordLine(4, time, '"kind":"access","requestId":"forged"}'));
  const chain = { replica: REPLICA, previous: GENESIS };
  return `${lines}${sealLine(sealFor(keys, chain, { first: 4, last: 4 }, lines))}`;
}

test('the log of a folder that is a link is sent, and one that leads to no folder keeps no other back', async () => {
  const { directory, open, follow, syslog } = await scene();
  const server = await syslog();
  await mkdir(join(directory, 'disk'));
  await symlink('disk', join(directory, `${REPLICA}@1`));
  await symlink('absent', join(directory, `${REPLICA}@2`));
  await recordMany(await open(`${REPLICA}@1`), 5);
  const followed = follow(syslogTo(server.port));
  await followed.untilSent();
  expect(await textsAt(server)).toEqual(await linesOf(directory, `${REPLICA}@1`));
  // What begins later is found by a further look at the directory.
  await recordMany(await open(`${REPLICA}@3`), 5);
  await until(async () => (await textsAt(server)).length >= 10);
  const reason = expect.stringContaining(`${REPLICA}@2 is a link that leads to no folder`);
  expect(followed.logged).toMatchObject([{ level: 'warn', reason }]);
});

test('the logs of all workers are sent, those that no longer run and those that begin later among them', async () => {
  const { directory, open, follow, syslog } = await scene();
  const server = await syslog();
  const primary = await open();
  const ended = await open(`${REPLICA}@7`);
  await recordMany(ended, 5, 'ended');
  await ended.close('stop');
  const stranger = await open('r2');
  await recordMany(stranger, 5, 'stranger');
  await recordMany(primary, 5);
  const followed = follow(syslogTo(server.port));
  await followed.untilSent();
  await recordMany(await open(`${REPLICA}@1`), 5, 'begun');
  const logs = [REPLICA, `${REPLICA}@1`, `${REPLICA}@7`];
  const lines = (await Promise.all(logs.map((log) => linesOf(directory, log)))).flat();
  expect(lines).toHaveLength(16);
  await until(async () => (await server.received()).length >= 16);
  expect((await textsAt(server)).toSorted()).toEqual(lines.toSorted());
  await rm(join(directory, `${REPLICA}@7`), { recursive: true });
  await recordMany(await open(`${REPLICA}@2`), 5, 'begun');
  await until(async () => (await followed.status()).delivered === 21);
  expect(followed.logged).toEqual([]);
});

describe('records of several segments', () => {
  /** A source of the log in a folder, and the ranges that it skips. */
  function sourceIn(folder: string, start?: FoundPosition) {
    const skipped: [first: number, last: number][] = [];
    const source = new RecordSource({
      folder,
      replica: REPLICA,
      keys: auditKeys(new Secret(AUDIT_KEY)),
      start,
      from: 0,
      most: { records: 1_000, characters: 2 ** 19 },
      events: {
        onSkipped: (first, last) => skipped.push([first, last]),
        onDiverged: () => Promise.reject(new Error('diverged')),
      },
    });
    closing.push(() => source.close());
    return { skipped, source };
  }

  /** A closed log with compressed segments, and a source that reads it from its beginning. */
  async function sourceOf() {
    const { directory, open } = await scene();
    const audit = await open(REPLICA, SMALL);
    for (let count = 0; count < 20; count += 1) await recordAccess(audit, { requestId: `q${count}` });
    await audit.close('stop');
    const folder = join(directory, REPLICA);
    const names = (await readdir(folder)).filter((name) => name.endsWith('.zst')).sort();
    const lines = await linesOf(directory);
    return {
      folder,
      second: String(names[1]),
      third: Number.parseInt(String(names[2]), 10),
      lines,
      ...sourceIn(folder),
    };
  }

  async function nextLines(source: RecordSource): Promise<string[]> {
    return (await source.next())?.content?.records.map(({ line }) => line) ?? [];
  }

  test('are all sent when one cannot be read for a time', async () => {
    const { folder, second, lines, skipped, source } = await sourceOf();
    const file = join(folder, second);
    await rename(file, join(folder, 'kept'));
    await symlink('kept', file);
    const first = await nextLines(source);
    expect(first).toEqual(lines.slice(0, Number.parseInt(second, 10) - 1));
    await expect(source.next()).rejects.toThrow(NotRegularError);
    await rename(join(folder, 'kept'), file);
    expect([...first, ...(await nextLines(source))]).toEqual(lines);
    expect(skipped).toEqual([]);
  });

  test.each([
    ['a link', (path: string) => symlink('/etc/hostname', path)],
    ['a folder', (path: string) => mkdir(path)],
  ])('are all sent past %s that is named like one between them', async (_title, put) => {
    const { folder, second, lines, skipped, source } = await sourceOf();
    expect(Number.parseInt(second, 10)).toBeGreaterThan(2);
    await put(join(folder, '000000000002.jsonl'));
    expect([...(await nextLines(source)), ...(await nextLines(source))]).toEqual(lines);
    expect(skipped).toEqual([]);
  });

  test('are sent without those of a damaged compressed one', async () => {
    const { folder, second, third, lines, skipped, source } = await sourceOf();
    await truncate(join(folder, second), 20);
    const first = await nextLines(source);
    const from = Number.parseInt(second, 10);
    expect(first).toEqual(lines.slice(0, from - 1));
    expect(await nextLines(source)).toEqual(lines.slice(third - 1));
    expect(skipped).toEqual([[from, third - 1]]);
  });

  test('are sent from behind the segment with the position if that is damaged', async () => {
    const { directory, open } = await scene();
    const audit = await open(REPLICA, SMALL);
    const heads: Head[] = [];
    for (let count = 0; count < 20; count += 1) {
      await recordAccess(audit, { requestId: `q${count}` });
      heads.push(audit.head as Head);
    }
    await audit.close();
    const folder = join(directory, REPLICA);
    const names = (await readdir(folder)).filter((name) => name.endsWith('.zst')).sort();
    const lines = await linesOf(directory);
    await truncate(join(folder, String(names[1])), 20);
    const [, second = 0, third = 0] = names.map((name) => Number.parseInt(name, 10));
    const { seq, hmac } = heads.find((head) => head.seq === second) as Head;
    const { skipped, source } = sourceIn(folder, { position: { seq, hmac }, key: undefined });
    await expect(source.next()).rejects.toThrow();
    expect(await nextLines(source)).toEqual(lines.slice(third - 1));
    expect(skipped).toEqual([[seq + 1, third - 1]]);
  });
});

describe('retention', () => {
  test('does not believe a position that another key signed', async () => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const options = { sinks: [SINK], segment: { ...SHORT, keepUnsent: 2 ** 30 } };
    const audit = await open(REPLICA, options);
    await recordAccess(audit, { requestId: 'q0' });
    const followed = follow(syslogTo(server.port));
    await followed.untilSent();
    await followed.finish();
    const file = positionOf(directory);
    const position = JSON.parse(await readFile(file, 'utf8'));
    await writeFile(file, JSON.stringify({ ...position, seq: 1_000, key: 'f'.repeat(16) }));
    for (let count = 1; count < 20; count += 1) await recordAccess(audit, { requestId: `q${count}` });
    await audit.close();
    expect(await linesOf(directory)).toHaveLength(20);
  });

  test('believes a position of an earlier key only if its seal has just that number', async () => {
    const { directory, open } = await scene();
    const audit = await open();
    await recordMany(audit, 3);
    const { seq, hmac } = audit.head ?? { seq: 0, hmac: '' };
    await audit.close();
    const [key, present] = [auditKeys(new Secret(AUDIT_KEY)).id, auditKeys(new Secret('f'.repeat(64)))];
    const log = { folder: join(directory, REPLICA), replica: REPLICA, keys: present };
    const found = [
      { position: { seq, hmac }, key },
      { position: { seq: seq - 1, hmac }, key },
      { position: { seq: seq + 1, hmac }, key },
      { position: { seq, hmac: 'x'.repeat(43) }, key },
      { position: { seq, hmac }, key: present.id },
    ];
    const believed = await Promise.all(found.map((each) => hasSealOf(log, each)));
    expect(believed).toEqual([true, false, false, false, false]);
  });

  test('removes what a sink has confirmed, after a change of the key also from a log without new records', async () => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const audit = await open();
    await recordMany(audit, 5);
    await sendAll(follow(syslogTo(server.port)));
    await audit.close();
    const key = 'f'.repeat(64);
    const change = { key: new Secret(key), sinks: [SINK], segment: { ...SHORT, keepUnsent: 2 ** 30 } };
    const idle = await open(REPLICA, change);
    const followed = follow(syslogTo(server.port), key);
    const { id } = auditKeys(change.key);
    await until(async () => JSON.parse(await readFile(positionOf(directory), 'utf8')).key === id);
    await followed.finish();
    await idle.close();
    const again = await open(REPLICA, change);
    await until(() => isGone(directory));
    await again.close();
    expect([(await server.received()).length, followed.logged]).toEqual([5, []]);
  });

  test('keeps an old segment until a sink has confirmed it', async () => {
    const { directory, open, follow, syslog } = await scene();
    const options = { sinks: [SINK], segment: { ...SHORT, keepUnsent: 2 ** 30 } };
    const audit = await open(REPLICA, options);
    for (let count = 0; count < 20; count += 1) await recordAccess(audit, { requestId: `q${count}` });
    await audit.close();
    expect(await linesOf(directory)).toHaveLength(20);
    const server = await syslog();
    const followed = follow(syslogTo(server.port));
    await followed.untilSent();
    await followed.finish();
    const again = await open(REPLICA, options);
    await until(() => isGone(directory));
    await again.close();
    const retired = (await linesOf(directory)).filter((line) => line.includes('segment-retired'));
    expect(retired.length).toBeGreaterThan(0);
    expect(retired.filter((line) => line.includes('unsent'))).toEqual([]);
    expect(await server.received()).toHaveLength(20);
  });

  test('removes it when the folder grows too large, and the log and the sink are told', async () => {
    const { directory, open, follow, syslog } = await scene();
    const server = await syslog();
    const audit = await open(REPLICA, { sinks: [SINK], segment: { ...SHORT, keepUnsent: 1 } });
    await recordAccess(audit, { requestId: 'q0' });
    await sendAll(follow(syslogTo(server.port)));
    for (let count = 1; count < 20; count += 1) await recordAccess(audit, { requestId: `q${count}` });
    await until(() => isGone(directory));
    await audit.close();
    const sent = await storedSeq(directory);
    const second = follow(syslogTo(server.port));
    await second.untilSent();
    const received = (await textsAt(server)).map((text) => JSON.parse(text));
    expect(received).toContainEqual(expect.objectContaining({ event: 'segment-retired', unsent: [SINK] }));
    const { skipped } = await second.status();
    const oldest = received[sent].seq;
    expect(skipped).toBe(oldest - sent - 1);
    expect(skipped).toBeGreaterThan(0);
    expect(second.logged).toMatchObject([
      { level: 'error', msg: 'audit records never reach the sink', first: sent + 1, last: oldest - 1 },
    ]);
  });
});
