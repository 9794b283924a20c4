import type { RedisStoreOptions } from '../challenges/store/redis.ts';
import { examineAudit } from './audit.ts';
import { type DeploymentReport, type ExaminedDeployment, examineDeployment } from './deployment.ts';
import type { Finding, Mark } from './finding.ts';
import type { DoctorDeps } from './observed-connections.ts';
import { examineRedis } from './redis.ts';

/** The parts of a configuration that doctor examines. */
export interface DoctorInput {
  readonly deployments: readonly ExaminedDeployment[];
  /** Undefined without Redis. */
  readonly redis: RedisStoreOptions | undefined;
  /** Undefined without an audit log. */
  readonly auditDirectory: string | undefined;
}

export interface Report {
  /** The gravest mark of all findings. */
  readonly mark: Mark;
  readonly failures: number;
  readonly warnings: number;
  readonly deployments: readonly DeploymentReport[];
  /** null if Redis is not configured. */
  readonly redis: Finding | null;
  readonly audit: Finding | null;
}

/** Examines all parts concurrently; ends within 10 s. */
export async function examine(examined: DoctorInput, deps: DoctorDeps): Promise<Report> {
  const { redis: redisOptions, auditDirectory } = examined;
  const [redis, audit, deployments] = await Promise.all([
    redisOptions === undefined ? null : examineRedis(redisOptions, deps.clock),
    auditDirectory === undefined ? null : examineAudit(auditDirectory),
    Promise.all(examined.deployments.map((deployment) => examineDeployment(deployment, deps))),
  ]);
  const all = [redis, audit, ...deployments.flatMap(({ findings }) => findings)];
  const failures = all.filter((finding) => finding?.mark === 'fail').length;
  const warnings = all.filter((finding) => finding?.mark === 'warn').length;
  const mark = failures > 0 ? 'fail' : warnings > 0 ? 'warn' : 'ok';
  return { mark, failures, warnings, deployments, redis, audit };
}
