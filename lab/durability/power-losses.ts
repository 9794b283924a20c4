import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findingText, type PlacedFinding } from '../../src/audit/findings.ts';
import { writeConfig } from '../../test/support/gateway.ts';
import { gateway as runProgram } from '../../test/support/program.ts';
import { readRecorded } from '../../test/support/recorded-requests.ts';
import { type RedisServer, startRedis } from '../../test/support/redis.ts';
import { until } from '../../test/support/until.ts';
import { Random } from '../simulation/random.ts';
import { killUnderLoad, startBefore, startUpstream, type Upstream } from './loaded-gateway.ts';
import { VolatileDisk } from './volatile-disk.ts';

const DURABILITIES = ['fsync', 'write'] as const;
type Durability = (typeof DURABILITIES)[number];
/** The most milliseconds from the first response to the loss of power: ext4 writes its journal every 5 s. */
const LONGEST_MS = 6_000;
/** The beginning of the error that a gateway logs whose log ends before the position in Redis. */
const TOLD_AT_START = 'the audit stream has records that the audit log lacks';

export interface PowerOptions {
  readonly seed: number;
  readonly losses: number;
  readonly longestMs?: number;
  /** False: no further loss of power. */
  readonly goesOn?: () => boolean;
  readonly progress?: (text: string) => void;
}

export interface PowerCount {
  losses: number;
  responses: number;
  /** Responses without a record. */
  lost: number;
  /** Losses of power after which some responses had none. */
  withLost: number;
  /** … and of which `audit verify`, with the heads in Redis, told before and after the next start, and that start. */
  told: number;
}

export interface PowerReport {
  readonly counts: Readonly<Record<Durability, PowerCount>>;
  readonly findings: readonly string[];
}

/**
 * Cuts the power of the audit log's disk under load. With `fsync` each response has its record afterwards; with `write`
 * some have none, and `audit verify` tells it: at first by the stream in Redis, which knows where the log ended, and
 * after the next start by a record that this start has written.
 */
export async function runPowerLosses(options: PowerOptions): Promise<PowerReport> {
  const { seed, losses, longestMs = LONGEST_MS, goesOn = () => true, progress = () => undefined } = options;
  const random = new Random(`power ${seed}`);
  const zero = (): PowerCount => ({ losses: 0, responses: 0, lost: 0, withLost: 0, told: 0 });
  const counts = { fsync: zero(), write: zero() };
  const findings: string[] = [];
  const folder = await mkdtemp(join(tmpdir(), 'power-'));
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rm(folder, { recursive: true }));
  const simulator = await startUpstream();
  stack.defer(() => simulator.close());
  const redis = await startRedis();
  stack.defer(() => redis.close());
  const disk = await VolatileDisk.create(folder);
  stack.defer(async () => void (await disk.close()));
  for (let loss = 1; loss <= losses && goesOn(); loss += 1) {
    const durability = DURABILITIES[loss % 2] ?? 'fsync';
    const round = new PowerLoss({ simulator, redis, disk, folder, durability, name: `p${seed}-${loss}` });
    const wrong = await round.run(random.between(0, longestMs), counts[durability]);
    findings.push(...wrong.map((each) => `loss of power ${loss} (${durability}): ${each}`));
    progress(`${loss} losses of power, ${findings.length} findings`);
  }
  return { counts, findings };
}

interface PowerLossDeps {
  readonly simulator: Upstream;
  readonly redis: RedisServer;
  readonly disk: VolatileDisk;
  readonly folder: string;
  readonly durability: Durability;
  /** Of the log and its replica: no other has it. */
  readonly name: string;
}

interface Verdict {
  readonly ok: boolean;
  readonly alterations: readonly PlacedFinding[];
}

function isRecordedLoss({ kind }: PlacedFinding): boolean {
  return kind === 'records-lost';
}

class PowerLoss {
  readonly #deps: PowerLossDeps;

  constructor(deps: PowerLossDeps) {
    this.#deps = deps;
  }

  /** Resolves to what is wrong afterwards. */
  async run(afterMs: number, count: PowerCount): Promise<string[]> {
    const { simulator, redis, disk, durability, name } = this.#deps;
    const stream = `${name}:v2:{audit}:records`;
    const top = await this.#top();
    const gateway = await startBefore(simulator, top);
    const { ids, foreign } = await killUnderLoad(gateway, name, afterMs, async () => {
      await until(async () => Number(await redis.command('XLEN', stream)) > 0);
      // No response leaves once the power is being cut. A call that the kernel then ends with success says nothing.
      process.kill(gateway.pid, 'SIGSTOP');
      await disk.cutPower();
    });
    await disk.restorePower();
    const streamed = JSON.stringify(await redis.command('XRANGE', stream, '-', '+'));
    const before = await this.#verify(top);
    // A start sets aside what has no seal, records what was lost, and then moves the position in Redis.
    const next = await startBefore(simulator, top);
    if (!before.ok) await until(async () => (await this.#verify(top)).alterations.some(isRecordedLoss));
    await next.close();
    const after = await this.#verify(top);
    const { requests } = await readRecorded(join(disk.path, name));
    const missing = ids.filter((id) => !requests.has(id));
    const { length: lost } = missing;
    // Redis knows of no record that had not reached the stream.
    const isKnown = missing.some((id) => streamed.includes(id));
    const told =
      !before.ok &&
      next.logged.some(({ msg }) => String(msg).startsWith(TOLD_AT_START)) &&
      after.alterations.some(isRecordedLoss);
    count.losses += 1;
    count.responses += ids.length;
    count.lost += lost;
    if (lost > 0) count.withLost += 1;
    if (lost > 0 && told) count.told += 1;
    const wrong = [...foreign];
    if (durability === 'fsync') {
      if (lost > 0) wrong.push(`${lost} of ${ids.length} responses have no record`);
      wrong.push(...[...before.alterations, ...after.alterations].map(findingText));
    } else if (isKnown && !told) {
      wrong.push(`${lost} of ${ids.length} responses have no record, and nothing tells it`);
    }
    return wrong;
  }

  async #top(): Promise<Record<string, unknown>> {
    const { redis, disk, folder, durability, name } = this.#deps;
    const keyFile = join(folder, `${name}.key`);
    await writeFile(keyFile, randomBytes(32).toString('hex'), { mode: 0o600 });
    return {
      redis: { url: redis.url, keyPrefix: name },
      audit: {
        directory: join(disk.path, name),
        keyFile,
        replica: name,
        durability,
        sinks: [{ name: 'stream', redis: {} }],
      },
    };
  }

  async #verify(top: Record<string, unknown>): Promise<Verdict> {
    const { folder } = this.#deps;
    const config = await writeConfig(folder, { upstream: { origin: 'https://127.0.0.1:1' } }, top);
    const { stdout, stderr } = await runProgram(['audit', 'verify', '--config', config, '--json']);
    const verdict = stdout === '' ? undefined : JSON.parse(stdout);
    if (verdict === undefined) throw new Error(`audit verify failed: ${stderr}`);
    return verdict;
  }
}
