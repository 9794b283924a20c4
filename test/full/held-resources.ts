import { readdir, readlink } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import type { GatewayProcess } from '../support/gateway-process.ts';

/** The resources of a gateway process after a garbage collection. */
export interface Held {
  /** File descriptors of sockets. */
  readonly sockets: number;
  /** Handles and requests that keep the process running. */
  readonly handles: number;
  /** Objects that are reachable: timers, promises, and sockets whether open or not. */
  readonly timers: number;
  readonly promises: number;
  readonly socketObjects: number;
  /** Client requests in flight. */
  readonly inFlight: number;
  /** Open upstream connections, requests on them, and requests that wait for one. */
  readonly connected: number;
  readonly running: number;
  readonly pending: number;
  /** Bytes in use of V8's heap, and outside of it for objects in it. */
  readonly heap: number;
  readonly external: number;
}

const PROBE = fileURLToPath(new URL('resource-probe.js', import.meta.url));

/** Options of `startGatewayProcess` with which `readHeld` can read it; the folder is for a socket. */
export function probed(folder: string): { readonly runner: readonly string[] } {
  return { runner: ['env', `NODE_OPTIONS=--import=${PROBE}`, `RESOURCE_PROBE=${socketIn(folder)}`] };
}

/** Reads what a gateway holds that was started with `probed(folder)`. Linux only. */
export async function readHeld(gateway: GatewayProcess, folder: string): Promise<Held> {
  const connections = (state: string) => gateway.metric('digest_gateway_upstream_connections', { state });
  return {
    inFlight: await gateway.metric('digest_gateway_requests_in_flight'),
    connected: await connections('connected'),
    running: await connections('running'),
    pending: await connections('pending'),
    sockets: await openSockets(gateway.pid),
    ...JSON.parse(await text(connect(socketIn(folder)))),
  };
}

function socketIn(folder: string): string {
  return join(folder, 'resources');
}

async function openSockets(pid: number): Promise<number> {
  const folder = `/proc/${pid}/fd`;
  // One may be closed while the others are read.
  const targets = (await readdir(folder)).map((each) => readlink(join(folder, each)).catch(() => ''));
  return (await Promise.all(targets)).filter((target) => target.startsWith('socket:')).length;
}
