import { expect, test } from '@jest/globals';
import { examineCertificate } from '../../src/doctor/doctor.ts';

const END = Date.UTC(2026, 0, 2);
const DAY = 86_400_000;
const facts = { expiresAt: '2026-01-02T00:00:00.000Z' };

test.each([
  [END - 40 * DAY, { mark: 'ok', saw: 'expires 2026-01-02, 40 days left', facts }],
  [
    END - 91 * DAY,
    {
      mark: 'fail',
      problem: 'listen-certificate-not-yet-valid',
      saw: 'it is not valid before 2025-10-04T00:00:00.000Z',
      facts,
    },
  ],
  [END - 90 * DAY, { mark: 'ok', saw: 'expires 2026-01-02, 90 days left', facts }],
  [END - 2 * DAY, { mark: 'warn', problem: 'listen-certificate-expires-soon', facts }],
  [
    END,
    {
      mark: 'fail',
      problem: 'listen-certificate-expired',
      saw: 'it expired at 2026-01-02T00:00:00.000Z',
      facts,
    },
  ],
])('the certificate of a listener, which clients see, at %d', (now, finding) => {
  const certificate = { subject: 'listen[1]', validFrom: (END - 90 * DAY) / 1000, expires: END / 1000 };
  expect(examineCertificate(certificate, now)).toMatchObject({ ...finding, subject: 'listen[1]' });
});
