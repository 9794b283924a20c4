import { z } from 'zod';
import { CREDENTIAL_KINDS, FLIGHT_FORMAT } from '../../src/handshake/flight-events.ts';

/*
 * Flight records of gateways, real or simulated (`src/handshake/flight-recorder.ts`), as the simulation reads them.
 */

const result = z.union([z.number(), z.string()]);
const place = { deployment: z.string(), credential: z.string() };

const head = z.object({
  format: z.literal(FLIGHT_FORMAT),
  time: z.iso.datetime(),
  at: z.number(),
  isCut: z.boolean(),
  areChangesCut: z.boolean(),
  credentials: z.array(
    z.object({ ...place, versions: z.array(z.string()), attemptsWhenRefused: z.number() }),
  ),
});

const requestEvent = z.object({
  kind: z.literal('request'),
  at: z.number(),
  request: z.number(),
  ...place,
  method: z.string(),
  body: z.enum(['none', 'kept', 'streamed']),
  ended: z.number(),
  result,
});

const exchangeEvent = z.object({
  kind: z.literal('exchange'),
  at: z.number(),
  request: z.number(),
  deployment: z.string(),
  method: z.string(),
  nonce: z.string(),
  nc: z.number(),
  ended: z.number(),
  result,
  offered: z.string(),
  stale: z.boolean(),
  counted: z.boolean(),
});

const credentialEvent = z.object({
  kind: z.enum(CREDENTIAL_KINDS),
  at: z.number(),
  ...place,
  owner: z.number(),
  versions: z.array(z.string()),
  by: z.string(),
  result: z.string(),
  count: z.number(),
});

const takenEvent = z.object({
  kind: z.literal('taken'),
  at: z.number(),
  ...place,
  nonce: z.string(),
  nc: z.number(),
});

const event = z.discriminatedUnion('kind', [requestEvent, exchangeEvent, credentialEvent, takenEvent]);

export type RecordedRequest = z.output<typeof requestEvent>;
export type RecordedExchange = z.output<typeof exchangeEvent>;

/** What one process did with one credential. Times are milliseconds since the first event of all records. */
export interface Flight {
  readonly name: string;
  readonly attemptsWhenRefused: number;
  readonly offers: readonly { readonly at: number; readonly versions: readonly string[] }[];
  readonly requests: readonly RecordedRequest[];
  readonly exchanges: readonly RecordedExchange[];
  /** Nonces that were taken over from other processes, with their counts. */
  readonly taken: readonly { readonly at: number; readonly nonce: string; readonly nc: number }[];
}

/** What one process recorded. */
export interface FlightRecord {
  readonly head: z.output<typeof head>;
  readonly events: readonly z.output<typeof event>[];
}

/**
 * Reads flight records, one behind the other.
 * @throws ZodError, SyntaxError when the text is no flight record
 */
export function readRecords(text: string): FlightRecord[] {
  const records: { head: z.output<typeof head>; events: z.output<typeof event>[] }[] = [];
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const value: unknown = JSON.parse(line);
    const last = records.at(-1);
    if (typeof value === 'object' && value !== null && 'format' in value)
      records.push({ head: head.parse(value), events: [] });
    else if (last !== undefined) last.events.push(event.parse(value));
  }
  return records;
}

/**
 * Reads flight records as `readRecords`: a flight for each credential of each process, on one clock.
 * @throws ZodError, SyntaxError when the text is no flight record
 */
export function readFlights(text: string): Flight[] {
  const records = readRecords(text);
  const begins = records.flatMap(({ head: { time, at, isCut }, events }) => {
    // Changes of credentials go back further than the requests of a record that is cut.
    const first = events.find((each) => !isCut || !('owner' in each));
    return first === undefined ? [] : [Date.parse(time) - at + first.at];
  });
  const begin = Math.min(...begins);
  return records.flatMap((record, number) => flightsOf(record, `gateway-${number}`, begin));
}

function flightsOf(
  { head: { time, at, credentials }, events }: FlightRecord,
  name: string,
  begin: number,
): Flight[] {
  const shift = Date.parse(time) - at - begin;
  return credentials.flatMap(({ deployment, credential, versions, attemptsWhenRefused }) => {
    const own = events.filter(
      (each) => each.deployment === deployment && (!('credential' in each) || each.credential === credential),
    );
    const requests = own.flatMap((each) => (each.kind === 'request' ? [shifted(each, shift)] : []));
    if (requests.length === 0) return [];
    const numbers = new Set(requests.map(({ request }) => request));
    const exchanges = own.flatMap((each) => (each.kind === 'exchange' ? [shifted(each, shift)] : []));
    const taken = own.flatMap((each) => (each.kind === 'taken' ? [{ ...each, at: each.at + shift }] : []));
    const marks = new Set(
      exchanges
        .filter(({ request }) => numbers.has(request))
        .flatMap(({ nonce, offered }) => [nonce, offered]),
    );
    marks.delete('');
    // A request of the gateway's own is of the credential whose nonces it met.
    const isOwn = ({ request, nonce, offered }: RecordedExchange): boolean =>
      request === 0
        ? marks.has(nonce) || marks.has(offered) || credentials.length === 1
        : numbers.has(request);
    const offers = own.flatMap((each) =>
      each.kind === 'offer' ? [{ at: Math.max(0, each.at + shift), versions: each.versions }] : [],
    );
    return {
      name,
      attemptsWhenRefused,
      offers: offers.length === 0 ? [{ at: 0, versions }] : offers,
      requests,
      exchanges: exchanges.filter(isOwn),
      taken,
    };
  });
}

function shifted<T extends { readonly at: number; readonly ended: number }>(each: T, by: number): T {
  return { ...each, at: each.at + by, ended: each.ended === 0 ? 0 : each.ended + by };
}
