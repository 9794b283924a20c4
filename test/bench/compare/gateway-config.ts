import { createHash, randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { writeConfig } from '../../support/gateway.ts';
import type { Place } from '../../support/server-process.ts';
import type { BenchUpstream } from './upstream.ts';

export type Durability = 'write' | 'fsync' | 'async';

/** Far more than any run sends: requests pass through the limits, and none is refused. */
const LIMITS = { rate: '1000000/s', concurrent: 10_000 };

/** How much a configuration has beside what the benchmark's requests use. */
export interface Scale {
  readonly deployments?: number;
  readonly sites?: number;
  readonly clients?: number;
  /** How clients are told apart; with keys, requests need `API_KEY`. */
  readonly identify?: 'address' | 'key';
  readonly workers?: number;
}

/** The key of the client that sends the requests. */
export const API_KEY = 'the-key-of-the-benchmark';

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
  { deployments = 1, sites = 1, clients = 1, identify = 'address', workers = 1 }: Scale = {},
): Promise<string> {
  const keyFile = join(folder, 'audit-key');
  await writeFile(keyFile, randomBytes(32).toString('hex'), { mode: 0o600 });
  const audit = {
    directory: join(folder, 'audit'),
    keyFile,
    durability,
    parameters: ['ids', 'site_name', 'external_id'],
  };
  const others = (count: number): number[] => Array.from({ length: count - 1 }, (_, index) => index + 1);
  const settings = {
    match: { pathPrefix: '/digest/' },
    credential: undefined,
    siteParameter: 'site_name',
    sites: {
      demo: { credential: 'documents' },
      ...Object.fromEntries(others(sites).map((at) => [`site-${at}`, { credential: 'documents' }])),
    },
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
  // A new one for each client: YAML would write aliases, and thousands of them are refused.
  const allow = () => ({
    deployment: 'documents',
    sites: ['demo'],
    operations: ['document'],
    methods: ['GET'],
    parameters: { ids: { max: 25 } },
  });
  return writeConfig(
    folder,
    {
      documents: { origin, ca, username, password, settings },
      ...Object.fromEntries(
        others(deployments).map((at) => [
          `deployment-${at}`,
          {
            origin: `https://upstream-${at}.invalid`,
            settings: { match: { pathPrefix: `/digest-${at}/` }, credential: 'documents' },
          },
        ]),
      ),
    },
    {
      // All connections of the benchmark come from one address.
      listen: { port, limits: { connectionsPerAddress: 10_000 } },
      drain: { delay: '0s', timeout: '1s' },
      workers,
      anonymous: false,
      clients: [
        ...others(clients).map((at) => ({
          id: `client-${at}`,
          identify:
            identify === 'key'
              ? { apiKeySha256: hashOf(`key-${at}`) }
              : { addresses: [`10.${(at >> 16) & 255}.${(at >> 8) & 255}.${at & 255}`] },
          allow: [allow()],
        })),
        {
          id: 'bench',
          identify: identify === 'key' ? { apiKeySha256: hashOf(API_KEY) } : { addresses: ['127.0.0.0/8'] },
          allow: [allow()],
          limits: LIMITS,
        },
      ],
      ...(durability !== undefined && { audit }),
    },
  );
}

function hashOf(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}
