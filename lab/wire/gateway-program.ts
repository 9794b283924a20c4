import { mutate } from '../simulation/hooks.ts';
import { AUDIT_REPLICA, type GatewayCall, type GatewayReply, readGatewayOptions } from './gateway-child.ts';

/*
 * Runs a gateway in a process of its own, so that a crash or an endless loop of it is seen, and a mutation can change its
 * code. The argument are its options. Unlike `serve` it has no handler of uncaught errors: one ends it.
 */

const { deployments, top, auditDirectory, mutation } = readGatewayOptions(process.argv[2] ?? '');
if (mutation !== undefined) mutate(mutation);
// These modules must be loaded after the hooks are in place.
const { startGateway } = await import('../../test/support/gateway.ts');
const { Secret } = await import('../../src/base/secret.ts');

const audit =
  auditDirectory === undefined
    ? undefined
    : ({
        directory: auditDirectory,
        replica: AUDIT_REPLICA,
        key: new Secret('0123456789abcdef'.repeat(4)),
        durability: 'write',
        onFailure: 'refuse',
        parameters: [],
        segment: { size: 2 ** 31, age: 86_400_000, keep: 86_400_000 },
      } as const);
const gateway = await startGateway(deployments, top, audit === undefined ? {} : { audit });

async function reply({ id, call }: GatewayCall): Promise<GatewayReply> {
  if (call === 'close') {
    await gateway.close();
    process.disconnect?.();
    return { id };
  }
  // The log is that of the test, so it is emptied first.
  const errors = gateway.logged.splice(0).filter(({ level }) => level === 'error' || level === 'fatal');
  // Anything less keeps compiled code and what only weak references hold.
  globalThis.gc?.({ type: 'major', flavor: 'last-resort', execution: 'sync' });
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  const inFlight = await gateway.metric('digest_gateway_requests_in_flight');
  return {
    id,
    state: {
      heapBytes: heapUsed + arrayBuffers,
      inFlight,
      errors: errors.map((line) => JSON.stringify(line)),
    },
  };
}

process.on('message', async (call: GatewayCall) => {
  const answer = await reply(call);
  if (process.connected) process.send?.(answer);
});
process.send?.({ id: 0, port: gateway.port } satisfies GatewayReply);
