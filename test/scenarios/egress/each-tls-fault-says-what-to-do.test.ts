import { describe, expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../../src/simulator/settings.ts';
import { startGateway } from '../../support/running-gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { authors, problemOf, startPair } from '../../support/simulated-pair.ts';

const rows: [string, BehaviourChange, Record<string, unknown>, string][] = [
  ['expired', { tls: 'expired' }, {}, 'its certificate has expired. Ask its operator to renew it'],
  ['for another host', { tls: 'wrong-host' }, {}, 'its certificate is for another host. Check the host'],
  [
    'of an unknown authority',
    { tls: 'foreign' },
    {},
    'its certificate comes from an authority that is not trusted here. Name that authority in caFile',
  ],
  [
    'too old a version',
    { tlsMaxVersion: 'TLSv1.2' },
    { minVersion: 'TLSv1.3' },
    'it supports no version of TLS that is accepted here. Ask its operator for a newer version, or lower minVersion',
  ],
  [
    'a name that is not in it',
    {},
    { serverName: 'submissions.example.org' },
    'its certificate is for another host. Check the host, or name the one of the certificate in serverName',
  ],
];

describe('502 upstream-tls', () => {
  test.each(rows)('%s', async (_name, behaviour, tls, sentence) => {
    const { get, simulator } = await startPair(behaviour, { settings: { tls } });
    const problem = await problemOf(await get(authors));
    expect(problem).toMatchObject({ status: 502, code: 'upstream-tls' });
    expect(problem.detail).toContain(`The TLS connection to the upstream cannot be trusted: ${sentence}`);
    expect(problem.detail).not.toContain('127.0.0.1');
    expect(simulator.counts('submissions').requests).toBe(0);
  });

  test('no TLS at all', async () => {
    const upstream = await startUpstream((_request, response) => response.end());
    const gateway = await startGateway({ plain: { origin: upstream.origin.replace('http:', 'https:') } });
    const problem = await problemOf(await fetch(`${gateway.origin}/x`));
    await gateway.close();
    await upstream.close();
    expect(problem.detail).toContain('it does not speak TLS. Check scheme and port');
  });
});

test('serverName is what the certificate has to be for, and what is asked for', async () => {
  const { get } = await startPair(
    { tls: 'wrong-host' },
    { settings: { tls: { serverName: 'other.example.org' } } },
  );
  expect((await get(authors)).status).toBe(200);
});
