import { z } from 'zod';
import { parsed, section, whole } from './value-schemas.ts';

const RATE = 'a rate, such as 50/s, 600/min or 10000/h';
const SECONDS: Readonly<Record<string, number>> = { s: 1, min: 60, h: 3600 };
/** Upper bound of all numbers, above any realistic limit. */
const MOST = 1_000_000_000;

/** Schema of the limits of a client or a deployment. */
export const limitsSchema = () =>
  section({
    rate: parsed(z.string({ error: RATE }), parseRate)
      .exactOptional()
      .describe('The requests per s, min or h.'),
    burst: whole(1, MOST)
      .exactOptional()
      .describe(
        'How many requests may come at once after a pause. Without it, as many as in one second. It needs `rate`.',
      ),
    concurrent: whole(1, MOST)
      .exactOptional()
      .describe('The requests that may be in flight at the same time.'),
    daily: whole(1, MOST).exactOptional().describe('The requests per day. A day begins at midnight UTC.'),
  }).transform(({ rate: perSecond, burst, concurrent, daily }, context) => {
    if (perSecond === undefined && burst !== undefined) {
      context.addIssue({ code: 'custom', path: ['burst'], message: 'is for a rate only: give rate, too' });
    } else if (perSecond === undefined && concurrent === undefined && daily === undefined) {
      const message = 'limits nothing: give rate, concurrent or daily, or leave it out';
      context.addIssue({ code: 'custom', message });
    }
    const bucket = perSecond === undefined ? undefined : { perSecond, burst: burst ?? Math.ceil(perSecond) };
    return { rate: bucket, concurrent, daily };
  });

/** Returns requests per second. */
function parseRate(written: string): number {
  const [, count = '', unit = ''] = /^([1-9]\d{0,8})\/(s|min|h)$/.exec(written) ?? [];
  const seconds = SECONDS[unit];
  if (seconds === undefined) throw new RangeError(`must be ${RATE}`);
  return Number(count) / seconds;
}
