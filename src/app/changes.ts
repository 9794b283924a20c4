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
