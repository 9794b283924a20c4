import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:tls';
import { expect, test } from '@jest/globals';
import { createCertificates } from '../../../src/simulator/certificates.ts';
import type { Simulator } from '../../../src/simulator/simulator.ts';
import { pinOf } from '../../../src/transport/pins.ts';
import { startGateway } from '../../support/running-gateway.ts';
import { authors, type Pair, problemOf, startPair } from '../../support/simulated-pair.ts';

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
async function ask({ simulator }: Pair, pins: readonly string[]): Promise<Response> {
  const { origin } = simulator.deployments.submissions;
  const settings = { tls: { pinSha256: pins } };
  const gateway = await startGateway({ pinned: { origin, ca: simulator.ca, settings } });
  const answers = await Promise.all([1, 2, 3].map(() => fetch(`${gateway.origin}${authors}`)));
  await gateway.close();
  expect(new Set(answers.map(({ status }) => status)).size).toBe(1);
  return answers[0] ?? Response.error();
}

const BACKUP = `${'B'.repeat(43)}=`;

test('by the key of its certificate, or of the authority above it; one of the pins is enough', async () => {
  const pair = await startPair();
  const own = await ownPin(pair.simulator);
  const authority = pinOf(new X509Certificate(pair.simulator.ca));
  for (const pins of [[own], [BACKUP, own], [authority], [authority, BACKUP]]) {
    expect((await ask(pair, pins)).status).toBe(200);
  }
});

test('another key: nothing is sent, and the client is told what to do', async () => {
  const pair = await startPair();
  const { ca: other } = await createCertificates();
  const problem = await problemOf(await ask(pair, [BACKUP, pinOf(new X509Certificate(other))]));
  expect(problem).toMatchObject({ status: 502, code: 'upstream-tls' });
  expect(problem.detail).toContain('no key in its certificate chain is in tls.pinSha256');
  expect(pair.simulator.counts('submissions').requests).toBe(0);
});

test('a certificate that is trusted for no reason but its pin is not', async () => {
  const pair = await startPair({ tls: 'expired' });
  const problem = await problemOf(await ask(pair, [pinOf(new X509Certificate(pair.simulator.ca))]));
  expect(problem.detail).toContain('has expired');
});
