import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { describe, expect, test } from '@jest/globals';
import { Agent, request } from 'undici';
import { type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import { startSimulator } from '../../src/simulator/simulator.ts';
import { authors, connect, openSession } from './session.ts';

describe('the certificate', () => {
  test.each([
    ['expired', 'CERT_HAS_EXPIRED'],
    ['foreign', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
    ['wrong-host', 'ERR_TLS_CERT_ALTNAME_INVALID'],
  ] satisfies [BehaviourChange['tls'], string][])('%s', async (tls, code) => {
    const { ask, simulator } = await openSession({ tls });
    await expect(ask(authors)).rejects.toMatchObject({ code });
    expect(simulator.counts('submissions')).toMatchObject({ connections: 1, requests: 0 });
  });

  test('is good by default, also for localhost, and can change while running', async () => {
    const { ask, simulator } = await openSession();
    expect((await ask(authors)).status).toBe(401);
    const dispatcher = new Agent({ connect: { ca: simulator.ca } });
    const named = await request(`https://localhost:${simulator.deployments.submissions.port}/`, {
      dispatcher,
    });
    await named.body.dump();
    await dispatcher.close();
    expect(named.statusCode).toBe(401);

    simulator.set('submissions', { tls: 'expired' });
    const later = connect(simulator);
    await expect(later.request({ path: '/', method: 'GET' })).rejects.toMatchObject({
      code: 'CERT_HAS_EXPIRED',
    });
    await later.destroy();
  });
});

test('the youngest version can be limited, and the limit can change while running', async () => {
  const { ask, simulator } = await openSession({ tlsMaxVersion: 'TLSv1.2' });
  expect((await ask(authors)).status).toBe(401);
  const strict = () => connect(simulator, { connect: { ca: simulator.ca, minVersion: 'TLSv1.3' } });
  const refused = strict();
  await expect(refused.request({ path: '/', method: 'GET' })).rejects.toMatchObject({
    code: 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION',
  });
  await refused.destroy();
  simulator.set('submissions', { tlsMaxVersion: 'TLSv1.3' });
  const accepted = strict();
  const { statusCode, body } = await accepted.request({ path: '/', method: 'GET' });
  await body.dump();
  await accepted.destroy();
  expect(statusCode).toBe(401);
});

test('plaintext is http', async () => {
  const { deployments } = defaultSettings();
  const simulator = await startSimulator({
    deployments: { plain: { ...deployments.submissions, plaintext: true } },
  });
  const { origin } = simulator.deployments.plain;
  const dispatcher = new Agent();
  const seen = await request(`${origin}/`, { dispatcher });
  await seen.body.dump();
  await dispatcher.close();
  await simulator.close();
  expect(origin).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
  expect(seen.statusCode).toBe(401);
});

test('the authority is in a file before a port opens, and the certificate has further names', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'simulator-'));
  const caFile = join(folder, 'ca.pem');
  const { deployments } = defaultSettings();
  const simulator = await startSimulator({ serverNames: ['upstream.internal'], caFile, deployments });
  const { port } = simulator.deployments.submissions;
  const socket = connectTls({ port, ca: await readFile(caFile), servername: 'upstream.internal' });
  await once(socket, 'secureConnect');
  socket.destroy();
  await simulator.close();
  await rm(folder, { recursive: true });
});
