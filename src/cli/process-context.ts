import type { ProcessContext } from '../credentials/sources.ts';

/** Returns the environment and user of this process, for sources of secrets. */
export function processContext(): ProcessContext {
  // Windows has no user ids.
  const uid = process.geteuid?.();
  return { environment: process.env, ...(uid !== undefined && { uid }) };
}
