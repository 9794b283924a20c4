import { z } from 'zod';
import { type Accepted, type CrossIssue, repeatedIssues } from './cross-check.ts';
import { duration, NAME, oneOf, oneOrMore, parsed, section, text, whole } from './value-schemas.ts';

/** Retries of a request whose connection broke. */
export const retrySchema = () =>
  section({
    attempts: whole(0, 5)
      .default(1)
      .describe(
        'How often one request is sent again because its connection broke before the response began. Only idempotent requests are (GET, HEAD, OPTIONS, PUT, DELETE, PROPFIND, REPORT, SEARCH and QUERY), and others if no byte of them was sent. A connection that the upstream closed while it was idle, which includes one that ends within a second of the request, or on which the rest of an earlier response came, is made up for once in any case.',
      ),
    budget: percent()
      .prefault('10%')
      .describe(
        'The most retries, as a share of the requests of the last 10 s, so that retries cannot multiply the load of an upstream that fails. 3 per second are always allowed. When some clients have used them up, one that has taken less than a quarter gets more, up to twice as many in all.',
      ),
  });

/** The circuit of each address of an upstream. */
export const circuitSchema = () =>
  section({
    failures: percent()
      .prefault('50%')
      .describe('The circuit opens when this share of the exchanges in `window` fails.'),
    minimum: whole(1, 1_000_000)
      .default(20)
      .describe('It opens after no fewer exchanges in `window` than these.'),
    window: duration().default(10_000).describe('The time in which exchanges are counted.'),
    open: duration()
      .default(5_000)
      .describe(
        'How long the circuit stays open: requests of clients whose last exchange failed get 503 `upstream-circuit-open`, or go to the next address. Then one request of each tries whether the upstream is back.',
      ),
    statuses: z
      .array(whole(500, 599), { error: 'a list of statuses, such as [502, 503]' })
      .default([])
      .describe('Statuses that count as failures besides broken connections and timeouts.'),
  });

/** Health checks of each address of an upstream. */
export const healthSchema = () =>
  section({
    interval: z
      .union([duration(), z.literal(['off', false])], { error: 'a duration, such as 10s, or off' })
      .transform((value) => (typeof value === 'number' ? value : undefined))
      .prefault('10s')
      .describe(
        'How often an address without traffic is checked: whether it accepts a connection and its TLS can be trusted. All checks of a process together start at most 20 times per second. `off`: never.',
      ),
    path: text('a path that starts with /', /^\/[\w\-.~%!$&'()*+,;=:@/?]*$/)
      .exactOptional()
      .describe(
        'The check also sends a GET of this path without authentication. A Digest challenge and any status below 400 mean healthy.',
      ),
    failback: duration()
      .default(30_000)
      .describe(
        'With several addresses: how long an earlier one must be healthy before requests return to it.',
      ),
  });

/** A share, such as 50%; the output is between 0 and 1. */
const percent = () => {
  const error = 'a share from 1% to 100%, such as 50%';
  return parsed(z.string({ error }), (written) => {
    const share = Number(/^(\d{1,3})%$/.exec(written)?.[1] ?? 0);
    if (share < 1 || share > 100) throw new RangeError(`must be ${error}`);
    return share / 100;
  });
};

/** Most bytes of `bodyContains`. */
const LONGEST_TEXT = 256;

/** Schema of the outcomes of a deployment. */
export const outcomesSchema = () =>
  z.array(
    section({
      name: text(
        'a name of letters, digits, "-", "_" and ".", 64 at most, a letter or digit first',
        NAME,
      ).describe('The name of the outcome in metrics, logs, the audit log and the console.'),
      status: oneOrMore(whole(101, 599), 'a status from 101 to 599, or a list of them').describe(
        'The statuses of its responses, one or a list. A 401 never matches: the gateway handles it itself.',
      ),
      bodyContains: text(`a text of 1 to ${LONGEST_TEXT} bytes`, isSearchable)
        .exactOptional()
        .describe(
          'A text that the first 16 KiB of the body must contain, compared byte by byte in UTF-8. If the body is compressed (gzip, deflate, br), the first 16 KiB are decompressed for the comparison.',
        ),
      pause: duration()
        .exactOptional()
        .describe(
          'After such a response, requests get 503 `upstream-paused` for this time and are not sent. A valid Retry-After of the response takes its place, up to one hour.',
        ),
      scope: oneOf(['deployment', 'credential'])
        .exactOptional()
        .describe(
          'What `pause` pauses: the whole `deployment` (default), or requests with the same `credential`. It needs `pause`.',
        ),
      egress: oneOf(['next'])
        .exactOptional()
        .describe(
          'Such a response means that the upstream does not accept the local address of the connection. The address is passed over, and an idempotent request whose body is kept is sent again from the next one. It needs several `egress.localAddress`, and excludes `pause`.',
        ),
    }),
    { error: 'a list of outcomes, each with a name and a status' },
  );

function isSearchable(value: string): boolean {
  return value !== '' && Buffer.byteLength(value) <= LONGEST_TEXT;
}

export type Outcomes = z.output<ReturnType<typeof outcomesSchema>>;

/** Checks the outcomes of a deployment against each other. */
export function* outcomesIssues(outcomes: Accepted<Outcomes>): Generator<CrossIssue> {
  const message = 'is the name of another outcome, too: give each its own';
  yield* repeatedIssues(outcomes, 'name', ['outcomes'], message);
  yield* unreachableIssues(outcomes);
  for (const [index, outcome] of outcomes.entries()) {
    if (outcome === undefined) continue;
    if ('scope' in outcome && !('pause' in outcome)) {
      yield { path: ['outcomes', index, 'scope'], message: 'is for a pause only: give pause, too' };
    }
    if ('egress' in outcome && 'pause' in outcome) {
      const message = 'would keep requests from the next address, too: leave out pause or egress';
      yield { path: ['outcomes', index, 'pause'], message };
    }
  }
}

/** Finds outcomes that never match, because others above them take every response with their statuses. */
function* unreachableIssues(outcomes: Accepted<Outcomes>): Generator<CrossIssue> {
  const taken = new Set<number>();
  for (const [index, outcome] of outcomes.entries()) {
    const statuses = outcome?.status ?? [];
    if (statuses.length > 0 && statuses.every((status) => status !== undefined && taken.has(status))) {
      const message = 'is taken by outcomes above without bodyContains: put this one above them';
      yield { path: ['outcomes', index, 'status'], message };
    }
    if (outcome === undefined || 'bodyContains' in outcome) continue;
    for (const status of statuses) if (status !== undefined) taken.add(status);
  }
}
