import { expect, test } from '@jest/globals';
import { Secret } from '../../../src/base/secret.ts';
import { startApache } from '../../support/apache.ts';
import { makeClientCertificate } from '../../support/client-certificate.ts';
import { useScenes } from '../../support/gateway-scene.ts';
import { echoOf } from '../../support/real-server.ts';

const setScene = useScenes();

const shown = ({ key, certificate }: ReturnType<typeof makeClientCertificate>) => ({
  clientCertificate: { chain: certificate, key: new Secret(key) },
});

test.each(['TLSv1.2', 'TLSv1.3'] as const)('and takes it: %s', async (tlsVersion) => {
  const client = makeClientCertificate();
  const { ask } = await setScene(startApache({ client, tlsVersion }), shown(client));
  expect((await ask('/api/abstracts')).body).toBe(echoOf('GET', '/api/abstracts'));
});

test.each([
  ['TLSv1.2', 'none', {}],
  ['TLSv1.2', 'another one', shown(makeClientCertificate())],
  ['TLSv1.3', 'none', {}],
  ['TLSv1.3', 'another one', shown(makeClientCertificate())],
] as const)('%s, and is shown %s: the client is told', async (tlsVersion, _shown, change) => {
  const client = makeClientCertificate();
  const { ask, attempts } = await setScene(startApache({ client, tlsVersion }), change);
  const { status, body } = await ask('/api/abstracts');
  expect([status, JSON.parse(body)]).toEqual([
    502,
    expect.objectContaining({
      code: 'upstream-tls',
      detail: expect.stringMatching(/requires a client certificate.*certFile/),
    }),
  ]);
  expect(await attempts()).toEqual({ error: 1 });
});
