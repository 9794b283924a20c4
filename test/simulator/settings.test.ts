import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { defaultSettings, demoPorts, simulatorSettings } from '../../src/simulator/settings.ts';
import { startSimulator } from '../../src/simulator/simulator.ts';

const { deployments } = defaultSettings();

describe('the settings', () => {
  test('have defaults for everything but the kind and family of a deployment', () => {
    const settings = simulatorSettings.parse({ deployments: { one: deployments.submissions } });
    expect(settings).toMatchObject({ host: '127.0.0.1', sidePort: 0 });
    expect(settings.deployments['one']).toMatchObject({
      qop: 'none',
      algorithms: ['MD5'],
      realm: 'ExampleApiService',
      nonceLifetimeMs: 300_000,
      ids: { quoted: true, separator: ',', max: 25 },
      accounts: [{ username: 'demo-user', password: 'demo-api-key', sites: ['demo'] }],
      faults: [],
    });
  });

  test('the ones of the demo name its ports', () => {
    const demo = simulatorSettings.parse(defaultSettings(demoPorts));
    expect(demo.deployments['submissions']).toMatchObject({ port: 9443, family: 'manuscripts' });
    expect(demo.deployments['abstracts']).toMatchObject({ port: 9444, family: 'abstracts' });
  });

  test.each([
    [{ nonceLifetime: 1 }],
    [{ algorithms: [] }],
    [{ algorithms: ['SHA-1'] }],
    [{ realm: 'a\nb' }],
    [{ nonceLifetimeMs: -1 }],
    [{ allowedAddresses: ['here'] }],
    [{ allowedAddresses: ['127.0.0.1/x'] }],
    [{ faults: [{ kind: 'slow' }] }],
    [{ faults: [{ kind: 'delay', ms: 1, status: 503 }] }],
    [{ family: 'a/b' }],
  ])('refuse %j', (wrong) => {
    const settings = { deployments: { one: { ...deployments.submissions, ...wrong } } };
    expect(simulatorSettings.safeParse(settings).success).toBe(false);
  });
});

describe('a simulator', () => {
  test('that cannot have its port frees the others', async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    const { port } = taken.address() as AddressInfo;
    const starting = startSimulator({ sidePort: port, deployments });
    await expect(starting).rejects.toMatchObject({ code: 'EADDRINUSE' });
    taken.close();
    await once(taken, 'close');
  });

  test('knows only its deployments, and can be closed twice', async () => {
    const simulator = await startSimulator<string>({ deployments });
    expect(() => simulator.counts('other')).toThrow('no deployment other');
    await simulator.close();
    await simulator.close();
  });

  test('closes under open connections', async () => {
    const simulator = await startSimulator({ deployments });
    const socket = (await import('node:net')).connect(simulator.deployments.submissions.port, '127.0.0.1');
    await once(socket, 'connect');
    const closed = once(socket, 'close');
    await simulator.close();
    await closed;
  });
});
