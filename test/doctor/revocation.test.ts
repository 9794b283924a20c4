import { expect, test } from '@jest/globals';
import { examineRevocation } from '../../src/doctor/doctor.ts';

const END = Date.UTC(2026, 0, 2);
const facts = { expires: '2026-01-02T00:00:00.000Z' };

test.each([
  [END - 1, { mark: 'ok', saw: 'all lists are valid until 2026-01-02T00:00:00.000Z', facts }],
  [END, { mark: 'fail', problem: 'crl-expired', saw: 'a list expired at 2026-01-02T00:00:00.000Z', facts }],
])('lists of revoked certificates that end at their nextUpdate, at %d', (now, finding) => {
  expect(examineRevocation(END / 1000, now)).toMatchObject(finding);
});
