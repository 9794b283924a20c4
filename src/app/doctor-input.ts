import type { DoctorInput } from '../doctor/doctor.ts';
import type { AppSetup } from '../setup/setup.ts';
import { credentialSets, upstreamOptions } from './deployments.ts';

/**
 * Selects the parts of a setup that doctor examines. `only`: an existing deployment, or undefined for all.
 */
export function doctorInput(setup: AppSetup, only?: string): DoctorInput {
  const deployments = Object.entries(setup.config.deployments)
    .filter(([name]) => only === undefined || name === only)
    .flatMap(([name, settings]) =>
      settings.baseUrl.map((origin) => ({
        name,
        settings,
        connection: { ...upstreamOptions(setup, name, settings), origin },
        credentials: credentialSets(setup, name),
        proxyCredential: setup.credentials.get(settings.egress.proxy?.credential ?? ''),
      })),
    );
  return { deployments, redis: setup.redis, auditDirectory: setup.config.audit?.directory };
}
