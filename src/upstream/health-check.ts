import type { Cancellation } from '../base/cancellation.ts';
import { type Clock, timerDelay } from '../base/clock.ts';
import { expectGatewayError } from '../base/expected-errors.ts';
import { fieldValues } from '../base/raw-headers.ts';
import { parseChallenges } from '../digest/challenge.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { Connections } from '../transport/connections.ts';
import { isLackOfHost } from '../transport/errors.ts';
import type { AddressState, Evidence, HealthOptions, StatusChange } from './address-state.ts';

/** The least time between two checks of this process, in milliseconds, so that thousands of addresses take no core. */
const SPACING_MS = 50;
/** The longest time to the first check, and to the next one after a failure, in milliseconds. */
const SOON_MS = 1_000;

/** Spreads the checks of all addresses of this process. */
export class CheckPace {
  readonly #clock: Clock;
  #next = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Milliseconds that the next check waits for its turn. */
  delay(): number {
    const now = this.#clock.now();
    const at = Math.max(now, this.#next);
    this.#next = at + SPACING_MS;
    return at - now;
  }
}

type CheckOptions = Pick<HealthOptions, 'path'> & { readonly interval: number };
type CheckedConnections = Pick<Connections, 'connect' | 'check'>;

/**
 * Checks one address again and again while no client request shows whether it serves, until `ended` is cancelled. It
 * never authenticates. Yields each change of the state that a check causes.
 */
export async function* checkAddress(
  state: AddressState,
  { interval, path }: CheckOptions,
  connections: CheckedConnections,
  pace: CheckPace,
  ended: Cancellation,
): AsyncGenerator<StatusChange> {
  await pause(Math.random() * Math.min(interval, SOON_MS), ended);
  while (ended.reason === undefined) {
    if (!state.takeTraffic()) {
      await pause(pace.delay(), ended);
      const change = await checkOnce(state, connections, path, ended);
      if (change !== undefined) yield change;
    }
    // Replicas that started together do not check together for ever.
    const jitter = 0.9 + Math.random() * 0.2;
    await pause((state.isInDoubt ? Math.min(interval, SOON_MS) : interval) * jitter, ended);
  }
}

async function checkOnce(
  state: AddressState,
  connections: CheckedConnections,
  path: string | undefined,
  ended: Cancellation,
): Promise<StatusChange | undefined> {
  // The end wakes those that wait for their turn: all of them would connect at once.
  if (ended.reason !== undefined) return undefined;
  const evidence: Evidence = path === undefined ? 'connection' : 'request';
  const problem = await problemOf(connections, path, ended);
  if (ended.reason !== undefined || problem === NOTHING_SEEN) return undefined;
  return problem === undefined ? state.checked(evidence) : state.checkFailed(evidence, problem);
}

/** Resolves after `ms` milliseconds, or when the checks end. It keeps no process alive. */
function pause(ms: number, ended: Cancellation): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      ended.remove(work);
      resolve();
    };
    const work = { cancel: end };
    const timer = setTimeout(end, timerDelay(ms)).unref();
    ended.add(work);
  });
}

/** In place of a problem: the check could not be made, since a connection or a file of this host was not free. */
const NOTHING_SEEN = Symbol('nothing seen');

/** Resolves to what is wrong with the address; undefined: nothing. */
async function problemOf(
  connections: CheckedConnections,
  path: string | undefined,
  ended: Cancellation,
): Promise<string | typeof NOTHING_SEEN | undefined> {
  try {
    if (path === undefined) {
      await connections.connect();
      return undefined;
    }
    const { status, headers } = await unauthenticated(connections, path, ended);
    if (status === 401) {
      const isDigest = parseChallenges(fieldValues(headers, 'www-authenticate')).length > 0;
      return isDigest ? undefined : 'The upstream answers 401 without a Digest challenge (health.path).';
    }
    return status < 400 ? undefined : `The upstream answers ${status} (health.path).`;
  } catch (error) {
    if (isLackOfHost(error)) return NOTHING_SEEN;
    const { code, detail } = expectGatewayError(error);
    if (code !== 'overloaded') return detail;
    // Clients hold all connections, perhaps with long responses: nothing is wrong if one more can be made.
    return (await problemOf(connections, undefined, ended)) ?? NOTHING_SEEN;
  }
}

/** Sends a GET without authentication, and reads no body but that of a 401. */
async function unauthenticated(
  connections: CheckedConnections,
  target: string,
  cancellation: Cancellation,
): Promise<UpstreamResponse> {
  const request = { client: '', cancellation };
  const response = await connections.check({ request, method: 'GET', target, headers: [], body: null });
  if (response.kind === 'lost') throw response.error;
  if (response.status === 401) await response.discard();
  else response.abandon();
  return response;
}
