import { describe, expect, test } from '@jest/globals';
import { setupOfWorker } from '../../src/fleet/worker-setup.ts';
import { auditOptions } from '../support/audit-log.ts';
import { setupFor } from '../support/gateway.ts';

describe('the setup of a worker', () => {
  test('has its part of connections and memory, at least 1, and an audit folder of its own', async () => {
    const setup = {
      ...(await setupFor(
        {
          a: { origin: 'https://a.example.org', settings: { connections: 2 } },
          b: {
            origin: 'https://b.example.org',
            settings: { connections: 10, match: { pathPrefix: '/b' } },
          },
        },
        { listen: { port: 0, limits: { connections: 100, connectionsPerAddress: 10, bodyMemory: '4MiB' } } },
      )),
      audit: auditOptions('/log'),
    };
    const { config, audit } = setupOfWorker(setup, 3, 4);
    const { connections, connectionsPerAddress, bodyMemory } = config.listen.limits;
    expect([connections, connectionsPerAddress, bodyMemory]).toEqual([25, 10, 2 ** 20]);
    expect(config.deployments['a']?.connections).toBe(1);
    expect(config.deployments['b']?.connections).toBe(3);
    expect(audit?.replica).toBe('r1@3');
    expect(setupOfWorker({ ...setup, audit: undefined }, 1, 1).audit).toBeUndefined();
  });
});
