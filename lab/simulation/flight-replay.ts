import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ParkedChallenge } from '../../src/challenges/store/store.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';
import type { Flight, RecordedRequest } from './flight.ts';
import { RecordedUpstream, verdictsOf } from './flight-upstream.ts';
import { type ClientRequest, Gateway, type HeldPasswords, TOTAL_TIMEOUT_MS } from './gateway.ts';
import { Observer, type RequestRecord } from './observer.ts';
import { type RunResult, withFaults } from './run.ts';
import { REALM } from './upstream/server.ts';
import { SimulatedProcess, World } from './world.ts';

/** Codes of requests that their client ended. */
const GIVEN_UP: ReadonlySet<number | string> = new Set(['client-closed', 'request-timeout']);
/** A process takes a nonce over at most so much earlier than in the record, in milliseconds. */
const TAKEN_MS = 1_000;

/**
 * Gives gateways again what they were given when their flights were recorded, all at once, and checks what must hold for
 * each of them and for all together.
 */
export async function replayFlights(
  flights: readonly Flight[],
  { trace }: { readonly trace: boolean },
): Promise<Omit<RunResult, 'flights'>> {
  const world = new World('flights', { trace });
  const attemptsWhenRefused = Math.max(...flights.map((flight) => flight.attemptsWhenRefused));
  const observer = new Observer(world, { attemptsWhenRefused, reissued: new Set(), isFarm: false });
  let requests = 0;
  await withFaults(observer, async () => {
    for (const [number, flight] of flights.entries()) {
      begin(world, observer, flight, number * NUMBERS);
      requests += flight.requests.length;
    }
    await world.run(endOf(flights) + 2 * TOTAL_TIMEOUT_MS);
    for (const record of observer.requests.filter(isUnended))
      observer.violate('every request ends', `request ${record.id} of ${record.process.name}`);
  });
  return { violations: observer.violations, events: world.events, requests, trace: world.lines };
}

/** Between the numbers of the requests of two processes. */
const NUMBERS = 100_000;

function begin(world: World, observer: Observer, flight: Flight, firstId: number): void {
  const { attemptsWhenRefused, offers, requests, exchanges } = flight;
  const process = new SimulatedProcess(world, `${flight.name}/0`);
  const upstream = new RecordedUpstream(process, exchanges, firstId);
  const settings = { attemptsWhenRefused, renewAhead: true, limits: undefined };
  const wrong = verdictsOf(exchanges).find(({ isWrong }) => isWrong);
  if (wrong !== undefined) process.deliver(wrong.at, '', () => void observer.wrong.add(process));
  const [first, ...later] = offers;
  process.deliver(first?.at ?? 0, 'begins', () => {
    const deps = {
      process,
      connect: upstream.connect,
      observer,
      openStore: () => new RecordedStore(world, flight.taken),
      openLimits: undefined,
    };
    const gateway = new Gateway(deps, settings, heldOf(first?.versions ?? []));
    gateway.start().catch((error) => observer.fault(process, error));
    for (const { at, versions } of later)
      process.deliver(at - world.now, 'reads its credential', () => gateway.offer(heldOf(versions)));
    for (const recorded of requests) {
      const request = requestOf(recorded, firstId);
      process.deliver(Math.max(0, request.at - world.now), `request ${request.id}`, () => {
        const record = observer.begin(request.id, process);
        void gateway.send(request, record).then(() => observer.end(record));
      });
    }
  });
}

/** A store that has what the record took from it. */
class RecordedStore extends MemoryChallengeStore {
  readonly #world: World;
  readonly #taken: { readonly at: number; readonly nonce: string; readonly nc: number }[];

  constructor(world: World, taken: Flight['taken']) {
    super();
    this.#world = world;
    this.#taken = [...taken];
  }

  override async take(): Promise<ParkedChallenge | undefined> {
    const [next] = this.#taken;
    if (next === undefined || next.at > this.#world.now + TAKEN_MS) return undefined;
    this.#taken.shift();
    const [challenge] = parseChallenges([
      `Digest realm="${REALM}", nonce="${next.nonce}", algorithm=MD5, qop="auth"`,
    ]);
    if (challenge === undefined) return undefined;
    return { challenge, cookies: [], cnonce: 'of another process', count: next.nc, ageMs: 0 };
  }
}

function endOf(flights: readonly Flight[]): number {
  const ends = flights.flatMap(({ requests, exchanges }) =>
    [...requests, ...exchanges].map(({ at, ended }) => Math.max(at, ended)),
  );
  return Math.max(...ends);
}

function isUnended(record: RequestRecord | undefined): record is RequestRecord {
  return record !== undefined && record.endedAt === undefined;
}

/** A version is its own password: the upstream of a record looks at none. */
function heldOf([current = 'first', next]: readonly string[]): HeldPasswords {
  return { current, next };
}

function requestOf(
  { request, method, body, at, ended, result }: RecordedRequest,
  firstId: number,
): ClientRequest {
  return {
    id: firstId + request,
    at,
    gateway: 0,
    client: 'free',
    method: method === 'GET' || method === 'HEAD' ? method : 'POST',
    target: '/a',
    body,
    givesUpAfter: GIVEN_UP.has(result) ? ended - at : undefined,
  };
}
