import { expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { secureContextFor } from '../../src/transport/upstream-tls.ts';
import { makeClientCertificate } from '../support/issued-certificates.ts';
import { USUAL_TLS } from '../support/usual-tls.ts';

test('upstreams that are verified alike share a context; authorities, version and key have their own', () => {
  const { certificate, key } = makeClientCertificate();
  const alike = [USUAL_TLS, { ...USUAL_TLS, serverName: 'other.example', pins: ['ab'.repeat(32)] }];
  const shared = alike.map(secureContextFor);
  expect(shared[1]).toBe(shared[0]);
  const withKey = { ...USUAL_TLS, clientCertificate: { chain: certificate, key: new Secret(key) } };
  const others = [
    USUAL_TLS,
    { ...USUAL_TLS, ca: certificate },
    { ...USUAL_TLS, minVersion: 'TLSv1.3' as const },
  ];
  const distinct = [...others, withKey, withKey].map(secureContextFor);
  expect(new Set(distinct).size).toBe(distinct.length);
});
