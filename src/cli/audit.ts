import { resolve } from 'node:path';
import { isNativeError } from 'node:util/types';
import { type Command, InvalidArgumentError } from 'commander';
import { type AuditKeys, auditKeys } from '../audit/keys.ts';
import { formatHead, type Head, parseHead } from '../audit/seal.ts';
import { type Verified, verify } from '../audit/verify.ts';
import { ConfigError, type Fault } from '../config/faults.ts';
import { loadLocated } from '../config/load.ts';
import { SourceReader } from '../credentials/sources.ts';
import { readAuditKey } from './audit-setup.ts';
import { spentMemory } from './spent-memory.ts';
import { surroundings } from './surroundings.ts';

const MIB = 1024 * 1024;

interface VerifyArguments {
  readonly config: string;
  readonly key: readonly string[];
  readonly head: readonly Head[];
  readonly json?: boolean;
}

/** `audit …`: works on the audit log that a configuration names. */
export function registerAudit(program: Command): void {
  const audit = program.command('audit').description('work on the audit log that the configuration names');
  audit
    .command('verify')
    .description('find out whether anything in the audit log was changed, removed or inserted')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option('--key <file>', 'a key that sealed earlier segments; can be given again', gather, [])
    .option('--head <head>', 'an end of the log that was kept elsewhere; can be given again', gatherHead, [])
    .option('--json', 'print the result as one JSON object')
    .action(runVerify);
}

async function runVerify({ config: file, key, head, json }: VerifyArguments): Promise<void> {
  const { directory, keys } = await placeOf(file, key);
  const progress = showProgress();
  const spent = spentMemory();
  const onBytes = (count: number): void => {
    spent.add(count);
    progress.add(count);
  };
  const result = await verify({ directory, keys, heads: head, onBytes }).finally(progress.end);
  const empty = result.segments === 0;
  const lines = json === true ? [asJson(directory, result)] : report(directory, result);
  process.stdout.write(`${lines.join('\n')}\n`);
  process.exitCode = empty || result.alterations.length > 0 ? 1 : 0;
}

async function placeOf(
  file: string,
  more: readonly string[],
): Promise<{ directory: string; keys: AuditKeys[] }> {
  const { config, faultAt } = await loadLocated(file);
  const fault = (message: string, path: readonly string[]): Fault => faultAt({ path, message });
  if (config.audit === undefined) {
    throw new ConfigError([fault('is missing: there is no audit log to look at', ['audit'])]);
  }
  const { directory, keyFile } = config.audit;
  const reader = new SourceReader(surroundings(), config.sealed);
  const keys: AuditKeys[] = [];
  for (const name of [keyFile, ...more.map((path) => resolve(path))]) {
    try {
      keys.push(auditKeys(await readAuditKey(name, reader)));
    } catch (error) {
      throw new ConfigError([
        fault(isNativeError(error) ? error.message : 'cannot be read', ['audit', 'keyFile']),
      ]);
    }
  }
  return { directory, keys };
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

/** On a terminal, how far it is. */
function showProgress(): { add: (bytes: number) => void; end: () => void } {
  if (!process.stderr.isTTY) return { add: () => undefined, end: () => undefined };
  let bytes = 0;
  let shown = 0;
  return {
    add: (count) => {
      bytes += count;
      if (bytes - shown < 16 * MIB) return;
      shown = bytes;
      process.stderr.write(`\r${Math.floor(bytes / MIB)} MiB read`);
    },
    end: () => void (shown > 0 && process.stderr.write('\r\u001b[K')),
  };
}

function gather(value: string, before: readonly string[]): string[] {
  return [...before, value];
}

function gatherHead(value: string, before: readonly Head[]): Head[] {
  const head = parseHead(value);
  if (head === undefined) throw new InvalidArgumentError('a head is REPLICA:NUMBER:SEAL, as the log has it');
  return [...before, head];
}
