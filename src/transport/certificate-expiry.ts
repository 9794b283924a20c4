const DAY_MS = 86_400_000;
/** Remaining days of an upstream's certificate below which `doctor` and the console warn. */
const SOON_DAYS = 30;

export interface Expiry {
  /** Negative if it has expired. */
  readonly daysLeft: number;
  readonly isSoon: boolean;
  /** For example `expires 2026-12-01, 9 days left`. */
  readonly text: string;
}

/** Judges the expiry of a certificate; both times are Unix milliseconds. */
export function expiryOf(expiresAt: number, now: number): Expiry {
  const daysLeft = Math.floor((expiresAt - now) / DAY_MS);
  const date = new Date(expiresAt).toISOString().slice(0, 10);
  const left = `${daysLeft} day${daysLeft === 1 ? '' : 's'} left`;
  const text = daysLeft < 0 ? `expired on ${date}` : `expires ${date}, ${left}`;
  return { daysLeft, isSoon: daysLeft < SOON_DAYS, text };
}
