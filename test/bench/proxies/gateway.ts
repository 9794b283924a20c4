import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Secret } from '../../../src/base/secret.ts';
import { startGateway } from '../../support/gateway.ts';
import { reportCpu } from './report-cpu.ts';

/** The gateway as `serve` runs it: Digest, metrics, everything; with an audit log if a durability is given. */
const [, , origin = '', ca = '', durability] = process.argv;
const directory = mkdtempSync(join(tmpdir(), 'bench-audit-'));
process.on('exit', () => rmSync(directory, { recursive: true }));
process.on('SIGTERM', () => process.exit());
const { port } = await startGateway({ bench: { origin, ca } }, {}, auditIn(durability));
reportCpu(port);

function auditIn(kind: string | undefined) {
  if (kind !== 'write' && kind !== 'fsync' && kind !== 'async') return {};
  const audit = {
    directory,
    replica: 'bench',
    key: new Secret(randomBytes(32).toString('hex')),
    durability: kind,
    onFailure: 'refuse',
    parameters: ['ids', 'site_name'],
    pseudonymise: [],
    segment: { size: 2 ** 28, age: 86_400_000, keep: 86_400_000 },
  } as const;
  return { audit };
}
