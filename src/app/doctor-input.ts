import type { DoctorInput } from '../doctor/doctor.ts';
import { deploymentsOf } from '../setup/deployments.ts';
import type { AppSetup } from '../setup/setup.ts';
import { upstreamOptions } from './deployments.ts';

/**
 * Selects the parts of a setup that doctor examines. `only`: an existing deployment, or undefined for all.
 */
export function doctorInput(setup: AppSetup, only?: string): DoctorInput {
  const deployments = [...deploymentsOf(setup)]
    .filter(({ name }) => only === undefined || name === only)
    .flatMap((deployment) => {
      const { name, settings, credentials, proxyCredential } = deployment;
      const options = upstreamOptions(deployment);
      return settings.baseUrl.map((origin) => ({
        name,
        settings,
        connection: { ...options, origin },
        credentials,
        proxyCredential,
      }));
    });
  return { deployments, redis: setup.redis, auditDirectory: setup.config.audit?.directory };
}
