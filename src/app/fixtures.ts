import type { Config } from '../config/schema.ts';

/** Whether two configurations agree in all that cannot change while the gateway runs. */
export function sameFixtures(a: Config, b: Config): boolean {
  return fixturesOf(a) === fixturesOf(b);
}

function fixturesOf({ listen, control, redis, audit }: Config): string {
  const { address, port, tls, limits } = listen;
  // What is recorded of a request changes with a reload, where and how does not.
  const fixed = audit && { ...audit, parameters: undefined, pseudonymise: undefined };
  return JSON.stringify([address, port, tls, limits, control, redis, fixed]);
}
