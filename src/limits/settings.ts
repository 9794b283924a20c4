/** Limits of a client, or of all clients together at a deployment. Undefined: not limited. */
export interface LimitSettings {
  readonly rate: RateSettings | undefined;
  /** Requests under way at once. */
  readonly concurrent: number | undefined;
  /** Requests in one day, UTC. */
  readonly daily: number | undefined;
}

/** A token bucket: `burst` requests at once, and `perSecond` more with every second. */
export interface RateSettings {
  readonly perSecond: number;
  readonly burst: number;
}
