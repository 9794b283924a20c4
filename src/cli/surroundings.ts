import type { Surroundings } from '../credentials/sources.ts';

/** What this process offers to the sources of secrets. */
export function surroundings(): Surroundings {
  // Windows has no user numbers.
  const uid = process.geteuid?.();
  return { environment: process.env, ...(uid !== undefined && { uid }) };
}
