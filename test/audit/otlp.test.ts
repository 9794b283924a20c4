import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { JsonLogsSerializer } from '@opentelemetry/otlp-transformer';
import { exportRequest } from '../../src/audit/shipping/otlp.ts';
import type { PlacedRecord } from '../../src/audit/shipping/record-source.ts';
import { Secret } from '../../src/base/secret.ts';
import { REPLICA, recordAccess } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { linesIn, type OtlpReceiver, type OtlpReply, otlpTo, startOtlp } from '../support/otlp-receiver.ts';
import { freePort } from '../support/server-process.ts';
import { linesOf, recordMany, SINK, storedSeq, useSinks } from '../support/sink-scene.ts';
import { until } from '../support/until.ts';

const scene = useSinks();
const TRACE = '0af7651916cd43dd8448eb211c80319c';

async function receiver(options: Parameters<typeof startOtlp>[0] = {}): Promise<OtlpReceiver> {
  const started = await startOtlp(options);
  closing.push(() => started.close());
  return started;
}

/** A log of three records and a receiver that gives these replies, until the first attempt has ended. */
async function refused(reply: OtlpReply, change: Parameters<typeof otlpTo>[1] = {}) {
  const server = await receiver();
  const { directory, open, follow } = await scene();
  await recordMany(await open(), 3);
  server.replies.push(reply);
  const followed = follow(otlpTo(server, change));
  await until(async () => {
    const { failures, skipped, delivered } = await followed.status();
    return failures + skipped + delivered > 0;
  });
  return { server, directory, followed };
}

