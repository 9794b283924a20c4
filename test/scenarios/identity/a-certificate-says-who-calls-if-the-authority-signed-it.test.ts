import { hash, X509Certificate } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { call, requestsOf } from '../../support/caller.ts';
import { createTestAuthority, writeTlsFiles } from '../../support/issued-certificates.ts';
import { openPair } from '../../support/simulated-pair.ts';
import { useRunning } from '../../support/wire.ts';

const KEY = 'dgk_0123456789abcdef0123456789abcdef01234567';
const servers = await createTestAuthority('CN=Servers');
const authority = await createTestAuthority('CN=Clients');
const stranger = await createTestAuthority('CN=Clients');
const dns = (value: string) => [{ type: 'dns', value }] as const;
const [reporting, renewed, pinned, other, expired, forged, server] = await Promise.all([
  authority.client(),
  authority.client(),
  authority.client({ subject: 'CN=pinned', names: dns('pinned.internal') }),
  authority.client({ subject: 'CN=other', names: dns('other.internal') }),
  authority.client({ notBefore: Date.now() - 7_200_000, notAfter: Date.now() - 3_600_000 }),
  stranger.client(),
  servers.server(),
]);
const fingerprint256 = new X509Certificate(pinned.cert).fingerprint256;
const clients = [
  { id: 'pinned', identify: { certificate: { fingerprint256 } } },
  {
    id: 'both',
    identify: { certificate: { san: 'dns:reporting.internal' }, apiKeySha256: hash('sha256', KEY) },
  },
  {
    id: 'reporting',
    identify: { certificate: { subject: 'O=Example, CN=reporting', san: 'dns:Reporting.Internal' } },
  },
  { id: 'keyed', identify: { apiKeySha256: hash('sha256', `${KEY}2`) } },
].map((client) => ({ ...client, allow: [{ deployment: 'submissions' }] }));

const running = useRunning(async () => {
  const files = await writeTlsFiles(server, authority.ca);
  const listen = { port: 0, tls: { ...files.section, minVersion: 'TLSv1.3' } };
  const pair = await openPair({ top: { anonymous: false, clients, listen } });
  const close = async () => {
    await pair.close();
    await files.remove();
  };
  return { ...pair, close };
});

const tls = (pair?: { cert: string; key: string }) => ({ ca: servers.ca, ...pair });

describe('a certificate', () => {
  test.each([
    ['of the right subject and name', reporting, 'reporting'],
    ['that was renewed', renewed, 'reporting'],
    ['of the right fingerprint', pinned, 'pinned'],
  ])('%s', async (_title, pair, client) => {
    const { gateway } = running();
    const before = await requestsOf(gateway, client);
    expect((await call(gateway, { tls: tls(pair) })).status).toBe(200);
    expect(await requestsOf(gateway, client)).toBe(before + 1);
  });

  test.each([
    ['of somebody else', other, '127.0.0.1, no API key, a certificate. '],
    ['that has expired', expired, 'a certificate that was not accepted (CERT_HAS_EXPIRED)'],
    [
      'of another authority with the same names',
      forged,
      'a certificate that was not accepted (UNABLE_TO_VERIFY_LEAF_SIGNATURE)',
    ],
    ['that is not there', undefined, '127.0.0.1, no API key. '],
  ])('%s is refused with the reason', async (_title, pair, reason) => {
    const { gateway } = running();
    const { status, code, detail } = await call(gateway, { tls: tls(pair) });
    expect([status, code, detail]).toEqual([401, 'client-unknown', expect.stringContaining(reason)]);
  });

  test('and a key, where both are asked for: each alone is somebody else, or nobody', async () => {
    const { gateway } = running();
    const headers = { 'X-Api-Key': KEY };
    expect((await call(gateway, { tls: tls(reporting), headers })).status).toBe(200);
    expect(await requestsOf(gateway, 'both')).toBe(1);
    expect((await call(gateway, { tls: tls(forged), headers })).status).toBe(401);
    expect((await call(gateway, { tls: tls(), headers })).status).toBe(401);
  });

  test('is not needed by a client that shows something else', async () => {
    const { gateway } = running();
    expect((await call(gateway, { tls: tls(), headers: { 'X-Api-Key': `${KEY}2` } })).status).toBe(200);
    expect(await requestsOf(gateway, 'keyed')).toBe(1);
  });
});

describe('the data plane’s TLS', () => {
  test('is not spoken below the version that is asked for', async () => {
    const old = { ...tls(reporting), maxVersion: 'TLSv1.2' as const };
    await expect(call(running().gateway, { tls: old })).rejects.toThrow(/protocol version/);
  });

  test('is not spoken by a client that speaks plain HTTP, which harms nobody', async () => {
    const { gateway } = running();
    const plain = { origin: gateway.origin.replace('https:', 'http:') };
    await expect(call(plain)).rejects.toThrow();
    expect((await call(gateway, { tls: tls(reporting) })).status).toBe(200);
    expect(await gateway.metric('digest_gateway_requests_total', { code: 'bad-request' })).toBe(0);
  });

  test('says in the metrics when its certificate expires', async () => {
    const name = 'digest_gateway_listen_certificate_expiry_timestamp_seconds';
    const expires = new X509Certificate(server.cert).validToDate.getTime() / 1000;
    expect(await running().gateway.metric(name)).toBe(expires);
  });
});
