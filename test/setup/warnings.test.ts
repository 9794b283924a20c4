import { expect, test } from '@jest/globals';
import { formatPath } from '../../src/config/issues.ts';
import { configWarnings } from '../../src/setup/warnings.ts';
import { CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { parseConfig } from '../support/parsed-config.ts';

const text = `${CREDENTIALS}
${DEPLOYMENTS}
clients:
  - id: c
    identify:
      apiKeySha256: ${'aa'.repeat(32)}
      apiKeys: [{ sha256: ${'ab'.repeat(32)} }, { sha256: ${'cd'.repeat(32)}, expires: 2027-03-01 }]
    allow: [{ deployment: d }, { deployment: d, ends: 2027-03-11 }]
`;

/** The warnings of a time, each with its path. */
const warned = (time: string) =>
  configWarnings(parseConfig(text, 'c.yaml'), Date.parse(time)).map(
    ({ path, message }) => `${formatPath(path)}: ${message}`,
  );

const KEY = 'clients[0].identify.apiKeys[1]';
const RULE = 'clients[0].allow[1]';

test.each([
  ['2027-01-29T23:59:59.999Z', []],
  [
    '2027-01-30T00:00:00Z',
    [
      `${KEY}: ends 2027-03-01, so give c another one in time (digest-gateway client rotate c), or write a later expires`,
    ],
  ],
  [
    '2027-03-01T00:00:00Z',
    [
      `${KEY}: ended 2027-03-01, so it gets 401 client-key-expired: remove it, or write a later expires`,
      `${RULE}: ends 2027-03-11, and allows nothing from then on: write a later ends if it is to stay`,
    ],
  ],
  [
    '2027-03-11T00:00:00Z',
    [
      `${KEY}: ended 2027-03-01, so it gets 401 client-key-expired: remove it, or write a later expires`,
      `${RULE}: ended 2027-03-11, so it allows nothing: remove it, or write a later ends`,
    ],
  ],
])('from 30 days before the end of a key or rule on there is a warning: %s', (time, warnings) => {
  expect(warned(time)).toEqual(warnings);
});

const listeners = (...tls: string[]) => `listen:
${tls.map((more, index) => `  - { port: ${8443 + index}, tls: { certFile: c.pem, keyFile: k.pem, ${more} } }\n`).join('')}`;

/** The paths of the warnings of clients known by certificate, at these listeners. */
const warnedAt = (...tls: string[]) => {
  const clients = `clients:
  - { id: named, identify: { certificate: { subject: CN=named } }, allow: [{ deployment: d }] }
  - { id: pinned, identify: { certificate: { fingerprint256: ${'ab'.repeat(32)}, san: dns:pinned } }, allow: [{ deployment: d }] }
`;
  const config = parseConfig(`${CREDENTIALS}\n${DEPLOYMENTS}\n${listeners(...tls)}${clients}`, 'c.yaml');
  return configWarnings(config, Date.now()).map(({ path }) => formatPath(path));
};

test('a name that the authorities of several listeners can sign is a warning', () => {
  expect(warnedAt('clientCaFile: a.pem', 'clientCaFile: b.pem')).toEqual(['clients[0].identify.certificate']);
  expect(warnedAt('clientCaFile: a.pem', 'clientCaFile: a.pem')).toEqual([]);
});

test('a listener without the revocation lists that another one has for the same authority is a warning', () => {
  expect(warnedAt('clientCaFile: a.pem, crlFile: a.crl', 'clientCaFile: a.pem')).toEqual(['listen[1].tls']);
  const both = 'clientCaFile: a.pem, crlFile: a.crl';
  expect(warnedAt(both, both)).toEqual([]);
});