describe('an OTLP sink', () => {
  test('sends what the serializer of OpenTelemetry makes of the same records', () => {
    const time = '2026-01-02T03:04:05.678Z';
    const record = { replica: 'gw@2', segment: '000000000001.jsonl', seq: 7, time, kind: 'access' } as const;
    const line = JSON.stringify({ requestId: 'q"1', client: 'ü', deployment: 'd', traceId: TRACE });
    const hrTime: [number, number] = [Date.parse('2026-01-02T03:04:05Z') / 1000, 678_000_000];
    const bytes = JsonLogsSerializer.serializeRequest([
      {
        hrTime,
        hrTimeObserved: hrTime,
        severityNumber: 9,
        severityText: 'INFO',
        body: line,
        spanContext: { traceId: TRACE, spanId: '', traceFlags: 0 },
        instrumentationScope: { name: 'digest-gateway' },
        resource: {
          attributes: { 'service.name': 'digest-gateway', 'service.instance.id': 'gw@2' },
        } as never,
        attributes: {
          'audit.replica': 'gw@2',
          'audit.segment': '000000000001.jsonl',
          'audit.seq': 7,
          'audit.kind': 'access',
          'digest_gateway.request_id': 'q"1',
          'digest_gateway.client': 'ü',
          'digest_gateway.deployment': 'd',
        },
        droppedAttributesCount: 0,
      },
    ]);
    const official = JSON.parse(new TextDecoder().decode(bytes), (key, value) => {
      if (['droppedAttributesCount', 'flags', 'spanId'].includes(key)) return undefined;
      // A 64-bit number may stand as a number, too.
      return key === 'intValue' ? String(value) : value;
    });
    expect(exportRequest([{ ...record, line }])).toEqual(official);
  });

  test('sends a line that is no JSON, and a time and a trace id that are none', () => {
    const placed = (change: Partial<PlacedRecord>): PlacedRecord => ({
      replica: 'r',
      segment: 's',
      seq: 1,
      time: 'x',
      kind: 'admin',
      line: '{',
      ...change,
    });
    const { resourceLogs } = exportRequest([placed({}), placed({ line: `{"traceId":"${'0'.repeat(32)}"}` })]);
    const records = resourceLogs[0]?.scopeLogs[0]?.logRecords ?? [];
    expect(records.map(({ timeUnixNano, body }) => [timeUnixNano, body.stringValue[0]])).toEqual([
      ['0', '{'],
      ['0', '{'],
    ]);
    expect(JSON.stringify(records)).not.toContain('"traceId":');
  });

  test('gets each record as it is in the log, over TLS, with the configured header fields', async () => {
    const authority = await createTestAuthority();
    const server = await receiver({ pair: await authority.server() });
    const { directory, open, follow } = await scene();
    const audit = await open();
    const headers = new Map([['authorization', new Secret('Bearer marked-secret')]]);
    const followed = follow(otlpTo(server, { headers, tls: { ca: authority.ca } }));
    await recordAccess(audit, { requestId: 'traced', traceId: TRACE });
    await recordMany(audit, 1_500);
    await audit.close('stop');
    await followed.untilSent();
    expect(linesIn(server.confirmed)).toEqual(await linesOf(directory));
    expect(server.requests.length).toBeGreaterThan(1);
    for (const { headers: got, request } of server.requests) {
      expect(got).toMatchObject({
        authorization: 'Bearer marked-secret',
        'content-type': 'application/json',
      });
      expect(JSON.stringify(request.resourceLogs[0]?.resource)).toContain(REPLICA);
    }
    expect(server.confirmed.filter((record) => 'traceId' in record)).toMatchObject([{ traceId: TRACE }]);
    expect((await followed.status()).delivered).toBe(server.confirmed.length);
    expect(followed.logged).toEqual([]);
  });

  test('is refused by a certificate of another authority', async () => {
    const [own, other] = [await createTestAuthority(), await createTestAuthority()];
    const server = await receiver({ pair: await own.server() });
    const { open, follow } = await scene();
    await recordMany(await open(), 1);
    const followed = follow(otlpTo(server, { tls: { ca: other.ca } }));
    await until(async () => (await followed.status()).failures > 0);
    expect((await followed.status()).failing).toMatch(/CERT|SIGNATURE/);
    expect(server.requests).toEqual([]);
  });

  test('loses nothing when the receiver is away at the start and is killed in the middle', async () => {
    const port = await freePort();
    const { directory, open, follow } = await scene();
    const audit = await open();
    await recordMany(audit, 10);
    const followed = follow(otlpTo({ endpoint: `http://127.0.0.1:${port}/v1/logs` }));
    await until(async () => (await followed.status()).failing?.includes('ECONNREFUSED') === true);
    const first = await receiver({ port });
    await until(() => first.confirmed.length >= 10);
    first.replies.push('hang');
    await recordMany(audit, 10, 'r');
    const before = first.requests.length;
    await until(() => first.replies.length === 0 && first.requests.length >= before);
    await first.close();
    await recordMany(audit, 10, 's');
    const second = await receiver({ port });
    await audit.close('stop');
    await followed.untilSent();
    const lines = await linesOf(directory);
    expect(new Set([...linesIn(first.confirmed), ...linesIn(second.confirmed)])).toEqual(new Set(lines));
    expect((await followed.status()).delivered).toBe(lines.length);
    expect(followed.logged.map(({ msg }) => msg).slice(0, 2)).toEqual([
      'audit sink fails; records are kept, and sent later',
      'audit sink gets records again',
    ]);
  });

  test('does not send again what the receiver refused for good, counts it and tells it', async () => {
    const body = JSON.stringify({ partialSuccess: { rejectedLogRecords: '2', errorMessage: 'too old' } });
    const { server, followed } = await refused({ body });
    await followed.untilSent();
    const { delivered, skipped, failures } = await followed.status();
    const sent = linesIn(server.confirmed);
    expect({ delivered, skipped, failures }).toEqual({ delivered: sent.length - 2, skipped: 2, failures: 0 });
    expect(new Set(sent).size).toBe(sent.length);
    expect(followed.logged).toMatchObject([
      {
        level: 'error',
        msg: 'audit records were refused for good or are gone; they are not sent to the sink again',
        sink: SINK,
        log: REPLICA,
        records: 2,
      },
    ]);
  });

  test.each<[string, OtlpReply, string]>([
    ['status 400', { status: 400, body: '{"message":"marked-secret"}' }, 'status 400'],
    ['status 401', { status: 401 }, 'status 401'],
    ['status 503', { status: 503 }, 'status 503'],
    ['a redirect', { status: 307, headers: { location: 'http://127.0.0.1:1/' } }, 'status 307'],
    ['a page of a proxy', { body: '<html>' }, 'status 200 without a response of OTLP'],
    [
      'a count that is none',
      { body: '{"partialSuccess":{"rejectedLogRecords":-1}}' },
      'status 200 without a response of OTLP',
    ],
    ['a response without end', { body: ' '.repeat(1_000_000) }, 'the response is too long'],
    ['a broken connection', 'break', 'UND_ERR_SOCKET'],
  ])('sends all records again after %s', async (_title, reply, reason) => {
    const secret = new Map([['x-key', new Secret('marked-secret')]]);
    const { server, directory, followed } = await refused(reply, { headers: secret });
    await followed.untilSent();
    const told = JSON.stringify(followed.logged);
    expect(told).toContain(`"reason":"127.0.0.1:${server.port}: ${reason}"`);
    expect(told).not.toContain('marked-secret');
    expect(new Set(linesIn(server.confirmed))).toEqual(new Set(await linesOf(directory)));
    expect((await followed.status()).skipped).toBe(0);
  });

  test('gives up a receiver that hangs, and sends again', async () => {
    const { server, directory, followed } = await refused('hang', { timeout: 200 });
    await followed.untilSent();
    expect(JSON.stringify(followed.logged)).toContain('not confirmed within 200 ms');
    expect(linesIn(server.confirmed)).toEqual(await linesOf(directory));
  });

  test('waits as long as the receiver asks, and moves no position before', async () => {
    const { server, directory, followed } = await refused({
      status: 429,
      headers: { 'retry-after': '3600' },
    });
    expect((await followed.status()).failing).toContain('status 429');
    // Without the wish it would be sent again within 250 ms.
    await delay(1_000);
    expect(server.requests).toHaveLength(1);
    expect(await storedSeq(directory)).toBe(0);
  });
});
