import { expect, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { createLog } from '../../src/base/log.ts';
import { ErrorLog } from '../../src/gateway/error-log.ts';

test('equal internal errors of a deployment are logged once in ten seconds, others at once', () => {
  let now = 0;
  const lines: Record<string, unknown>[] = [];
  const log = createLog({ write: (line) => lines.push(JSON.parse(line)) });
  const errors = new ErrorLog(log, { now: () => now });
  const lack = new GatewayError('internal-error', 'It failed.', new Error('no file is left'));
  const defect = new GatewayError('internal-error', 'It failed.', new TypeError('no function'));
  for (let count = 0; count < 1_000; count += 1) errors.add('d', lack, `request-${count}`);
  errors.add('d', defect, 'defect');
  errors.add('e', lack, 'elsewhere');
  now = 10_000;
  errors.add('d', lack, 'later');
  expect(lines.map(({ requestId, suppressed }) => [requestId, suppressed])).toEqual([
    ['request-0', 0],
    ['defect', 0],
    ['elsewhere', 0],
    ['later', 999],
  ]);
  expect(errors.recent.find(({ deployment }) => deployment === 'd')?.count).toBe(1_002);
});

test('errors are counted on when others have displaced them from the recent ones, and refusals displace no failures', () => {
  const errors = new ErrorLog(createLog({ write: () => undefined }), { now: () => 0 });
  const unreachable = new GatewayError('upstream-unreachable', 'It is gone.');
  const forbidden = new GatewayError('client-forbidden', 'It may not.');
  for (let round = 0; round < 3; round += 1) {
    for (let at = 0; at < 60; at += 1) errors.add(`d${at}`, unreachable, `request-${round}`);
    for (let at = 0; at < 60; at += 1) errors.add(`d${at}`, forbidden, `request-${round}`);
  }
  const newest = Array.from({ length: 50 }, (_, index) => `d${59 - index}`);
  const recent = (code: string) => errors.recent.filter((each) => each.code === code);
  for (const code of ['upstream-unreachable', 'client-forbidden']) {
    expect(recent(code).map(({ deployment }) => deployment)).toEqual(newest);
    expect(new Set(recent(code).map(({ count }) => count))).toEqual(new Set([3]));
  }
});
