import { expect, test } from '@jest/globals';
import { examineCertificate } from '../../src/doctor/doctor.ts';

const END = Date.UTC(2026, 0, 2);
const DAY = 86_400_000;
const facts = { expiresAt: '2026-01-02T00:00:00.000Z' };

test.each([
  [END - 40 * DAY, { mark: 'ok', saw: 'expires 2026-01-02, 40 days left', facts }],
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
  const certificate = { subject: 'listen[1]', expires: END / 1000 };
  expect(examineCertificate(certificate, now)).toMatchObject({ ...finding, subject: 'listen[1]' });
});
