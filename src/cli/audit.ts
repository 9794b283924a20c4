import { isNativeError } from 'node:util/types';
import { type Command, InvalidArgumentError } from 'commander';
import type { AuditKeys } from '../audit/keys.ts';
import { type Verified, verify } from '../audit/reader/verify.ts';
import { formatHead, type Head, parseHead } from '../audit/seal.ts';
import { replicasIn } from '../audit/segments/segment.ts';
import { RedisStream } from '../audit/stream/redis-stream.ts';
import { collectFiles, openAuditConfig, streamRedisOf } from './audit-config.ts';
import { registerExport } from './audit-export.ts';
import { registerSearch } from './audit-search.ts';
import { registerTail } from './audit-tail.ts';
import { bufferGc } from './buffer-gc.ts';
import { ReadProgress } from './progress.ts';

interface VerifyArguments {
  readonly config: string;
  readonly key: readonly string[];
  readonly head: readonly Head[];
  readonly json?: boolean;
}

/** Registers `audit` and its subcommands. */
export function registerAudit(program: Command): void {
  const audit = program.command('audit').description('work on the audit log that the configuration names');
  audit
    .command('verify')
    .description('check whether anything in the audit log was changed, removed or inserted')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option('--key <file>', 'an earlier key of the log; can be repeated', collectFiles, [])
    .option('--head <head>', 'a head of the log that was kept elsewhere; can be repeated', collectHead, [])
    .option('--json', 'print the result as one JSON object')
    .action(runVerify);
  registerSearch(audit);
  registerTail(audit);
  registerExport(audit);
}

async function runVerify({ config: file, key, head, json }: VerifyArguments): Promise<void> {
  const { directory, keys, stream } = await openAuditConfig(file, key);
  const heads = [...head, ...(stream?.redis === true ? await headsInStream(file, directory, keys) : [])];
  using progress = new ReadProgress();
  const gc = bufferGc();
  const onBytes = (count: number): void => {
    gc.add(count);
    progress.add(count);
  };
  const result = await verify({ directory, keys, heads, onBytes });
  progress.hide();
  const empty = result.segments === 0;
  const lines = json === true ? [asJson(directory, result)] : report(directory, result);
  process.stdout.write(`${lines.join('\n')}\n`);
  process.exitCode = empty || result.alterations.length > 0 ? 1 : 0;
}

/** Reads the heads of the local replicas from the stream; none if Redis cannot be read. */
async function headsInStream(
  file: string,
  directory: string,
  keys: readonly [AuditKeys, ...AuditKeys[]],
): Promise<Head[]> {
  const stream = new RedisStream(await streamRedisOf(file), keys);
  const note = (text: string): void => void process.stderr.write(`${text}\n`);
  try {
    const here = await replicasIn(directory);
    const { heads, forged } = await stream.heads();
    for (const replica of here) {
      if (forged.includes(replica)) {
        note(`the position of ${replica} in Redis has no valid signature: it is ignored`);
      } else if (!heads.some((head) => head.replica === replica)) {
        note(`the stream has no end of the log of ${replica}: a cut-off end cannot be detected`);
      }
    }
    // The stream also has the replicas of other machines.
    return heads.filter(({ replica }) => here.includes(replica));
  } catch (error) {
    const reason = isNativeError(error) ? error.message : String(error);
    note(`the stream could not be asked where the log ended: ${reason}`);
    return [];
  } finally {
    await stream.close();
  }
}

function report(
  directory: string,
  { alterations, notes, segments, records, seals, heads }: Verified,
): string[] {
  if (segments === 0) return [`${directory}: there is no audit log here`];
  return [
    ...alterations.map(({ replica, segment, line, message }) => {
      const place = segment === '' ? replica : `${replica}/${segment}${line > 0 ? `:${line}` : ''}`;
      return `${place}: ${message}`;
    }),
    ...notes.map((note) => `${note} (note)`),
    ...heads.map((head) => `head ${formatHead(head)}`),
    `${directory}: ${alterations.length === 0 ? 'ok' : 'ALTERED'} — ${records} records, ${seals} seals, ${segments} segments`,
  ];
}

function asJson(directory: string, result: Verified): string {
  const ok = result.segments > 0 && result.alterations.length === 0;
  return JSON.stringify({ ok, directory, ...result, heads: result.heads.map(formatHead) });
}

function collectHead(value: string, before: readonly Head[]): Head[] {
  const head = parseHead(value);
  if (head === undefined) throw new InvalidArgumentError('a head is REPLICA:NUMBER:SEAL, as the log has it');
  return [...before, head];
}
