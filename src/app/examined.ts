import type { Examined } from '../doctor/doctor.ts';
import { type AppSetup, credentialSets, upstreamOptions } from './deployments.ts';

/** What the doctor examines of a setup; `only`: of the deployments this one, which exists. */
export function examinedOf(setup: AppSetup, only?: string): Examined {
  const deployments = Object.entries(setup.config.deployments)
    .filter(([name]) => only === undefined || name === only)
    .map(([name, settings]) => ({
      name,
      settings,
      connection: upstreamOptions(setup, name, settings),
      credentials: credentialSets(setup, name),
      proxyCredential: setup.credentials.get(settings.egress.proxy?.credential ?? ''),
    }));
  return { deployments, redis: setup.redis, auditDirectory: setup.config.audit?.directory };
}
