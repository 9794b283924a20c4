import { X509Certificate } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { AsnConvert, OctetString } from '@peculiar/asn1-schema';
import {
  AttributeTypeAndValue,
  AttributeValue,
  Certificate,
  Extension,
  Extensions,
  GeneralName,
  id_ce_subjectAltName,
  Name,
  OtherName,
  RelativeDistinguishedName,
  SubjectAlternativeName,
} from '@peculiar/asn1-x509';
import fc from 'fast-check';
import { certificateTest, readCertificate } from '../../src/identity/certificates.ts';
import { fuzzRuns } from '../support/fuzz.ts';
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
const certificate = readAccepted(x509);
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

/** Reads a certificate that can be read. */
function readAccepted(read: Pick<X509Certificate, 'fingerprint256' | 'raw'>) {
  const result = readCertificate(read);
  if ('refused' in result) throw new Error(result.refused);
  return result;
}

/** The test certificate with other names; its signature is wrong then. */
function withNames(subject: Name, ...names: SubjectAlternativeName[]): X509Certificate {
  const changed = AsnConvert.parse(x509.raw, Certificate);
  const { tbsCertificate } = changed;
  tbsCertificate.subject = subject;
  tbsCertificate.extensions = new Extensions(
    names.map(
      (each) =>
        new Extension({
          extnID: id_ce_subjectAltName,
          extnValue: new OctetString(AsnConvert.serialize(each)),
        }),
    ),
  );
  return new X509Certificate(Buffer.from(AsnConvert.serialize(changed)));
}

type Attribute = readonly [oid: string, value: Partial<AttributeValue>];

function nameOf(rdns: readonly (readonly Attribute[])[]): Name {
  return new Name(
    rdns.map(
      (rdn) =>
        new RelativeDistinguishedName(
          rdn.map(([type, value]) => new AttributeTypeAndValue({ type, value: new AttributeValue(value) })),
        ),
    ),
  );
}

const utf8 = (oid: string, utf8String: string): Attribute => [oid, { utf8String }];

test('a certificate without subject or names has none, and fits no rule about them', () => {
  const bare = readAccepted(withNames(nameOf([])));
  expect(bare.names.size).toBe(0);
  for (const rule of [{ subject: 'CN=' }, { subject: 'nonsense' }, { subject: '' }, { san: 'dns:' }]) {
    expect([rule, certificateTest(rule)(bare)]).toEqual([rule, false]);
  }
});

test.each([
  ['with every attribute of the certificate', 'CN=reporting+OU=x', true],
  ['with one more that has no known name', 'CN=reporting+OU=x+NOSUCH=x', false],
  ['with one more that is no attribute', 'CN=reporting+OU=x+y', false],
])('a rule %s: %s', (_title, subject, fits) => {
  const read = readAccepted(withNames(nameOf([[utf8('2.5.4.3', 'reporting'), utf8('2.5.4.11', 'x')]])));
  expect(certificateTest({ subject })(read)).toBe(fits);
});

test.each(['\u2000x', 'x\u00a0', '\u3000\0'])('a value with a space beyond ASCII is its own: %j', (value) => {
  const read = withNames(nameOf([[utf8('2.5.4.3', value)]]));
  expect(certificateTest({ subject: read.subject })(readAccepted(read))).toBe(true);
  const trimmed = withNames(nameOf([[utf8('2.5.4.3', value.trim())]]));
  expect(certificateTest({ subject: read.subject })(readAccepted(trimmed))).toBe(false);
});

test.each(['2.5.4', '0.9.2342.19200300.100.1', '1.3.6.1.4.1.311.60.2.1', '1.2.643.100'])(
  'every attribute under %s fits the subject that OpenSSL prints',
  (arc) => {
    const attributes = Array.from({ length: 110 }, (_, index) => utf8(`${arc}.${index + 1}`, 'x'));
    const read = withNames(nameOf(attributes.map((attribute) => [attribute])));
    expect(certificateTest({ subject: read.subject.replaceAll('\n', ', ') })(readAccepted(read))).toBe(true);
  },
);

const someText = fc.oneof(
  fc.string({ minLength: 1, maxLength: 12 }),
  fc.string({ unit: 'binary', minLength: 1, maxLength: 6 }),
  fc.string({ unit: fc.constantFrom(...',+="\\<>;# \n\0é字😀a0'), minLength: 1, maxLength: 8 }),
);
const someAttribute = fc
  .tuple(
    fc.constantFrom('2.5.4.3', '2.5.4.11', '2.5.4.10', '0.9.2342.19200300.100.1.25', '1.2.3.4.5'),
    fc.constantFrom('utf8String', 'bmpString', 'universalString'),
    someText,
  )
  // The other types have no surrogates.
  .filter(([, type, text]) => type === 'utf8String' || /^[^\ud800-\udfff]*$/.test(text))
  .map(([oid, type, text]): Attribute => [oid, { [type]: text }]);
const someName = fc.array(fc.array(someAttribute, { minLength: 1, maxLength: 2 }), {
  minLength: 1,
  maxLength: 3,
});

test('a certificate fits the subject that OpenSSL prints for it, and no other', () => {
  fc.assert(
    fc.property(someName, someName, (rdns, others) => {
      const [read, other] = [withNames(nameOf(rdns)), withNames(nameOf(others))];
      const fits = certificateTest({ subject: read.subject.replaceAll('\n', ', ') });
      expect(fits(readAccepted(read))).toBe(true);
      expect(fits(readAccepted(other))).toBe(read.subject === other.subject);
    }),
    { numRuns: fuzzRuns(100) },
  );
});

test('an attribute that is no string is written as its DER in hex', () => {
  const bits = Uint8Array.from([3, 2, 0, 0xab]).buffer;
  const odd = readAccepted(withNames(nameOf([[['2.5.4.45', { anyValue: bits }]]])));
  expect(certificateTest({ subject: 'x500UniqueIdentifier=#030200AB' })(odd)).toBe(true);
  const same = readAccepted(withNames(nameOf([[utf8('2.5.4.45', '#030200ab')]])));
  expect(certificateTest({ subject: 'x500UniqueIdentifier=#030200AB' })(same)).toBe(false);
});

const dns = (dNSName: string) => new GeneralName({ dNSName });
const commonName = nameOf([[utf8('2.5.4.3', 'x')]]);

test('names of other kinds are passed over', () => {
  const kerberos = new OtherName({ typeId: '1.3.6.1.5.2.2', value: Uint8Array.from([5, 0]).buffer });
  const names = new SubjectAlternativeName([
    new GeneralName({ otherName: kerberos }),
    new GeneralName({ directoryName: commonName }),
    new GeneralName({ registeredID: '1.2.3' }),
    dns('a.internal'),
  ]);
  expect([...readAccepted(withNames(commonName, names)).names]).toEqual(['dns:a.internal']);
});

test('a certificate whose names cannot be read is refused, even if its fingerprint fits', () => {
  const twice = withNames(
    commonName,
    new SubjectAlternativeName([dns('a.internal')]),
    new SubjectAlternativeName([dns('b.internal')]),
  );
  const cut = { fingerprint256: x509.fingerprint256, raw: x509.raw.subarray(0, 200) };
  for (const read of [twice, cut]) {
    expect(readCertificate(read)).toEqual({ refused: 'its names cannot be read' });
  }
});
