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

/** Between two looks at the log, in milliseconds: the log of a test keeps every line that it is given. */
const LOG_MS = 1_000;
const errors: string[] = [];

function collectErrors(): void {
  const lines = gateway.logged.splice(0).filter(({ level }) => level === 'error' || level === 'fatal');
  errors.push(...lines.map((line) => JSON.stringify(line)));
}
setInterval(collectErrors, LOG_MS).unref();

async function reply({ id, call }: GatewayCall): Promise<GatewayReply> {
  if (call === 'close') {
    await gateway.close();
    process.disconnect?.();
    return { id };
  }
  if (call === 'flight') return { id, flight: await gateway.plane.flightRecord() };
  collectErrors();
  // Anything less keeps compiled code and what only weak references hold.
  globalThis.gc?.({ type: 'major', flavor: 'last-resort', execution: 'sync' });
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  const inFlight = await gateway.metric('digest_gateway_requests_in_flight');
  return {
    id,
    state: {
      heapBytes: heapUsed + arrayBuffers,
      inFlight,
      errors: errors.splice(0),
    },
  };
}

process.on('message', async (call: GatewayCall) => {
  const answer = await reply(call);
  if (process.connected) process.send?.(answer);
});
// The lab was killed: nobody else would end this process.
process.once('disconnect', () => process.exit());
process.send?.({ id: 0, port: gateway.port } satisfies GatewayReply);
