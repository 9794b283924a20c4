import type { Log } from '../base/log.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { DeploymentRotation } from '../upstream/credential-selectors.ts';

/** Counts and logs what became of a new version of a credential. */
export function tellRotation(rotation: DeploymentRotation, metrics: Metrics, log: Log): void {
  const { deployment, credential, result } = rotation;
  metrics.credentialRotations.inc({ deployment, credential, result });
  if (result === 'promoted') {
    log.info(rotation, 'the upstream accepted another version of the credential: it is in use from now on');
  } else {
    log.error(
      rotation,
      'the upstream does not accept the new version of the credential, and the old one stays: check the new one',
    );
  }
}
