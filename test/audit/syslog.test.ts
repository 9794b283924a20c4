import { afterAll, beforeAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { SyslogDelivery, syslogFrame } from '../../src/audit/shipping/syslog.ts';
import { syslogTo } from '../support/sink-scene.ts';
import { type SyslogServer, startSyslog } from '../support/syslog-server.ts';

let server: SyslogServer;

beforeAll(async () => {
  server = await startSyslog();
});
afterAll(() => server.close());

/** Text of JSON strings with every kind of character, since any may come in a path or a parameter. */
const content = fc.string({ unit: 'binary', maxLength: 200 });
/** rsyslog reads times before the year 2100. */
const record = fc.record({
  replica: fc.constantFrom('r1', 'gateway-1@12', 'a"b\\c]d'),
  segment: fc.constantFrom('000000000001.jsonl', '123456789012345.jsonl'),
  seq: fc.integer({ min: 1, max: 999_999_999_999_999 }),
  time: fc
    .date({ min: new Date(0), max: new Date('2099-12-31'), noInvalidDate: true })
    .map((time) => time.toISOString()),
  kind: fc.constantFrom('access' as const, 'outcome' as const, 'admin' as const),
  line: content.map((text) => JSON.stringify({ text })),
});

test('rsyslog reads every record as it was sent', async () => {
  const delivery = new SyslogDelivery(syslogTo(server.port));
  const records = fc.array(record, { minLength: 1, maxLength: 20 });
  await fc.assert(
    fc.asyncProperty(records, async (sent) => {
      const before = (await server.received()).length;
      await delivery.deliver({ batches: [], records: sent }, AbortSignal.timeout(60_000));
      const received = (await server.received()).slice(before);
      const escaped = (text: string): string => text.replace(/["\\\]]/g, '\\$&');
      expect(received.map(({ time, id, data, text }) => ({ time, id, data, text }))).toEqual(
        sent.map(({ replica, segment, seq, time, kind, line }) => ({
          time,
          id: kind,
          data: `[record@32473 replica="${escaped(replica)}" segment="${segment}" seq="${seq}"]`,
          text: line,
        })),
      );
    }),
    { numRuns: 50 },
  );
});

test('a host name and a time that do not fit the format do not reach it', () => {
  const place = { replica: 'r', segment: 's', seq: 1, kind: 'admin' as const, line: '{}' };
  const message = '<6>1 - a-b-c digest-gateway - admin [record@1 replica="r" segment="s" seq="1"] {}';
  const odd = { ...place, time: '1] <0>1 x y z' };
  const frame = syslogFrame(odd, { facility: 0, enterprise: 1 }, 'a b\nc');
  expect(frame.toString()).toBe(`${message.length} ${message}`);
});
