import { slices } from '../base/steps.ts';
import type { Issue } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import { issueOf, type SourceReader } from '../credentials/sources.ts';
import { readAuthorityOf } from './authorities.ts';
import { CertificateIssue, readClientCertificate } from './client-certificates.ts';
import type { DeploymentFiles } from './deployments.ts';

/**
 * Reads the files of all deployments. `uid`: the user of this process; without one, owners of files are not checked.
 */
export async function readDeploymentFiles(
  deployments: Config['deployments'],
  reader: SourceReader,
  uid: number | undefined,
): Promise<{ readonly files: ReadonlyMap<string, DeploymentFiles>; readonly issues: readonly Issue[] }> {
  const files = new Map<string, DeploymentFiles>();
  const issues: Issue[] = [];
  const pause = slices();
  for (const [name, { tls, egress }] of Object.entries(deployments)) {
    await pause();
    const path = ['deployments', name];
    const ca = await readAuthorityOf(tls.caFile, [...path, 'tls'], uid, issues);
    const proxyCa = await readAuthorityOf(egress.proxy?.caFile, [...path, 'egress', 'proxy'], uid, issues);
    const clientCertificate = await readClientCertificate(tls, reader, uid).catch((error) => {
      if (!(error instanceof CertificateIssue)) throw error;
      issues.push(issueOf([...path, 'tls', error.key], error.cause ?? error));
      return undefined;
    });
    files.set(name, { ca, clientCertificate, proxyCa });
  }
  return { files, issues };
}
