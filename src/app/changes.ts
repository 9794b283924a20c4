import type { Steps } from '../base/steps.ts';
import { changesBetween } from '../config/changes.ts';
import type { Config } from '../config/schema.ts';
import type { CredentialSet } from '../credentials/credentials.ts';

interface InForce {
  readonly config: Config;
  readonly credentials: ReadonlyMap<string, CredentialSet>;
}

/** Lists the names of changes, including credentials whose secret changed in its source only. */
export function* changesOf(before: InForce, after: InForce): Steps<string[]> {
  const changed = yield* changesBetween(before.config, after.config);
  const told = new Set(changed);
  for (const [name, { current, next }] of after.credentials) {
    const old = before.credentials.get(name);
    const same = old?.current.version === current.version && old.next?.version === next?.version;
    if (!same && !told.has(`credentials.${name}`)) changed.push(`credentials.${name}`);
  }
  return changed;
}

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
