import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Finding } from './faults.ts';
import type { Config } from './schema.ts';

/** The certificate authorities that deployments name, and what is wrong with their files. */
export interface Authorities {
  /** PEM by name of the deployment; those without `tls.caFile` are not in it. */
  byDeployment: ReadonlyMap<string, string>;
  findings: readonly Finding[];
}

/** Reads every `tls.caFile`, so that a wrong one is known before the first handshake fails. */
export async function readAuthorities(deployments: Config['deployments']): Promise<Authorities> {
  const byDeployment = new Map<string, string>();
  const findings: Finding[] = [];
  for (const [name, { tls }] of Object.entries(deployments)) {
    if (tls.caFile === undefined) continue;
    const pem = await readFile(tls.caFile, 'latin1').catch(() => undefined);
    if (pem !== undefined && holdsCertificates(pem)) {
      byDeployment.set(name, pem);
    } else {
      const wrong = pem === undefined ? 'cannot be read' : 'holds no certificate';
      findings.push({
        path: ['deployments', name, 'tls', 'caFile'],
        message: `${tls.caFile} ${wrong}: name a readable file of certificates in PEM form`,
      });
    }
  }
  return { byDeployment, findings };
}

function holdsCertificates(pem: string): boolean {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return blocks.length > 0 && blocks.every(isCertificate);
}

function isCertificate(block: string): boolean {
  try {
    return new X509Certificate(block).raw.length > 0;
  } catch {
    return false;
  }
}
