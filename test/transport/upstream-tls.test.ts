import { expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { secureContextFor, type UpstreamTls } from '../../src/transport/upstream-tls.ts';
import { makeClientCertificate } from '../support/issued-certificates.ts';

const PLAIN: UpstreamTls = {
  ca: undefined,
  minVersion: 'TLSv1.2',
  serverName: undefined,
  pins: [],
  clientCertificate: undefined,
};

test('upstreams that are verified alike share a context; authorities, version and key have their own', () => {
  const { certificate, key } = makeClientCertificate();
  const alike = [PLAIN, { ...PLAIN, serverName: 'other.example', pins: ['ab'.repeat(32)] }];
  const shared = alike.map(secureContextFor);
  expect(shared[1]).toBe(shared[0]);
  const withKey = { ...PLAIN, clientCertificate: { chain: certificate, key: new Secret(key) } };
  const others = [PLAIN, { ...PLAIN, ca: certificate }, { ...PLAIN, minVersion: 'TLSv1.3' as const }];
  const distinct = [...others, withKey, withKey].map(secureContextFor);
  expect(new Set(distinct).size).toBe(distinct.length);
});
