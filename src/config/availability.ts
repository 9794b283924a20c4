import { z } from 'zod';
import { duration, parsed, SECTION, text, whole } from './value-schemas.ts';

/** Retries of a request whose connection broke. */
export const retrySchema = () =>
  z.strictObject(
    {
      attempts: whole(0, 5)
        .default(1)
        .describe(
          'How often one request is sent again because its connection broke before the response began. Only idempotent requests are, and others if no byte of them was sent. A connection that the upstream closed while it was idle is made up for once in any case.',
        ),
      budget: percent()
        .prefault('10%')
        .describe(
          'The most retries, as a share of the requests of the last 10 s, so that retries cannot multiply the load of an upstream that fails. 3 per second are always allowed.',
        ),
    },
    { error: SECTION },
  );

/** The circuit of each address of an upstream. */
export const circuitSchema = () =>
  z.strictObject(
    {
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
          'How long the circuit stays open: requests get 503 `upstream-circuit-open`, or go to the next address. Then one request tries whether the upstream is back.',
        ),
      statuses: z
        .array(whole(500, 599), { error: 'a list of statuses, such as [502, 503]' })
        .default([])
        .describe('Statuses that count as failures besides broken connections and timeouts.'),
    },
    { error: SECTION },
  );

/** Health checks of each address of an upstream. */
export const healthSchema = () =>
  z.strictObject(
    {
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
    },
    { error: SECTION },
  );

/** A share, such as 50%; the output is between 0 and 1. */
const percent = () => {
  const error = 'a share from 1% to 100%, such as 50%';
  return parsed(z.string({ error }), (written) => {
    const share = Number(/^(\d{1,3})%$/.exec(written)?.[1] ?? 0);
    if (share < 1 || share > 100) throw new RangeError(`must be ${error}`);
    return share / 100;
  });
};
