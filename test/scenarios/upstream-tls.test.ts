import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:tls';
import { describe, expect, test } from '@jest/globals';
import { createCertificates } from '../../src/simulator/certificates.ts';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import type { Simulator } from '../../src/simulator/simulator.ts';
import { whyNoTls } from '../../src/transport/errors.ts';
import { pinOf } from '../../src/transport/upstream-tls.ts';
import { startGateway } from '../support/gateway.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { authors, problemOf, type RunningScene, startScene } from '../support/scene.ts';
import { startUpstream } from '../support/scripted-upstream.ts';
import { until } from '../support/until.ts';

describe('tls.pins', () => {
  type Submissions = Simulator<'submissions' | 'abstracts'>;

  /** The pin of the server's own certificate. */
  async function ownPin({ deployments, ca }: Submissions): Promise<string> {
    const socket = connect({ host: '127.0.0.1', port: deployments.submissions.port, ca });
    await once(socket, 'secureConnect');
    const certificate = socket.getPeerX509Certificate();
    socket.destroy();
    if (certificate === undefined) throw new Error('no certificate');
    return pinOf(certificate);
  }

  /** A gateway before the simulator that insists on these pins. */
  async function ask({ simulator }: RunningScene, pins: readonly string[]): Promise<Response> {
    const { origin } = simulator.deployments.submissions;
    const settings = { tls: { pinSha256: pins } };
    const gateway = await startGateway({ pinned: { origin, ca: simulator.ca, settings } });
    const answers = await Promise.all([1, 2, 3].map(() => fetch(`${gateway.origin}${authors}`)));
    await gateway.close();
    expect(new Set(answers.map(({ status }) => status)).size).toBe(1);
    return answers[0] ?? Response.error();
  }

  const BACKUP = `${'B'.repeat(43)}=`;

  test('accept the key of the certificate or of its authority; one pin is enough', async () => {
    const pair = await startScene();
    const own = await ownPin(pair.simulator);
    const authority = pinOf(new X509Certificate(pair.simulator.ca));
    for (const pins of [[own], [BACKUP, own], [authority], [authority, BACKUP]]) {
      expect((await ask(pair, pins)).status).toBe(200);
    }
  });

  test('refuse another key before anything is sent', async () => {
    const pair = await startScene();
    const { ca: other } = await createCertificates();
    const problem = await problemOf(await ask(pair, [BACKUP, pinOf(new X509Certificate(other))]));
    expect(problem).toMatchObject({ status: 502, code: 'upstream-tls' });
    expect(problem.detail).toContain('tls.pinSha256');
    expect(pair.simulator.counts('submissions').requests).toBe(0);
  });

  test('do not replace trust in the authority', async () => {
    const pair = await startScene({ behaviour: { tls: 'expired' } });
    const problem = await problemOf(await ask(pair, [pinOf(new X509Certificate(pair.simulator.ca))]));
    expect(problem.detail).toContain(whyNoTls('CERT_HAS_EXPIRED'));
  });
});

describe('an error', () => {
  /** Each with a code of Node or OpenSSL that has the same explanation. */
  const rows: [string, BehaviourChange, Record<string, unknown>, string][] = [
    ['expired', { tls: 'expired' }, {}, 'CERT_HAS_EXPIRED'],
    ['for another host', { tls: 'wrong-host' }, {}, 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ['of an unknown authority', { tls: 'foreign' }, {}, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
    [
      'too old a version',
      { tlsMaxVersion: 'TLSv1.2' },
      { minVersion: 'TLSv1.3' },
      'ERR_SSL_UNSUPPORTED_PROTOCOL',
    ],
    [
      'a name that is not in it',
      {},
      { serverName: 'submissions.example.org' },
      'ERR_TLS_CERT_ALTNAME_INVALID',
    ],
  ];

  describe('is 502 upstream-tls and says what to do:', () => {
    test.each(rows)('%s', async (_name, behaviour, tls, cause) => {
      const { get, simulator, gateway } = await startScene({ behaviour, settings: { tls } });
      const problem = await problemOf(await get(authors));
      expect(problem).toMatchObject({ status: 502, code: 'upstream-tls' });
      expect(problem.detail).toContain(whyNoTls(cause));
      expect(problem.detail).not.toContain('127.0.0.1');
      expect(gateway.logged.map(({ code }) => code)).toContain('upstream-tls');
      expect(simulator.counts('submissions').requests).toBe(0);
    });

    test('no TLS at all', async () => {
      const upstream = await startUpstream((_request, response) => response.end());
      const gateway = await startGateway({ plain: { origin: upstream.origin.replace('http:', 'https:') } });
      const problem = await problemOf(await fetch(`${gateway.origin}/x`));
      await gateway.close();
      await upstream.close();
      expect(problem.detail).toContain(whyNoTls('ERR_SSL_WRONG_VERSION_NUMBER'));
    });
  });

  test('arises from a certificate without alternative names, whatever its common name', async () => {
    const serverName = 'submissions.example.org';
    const authority = await createTestAuthority();
    const named = { type: 'dns', value: serverName } as const;
    for (const [names, status] of [
      [[named], 200],
      [[], 502],
    ] as const) {
      const { cert, key } = await authority.server({ subject: `CN=${serverName}`, names });
      const upstream = await startUpstream((_request, response) => response.end(), { cert, key });
      const deployment = { origin: upstream.origin, ca: authority.ca, settings: { tls: { serverName } } };
      const gateway = await startGateway({ deployment });
      const response = await fetch(`${gateway.origin}/x`);
      await gateway.close();
      await upstream.close();
      expect(response.status).toBe(status);
      if (status === 502)
        expect((await problemOf(response)).detail).toContain(whyNoTls('ERR_TLS_CERT_ALTNAME_INVALID'));
    }
  });

  test('does not arise from another name if tls.serverName is set', async () => {
    const { get } = await startScene({
      behaviour: { tls: 'wrong-host' },
      settings: { tls: { serverName: 'other.example.org' } },
    });
    expect((await get(authors)).status).toBe(200);
  });
});

describe('metrics report', () => {
  test('the expiry of the certificate of the upstream', async () => {
    const { get, gateway, simulator } = await startScene();
    const name = 'digest_gateway_upstream_certificate_expiry_timestamp_seconds';
    const text = await (await fetch(`${gateway.control}/metrics`)).text();
    expect(text).not.toContain(`${name}{`);
    await get(authors);
    const seconds = await gateway.metric(name, { deployment: 'submissions' });
    // The simulator's certificate lives as long as its authority.
    expect(seconds).toBe(Date.parse(new X509Certificate(simulator.ca).validTo) / 1000);
  });

  test('connections, requests on them, and requests waiting for one', async () => {
    const { get, gateway, simulator } = await startScene({ settings: { connections: 1 } });
    const of = (state: string): Promise<number> =>
      gateway.metric('digest_gateway_upstream_connections', { deployment: 'submissions', state });
    expect(await of('connected')).toBe(0);
    await get(authors);
    simulator.set('submissions', { faults: [{ kind: 'hang', times: 1 }] });
    const leaving = new AbortController();
    const first = get('/echo', { signal: leaving.signal }).catch(() => 'left');
    await until(() => simulator.counts('submissions').faults.hang === 1);
    const second = get('/echo');
    await until(async () => (await of('pending')) === 1);
    expect([await of('connected'), await of('running'), await of('free')]).toEqual([1, 1, 0]);
    leaving.abort();
    expect(await first).toBe('left');
    expect((await second).status).toBe(200);
    expect([await of('connected'), await of('running'), await of('free')]).toEqual([1, 0, 1]);
  });
});
