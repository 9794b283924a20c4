import { isNativeError } from 'node:util/types';
import { certificatesIn, readPem } from '../base/guarded-file.ts';
import { slices } from '../base/steps.ts';
import type { Issue, Path } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';

/** The certificate authorities of upstream services, proxies and Redis. */
export interface Authorities {
  /** PEM by name of the deployment, for deployments with `tls.caFile`. */
  byDeployment: ReadonlyMap<string, string>;
  /** PEM of proxies with `caFile`, by name of the deployment. */
  proxies: ReadonlyMap<string, string>;
  /** PEM; undefined without `redis.tls.caFile`. */
  redis: string | undefined;
  issues: readonly Issue[];
}

/**
 * Reads every `caFile`, so that an invalid one is reported before the first handshake fails. `uid` is the
 * user of this process; without one, owners of files are not checked.
 */
export async function readAuthorities(
  { deployments, redis }: Pick<Config, 'deployments' | 'redis'>,
  uid: number | undefined,
): Promise<Authorities> {
  const byDeployment = new Map<string, string>();
  const proxies = new Map<string, string>();
  const issues: Issue[] = [];
  const read = async (caFile: string | undefined, section: Path): Promise<string | undefined> => {
    try {
      return await readAuthority(caFile, uid);
    } catch (error) {
      const message = isNativeError(error) ? error.message : 'cannot be read';
      issues.push({ path: [...section, 'caFile'], message });
      return undefined;
    }
  };
  const pause = slices();
  for (const [name, { tls, egress }] of Object.entries(deployments)) {
    await pause();
    const pem = await read(tls.caFile, ['deployments', name, 'tls']);
    if (pem !== undefined) byDeployment.set(name, pem);
    const proxyPem = await read(egress.proxy?.caFile, ['deployments', name, 'egress', 'proxy']);
    if (proxyPem !== undefined) proxies.set(name, proxyPem);
  }
  return { byDeployment, proxies, redis: await read(redis?.tls?.caFile, ['redis', 'tls']), issues };
}

/**
 * Reads a file of authorities; undefined without a name. `uid` is the user of this process.
 * @throws Error with the reason
 */
export async function readAuthority(
  caFile: string | undefined,
  uid: number | undefined,
): Promise<string | undefined> {
  if (caFile === undefined) return undefined;
  const pem = await readPem(caFile, { uid, readableByOthers: true });
  if (certificatesIn(pem) !== undefined) return pem;
  throw new Error(`${caFile} holds no certificate: name a readable file of certificates in PEM form`);
}
