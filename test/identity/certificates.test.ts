import { X509Certificate } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { certificateTest, readCertificate } from '../../src/identity/certificates.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';

const authority = await createTestAuthority();
const { cert } = await authority.client({
  subject: 'CN=reporting\\, and more, OU=x+L=y, O="Example, Inc."',
  names: [
    { type: 'dns', value: 'Reporting.internal' },
    { type: 'dns', value: 'other, DNS:admin.internal' },
    { type: 'url', value: 'spiffe://example/reporting,1' },
    { type: 'email', value: 'reporting@example.org' },
    { type: 'ip', value: '2001:db8::1' },
    { type: 'ip', value: '10.0.0.1' },
  ],
});
const x509 = new X509Certificate(cert);
const certificate = readCertificate(x509);
const fingerprint = x509.fingerprint256.replaceAll(':', '').toLowerCase();
const subject = 'CN=reporting\\, and more, OU=x + L=y, O=Example\\, Inc.';

test.each([
  ['its fingerprint', { fingerprint256: [fingerprint] }, true],
  ['one of two fingerprints', { fingerprint256: ['00'.repeat(32), fingerprint] }, true],
  ['another fingerprint', { fingerprint256: ['00'.repeat(32)] }, false],
  ['its subject', { subject }, true],
  [
    'its subject in another order',
    { subject: 'O=Example\\, Inc.,CN=reporting\\, and more,OU=x + L=y' },
    true,
  ],
  ['a part of its subject', { subject: 'CN=reporting\\, and more' }, false],
  ['the subject in another case', { subject: subject.toUpperCase() }, false],
  ['a name', { san: 'dns:reporting.internal' }, true],
  ['a name in another case', { san: 'DNS:REPORTING.INTERNAL' }, true],
  ['a name that another name holds', { san: 'dns:admin.internal' }, false],
  ['a name of another kind', { san: 'email:reporting.internal' }, false],
  ['a URI', { san: 'uri:spiffe://example/reporting,1' }, true],
  ['a URI in another case', { san: 'uri:spiffe://example/Reporting,1' }, false],
  ['an email address', { san: 'email:reporting@example.org' }, true],
  ['an address', { san: 'ip:10.0.0.1' }, true],
  ['an IPv6 address, however written', { san: 'ip:2001:0db8:0::1' }, true],
  ['another address', { san: 'ip:10.0.0.2' }, false],
  ['all of it', { fingerprint256: [fingerprint], subject, san: 'ip:10.0.0.1' }, true],
  ['not all of it', { fingerprint256: [fingerprint], subject, san: 'ip:10.0.0.2' }, false],
])('a certificate has %s: %j', (_title, rule, fits) => {
  expect(certificateTest(rule)(certificate)).toBe(fits);
});

test('a certificate without subject or names has none', () => {
  const bare = readCertificate({ fingerprint256: 'AB', subject: '', subjectAltName: undefined });
  expect([bare.subject, bare.names.size]).toEqual(['', 0]);
});
