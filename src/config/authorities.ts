import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { slices } from '../base/steps.ts';
import type { Finding, Path } from './faults.ts';
import type { Config } from './schema.ts';

/** The certificate authorities that the configuration names, and what is wrong with their files. */
export interface Authorities {
  /** PEM by name of the deployment; those without `tls.caFile` are not in it. */
  byDeployment: ReadonlyMap<string, string>;
  /** PEM by name of the deployment, of the proxies that have `caFile`. */
  proxies: ReadonlyMap<string, string>;
  /** PEM; undefined without `redis.tls.caFile`. */
  redis: string | undefined;
  findings: readonly Finding[];
}

/** Reads every `caFile`, so that a wrong one is known before the first handshake fails. */
export async function readAuthorities({
  deployments,
  redis,
}: Pick<Config, 'deployments' | 'redis'>): Promise<Authorities> {
  const byDeployment = new Map<string, string>();
  const proxies = new Map<string, string>();
  const findings: Finding[] = [];
  const read = async (caFile: string | undefined, section: Path): Promise<string | undefined> => {
    if (caFile === undefined) return undefined;
    const pem = await readFile(caFile, 'latin1').catch(() => undefined);
    if (pem !== undefined && certificatesIn(pem) !== undefined) return pem;
    const wrong = pem === undefined ? 'cannot be read' : 'holds no certificate';
    findings.push({
      path: [...section, 'caFile'],
      message: `${caFile} ${wrong}: name a readable file of certificates in PEM form`,
    });
    return undefined;
  };
  const pause = slices();
  for (const [name, { tls, egress }] of Object.entries(deployments)) {
    await pause();
    const pem = await read(tls.caFile, ['deployments', name, 'tls']);
    if (pem !== undefined) byDeployment.set(name, pem);
    const proxyPem = await read(egress.proxy?.caFile, ['deployments', name, 'egress', 'proxy']);
    if (proxyPem !== undefined) proxies.set(name, proxyPem);
  }
  return { byDeployment, proxies, redis: await read(redis?.tls?.caFile, ['redis', 'tls']), findings };
}

/** The certificates of a text in PEM form; undefined: there is none, or one that cannot be read. */
export function certificatesIn(pem: string): [X509Certificate, ...X509Certificate[]] | undefined {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  try {
    const [first, ...others] = blocks.map((block) => new X509Certificate(block));
    return first === undefined ? undefined : [first, ...others];
  } catch {
    return undefined;
  }
}
