import { expect, test } from '@jest/globals';
import { keyOf, type VersionIdentity } from '../../src/upstream/credential-version.ts';

const upstream: VersionIdentity = {
  deployment: 'd',
  origin: 'o',
  egress: { localAddress: '192.0.2.1', proxy: undefined },
  tls: { ca: 'a', minVersion: 'TLSv1.2', serverName: 's', pins: ['p'], clientCertificate: undefined },
};

test('keys that differ in any part are different', () => {
  const changes: Partial<VersionIdentity>[] = [
    {},
    { deployment: '' },
    { origin: '' },
    { egress: { ...upstream.egress, localAddress: undefined } },
    { tls: { ...upstream.tls, ca: undefined } },
    { tls: { ...upstream.tls, minVersion: 'TLSv1.3' } },
    { tls: { ...upstream.tls, serverName: undefined } },
    { tls: { ...upstream.tls, pins: [] } },
  ];
  const keys = changes.map((change) => keyOf({ ...upstream, ...change }, 'c', 'v'));
  keys.push(keyOf(upstream, '', 'v'), keyOf(upstream, 'c', ''));
  expect(new Set(keys).size).toBe(changes.length + 2);
  expect(keyOf({ ...upstream }, 'c', 'v')).toBe(keys[0]);
});

test('characters that move from one part to the next make another key', () => {
  for (const between of ['', ',', '","', '"', ' ', '\n']) {
    const one = keyOf({ ...upstream, deployment: `a${between}b`, origin: 'c' }, 'c', 'v');
    const other = keyOf({ ...upstream, deployment: 'a', origin: `b${between}c` }, 'c', 'v');
    expect(one).not.toBe(other);
  }
});
