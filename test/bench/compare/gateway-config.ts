import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { writeConfig } from '../../support/gateway.ts';
import type { Place } from '../../support/server-process.ts';
import type { BenchUpstream } from './upstream.ts';

export type Durability = 'write' | 'fsync' | 'async';

/** Far more than any run sends: requests pass through the limits, and none is refused. */
const LIMITS = { rate: '1000000/s', concurrent: 10_000 };

/**
 * Writes a configuration with everything on: a client known by its address with a rule and limits, a site with a
 * credential, one operation with checked parameters, limits of the deployment, the audit log unless `durability` is
 * undefined. Resolves to its file.
 */
export async function writeGatewayConfig(
  { folder, port }: Place,
  { origin, ca, username, password }: BenchUpstream,
  connections: number,
  durability: Durability | undefined,
): Promise<string> {
  const keyFile = join(folder, 'audit-key');
  await writeFile(keyFile, randomBytes(32).toString('hex'), { mode: 0o600 });
  const audit = {
    directory: join(folder, 'audit'),
    keyFile,
    durability,
    parameters: ['ids', 'site_name', 'external_id'],
  };
  const settings = {
    match: { pathPrefix: '/digest/' },
    credential: undefined,
    siteParameter: 'site_name',
    sites: { demo: { credential: 'documents' } },
    operations: {
      document: {
        method: 'GET',
        path: '/digest/{name}',
        parameters: { ids: 'quoted-list', site_name: 'site', external_id: 'digits?' },
      },
    },
    unlistedOperations: 'deny',
    connections,
    limits: LIMITS,
  };
  return writeConfig(
    folder,
    { documents: { origin, ca, username, password, settings } },
    {
      // All connections of the benchmark come from one address.
      listen: { port, limits: { connectionsPerAddress: 10_000 } },
      drain: { delay: '0s', timeout: '1s' },
      anonymous: false,
      clients: [
        {
          id: 'bench',
          identify: { addresses: ['127.0.0.0/8'] },
          allow: [
            {
              deployment: 'documents',
              sites: ['demo'],
              operations: ['document'],
              methods: ['GET'],
              parameters: { ids: { max: 25 } },
            },
          ],
          limits: LIMITS,
        },
      ],
      ...(durability !== undefined && { audit }),
    },
  );
}
