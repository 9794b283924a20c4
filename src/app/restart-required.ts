import type { Config } from '../config/schema.ts';

/** True if the configurations differ in something that cannot change while the gateway runs. */
export function needsRestart(a: Config, b: Config): boolean {
  return fixedPartOf(a) !== fixedPartOf(b);
}

function fixedPartOf({ listen, control, redis, audit }: Config): string {
  const { address, port, tls, limits } = listen;
  // A reload changes which fields are recorded, but not the log's files and key.
  const fixed = audit && { ...audit, parameters: undefined, pseudonymise: undefined };
  return JSON.stringify([address, port, tls, limits, control, redis, fixed]);
}
