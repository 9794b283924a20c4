import { isDeepStrictEqual } from 'node:util';
import { canonicalAddress, isLoopbackHost, parseAddress } from '../base/network.ts';
import { socketPath } from '../base/open-port.ts';
import type { Accepted, CrossIssue } from './cross-check.ts';
import { formatPath, type Path } from './issues.ts';
import { type Listen, listenerPath, SHARED_KEYS } from './listen.ts';
import type { Config } from './schema.ts';

type Listeners = NonNullable<Accepted<Config>['listen']>;
type Listener = Accepted<Listen>;

/** Checks the listeners of the data plane, each alone, against each other, and against the control plane. */
export function* listenerIssues({ listen = [], control }: Accepted<Config>): Generator<CrossIssue> {
  for (const [index, listener] of listen.entries()) {
    if (listener === undefined) continue;
    const path = ['listen', index];
    yield* revocationIssues(listener, path, nameOf(listen, index));
    yield* proxyIssues(listener, path);
    yield* placeIssues(listener, path, listen, index);
    yield* sharedKeyIssues(listener, path, listen, index);
    const taken = sharedPlace(listener, control);
    if (taken !== undefined) yield placeIssue(['control'], taken, nameOf(listen, index));
  }
}

/** Returns the paths of the listeners that other machines can reach, such as `listen[1]`. */
export function exposedListeners({ listen = [] }: Accepted<Config>): string[] {
  return listen.flatMap((listener, index) =>
    isExposedAddress(listener?.address) ? [nameOf(listen, index)] : [],
  );
}

/** True if other machines can reach the address. */
export function isExposedAddress(address: string | undefined): boolean {
  return address !== undefined && parseAddress(address) !== undefined && !isLoopbackHost(address);
}

function nameOf(listeners: Listeners, index: number): string {
  return formatPath(listenerPath(listeners, index));
}

function* revocationIssues({ tls }: Listener, path: Path, name: string): Generator<CrossIssue> {
  if (tls === undefined || !('crlFile' in tls) || 'clientCaFile' in tls) return;
  yield {
    path: [...path, 'tls', 'crlFile'],
    message: `needs ${name}.tls.clientCaFile: without it no client is asked for a certificate`,
  };
}

function* proxyIssues(
  { address, proxyProtocol, trustedProxies }: Listener,
  path: Path,
): Generator<CrossIssue> {
  if (address !== undefined && socketPath(address) !== undefined && (proxyProtocol?.length ?? 0) > 0) {
    yield {
      path: [...path, 'proxyProtocol'],
      message: 'names networks, and clients of a UNIX socket are of none: leave it out, or listen on a port',
    };
  }
  for (const [key, networks = []] of Object.entries({ trustedProxies, proxyProtocol })) {
    for (const [at, network] of networks.entries()) {
      if (network?.bits !== 0) continue;
      const message = 'is every address, so that everyone could claim any: name the proxies only';
      yield { path: [...path, key, at], message };
    }
  }
}

/** Finds an earlier listener at the same place. */
function* placeIssues(
  listener: Listener,
  path: Path,
  listeners: Listeners,
  index: number,
): Generator<CrossIssue> {
  for (const [other, earlier] of listeners.slice(0, index).entries()) {
    const taken = sharedPlace(listener, earlier);
    if (taken === undefined) continue;
    yield placeIssue(path, taken, nameOf(listeners, other));
    return;
  }
}

/** A later listener that differs from the first one in what holds for all of them. */
function* sharedKeyIssues(
  listener: Listener,
  path: Path,
  [first]: Listeners,
  index: number,
): Generator<CrossIssue> {
  if (first === undefined || index === 0) return;
  for (const key of SHARED_KEYS) {
    if (listener[key] === undefined || first[key] === undefined) continue;
    if (isDeepStrictEqual(plain(listener[key]), plain(first[key]))) continue;
    const message = `differs from listen[0].${key}, and it holds for the whole gateway: give it at one listener`;
    yield { path: [...path, key], message };
  }
}

/** Networks are compared as texts. */
function plain(value: Listener[(typeof SHARED_KEYS)[number]]): unknown {
  return Array.isArray(value) ? value.map(String) : value;
}

type Place = Readonly<Partial<Record<'address', string | undefined> & Record<'port', number | undefined>>>;

/** Returns what two planes or listeners both would listen on; undefined: each has its own. */
function sharedPlace(one: Place, other: Place | undefined): 'socket' | 'port' | undefined {
  if (one.address === undefined || other?.address === undefined) return undefined;
  if (socketPath(one.address) !== undefined) return one.address === other.address ? 'socket' : undefined;
  if (socketPath(other.address) !== undefined || one.port !== other.port || !one.port) return undefined;
  const [a, b] = [canonicalAddress(one.address), canonicalAddress(other.address)];
  return overlap(a, b) || overlap(b, a) ? 'port' : undefined;
}

/** True if `one` is the other address, or stands for all addresses, with it among them. */
function overlap(one: string, other: string): boolean {
  if (one === other || one === '::') return true;
  return one === '0.0.0.0' && parseAddress(other)?.kind() === 'ipv4';
}

function placeIssue(path: Path, taken: 'socket' | 'port', owner: string): CrossIssue {
  const key = taken === 'socket' ? 'address' : 'port';
  return { path: [...path, key], message: `is the ${taken} of ${owner}, too: give each its own` };
}
