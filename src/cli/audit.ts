import { join } from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';
import { cosignatureOf, verificationKey, witnessKey } from '../audit/checkpoint.ts';
import { findingText } from '../audit/findings.ts';
import type { HeadCounts } from '../audit/reader/head-checks.ts';
import { type Verified, type VerifyOptions, verify } from '../audit/reader/verify.ts';
import { isSelected, processOf } from '../audit/replica-name.ts';
import { formatHead, type Head, parseHead } from '../audit/seal.ts';
import { ClockCheck } from '../audit/segments/clock-check.ts';
import { checkpointsIn } from '../audit/segments/head-files.ts';
import { foldersIn } from '../audit/segments/segment.ts';
import { RedisStream } from '../audit/shipping/redis-stream.ts';
import { messageOf } from '../base/error-code.ts';
import { certificatesIn } from '../base/guarded-file.ts';
import { printable } from '../base/printable.ts';
import { count, formatTime } from '../base/units.ts';
import { registerExport } from './audit-export.ts';
import { registerForget } from './audit-forget.ts';
import {
  type AuditConfig,
  auditDirectory,
  collectFiles,
  hasStream,
  keyOption,
  LogReading,
  openAuditConfig,
  replicaOption,
  streamRedisOf,
} from './audit-log.ts';
import { readKeys, registerProof, witnessKeyOption } from './audit-proof.ts';
import { registerSearch } from './audit-search.ts';
import { registerTail } from './audit-tail.ts';
import { registerUsage } from './audit-usage.ts';
import { CommandError, type ExitStatus, type Io, note, print, type Run, readBounded } from './io.ts';

interface VerifyArguments {
  readonly config?: string;
  readonly directory?: string;
  readonly publicKey: readonly string[];
  readonly witnessKey: readonly string[];
  readonly witnessHeads?: string;
  readonly timestampCa?: string;
  readonly key: readonly string[];
  readonly head: readonly Head[];
  readonly knownLoss: readonly Head[];
  readonly copy?: boolean;
  readonly replica?: string;
  readonly json?: boolean;
}

/** Registers `audit` and its subcommands. */
export function registerAudit(program: Command, run: Run): void {
  const audit = program.command('audit').description('work on the audit log that the configuration names');
  audit
    .command('verify')
    .description('check whether anything in the audit log was changed, removed or inserted')
    .option('--config <file>', 'the configuration (YAML)')
    .option(
      '--directory <directory>',
      'the audit directory, or a copy, instead of --config; with --public-key',
    )
    .option(
      '--public-key <file>',
      'check signed heads by FILE.pub of audit key new, and need no secret; can be repeated',
      collectFiles,
      [],
    )
    .addOption(witnessKeyOption())
    .option(
      '--witness-heads <file>',
      'what GET /checkpoints of the witness returned: a log that does not have these heads was cut or rewritten; with --witness-key',
    )
    .option(
      '--timestamp-ca <file>',
      'check time stamps of signed heads by the authorities in it (PEM); with --public-key',
    )
    .addOption(keyOption())
    .option('--head <head>', 'a head of the log that was kept elsewhere; can be repeated', collectHead, [])
    .option(
      '--known-loss <head>',
      'a loss that was looked into, as the result names it: it is not an integrity error; can be repeated',
      collectHead,
      [],
    )
    .option(
      '--copy',
      'the directory is a copy of closed segments, such as that in S3, and may lack the newest ones: a head of them is a note',
    )
    .addOption(replicaOption('the log'))
    .option('--json', 'print the result as one JSON object')
    .action(run(runVerify));
  registerSearch(audit, run);
  registerTail(audit, run);
  registerExport(audit, run);
  registerUsage(audit, run);
  registerProof(audit, run);
  registerForget(audit, run);
  audit
    .command('accept-clock')
    .description('let the gateway remove old segments, though its clock is far ahead of the audit log')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .action(run(acceptClock));
}

async function acceptClock(io: Io, { config }: { readonly config: string }): Promise<void> {
  const { directory, keys, segment } = await openAuditConfig(io, config);
  const accepted: string[] = [];
  for (const replica of await foldersIn(directory)) {
    const options = { folder: join(directory, replica), replica, keys: keys[0], age: segment.age };
    if (await new ClockCheck(options).accept()) accepted.push(replica);
  }
  const result =
    accepted.length === 0
      ? 'the clock is not in doubt'
      : `accepted for ${printable(accepted.join(', '))}: old segments are removed within an hour`;
  await print(io, `${result}\n`);
}

async function runVerify(io: Io, options: VerifyArguments): Promise<ExitStatus> {
  const { head, knownLoss: knownLosses, copy: isCopy = false, replica, json } = options;
  const unchecked = head.find((each) => !isSelected(replica, each.replica));
  if (unchecked !== undefined) {
    throw new CommandError(2, `--replica leaves out the log of --head ${formatHead(unchecked)}`);
  }
  const timestampAuthorities = await readTimestampCa(options);
  const { directory, keys, publicKeys, heads } = await sourcesOf(io, options);
  const witnessed = await witnessesOf(options);
  using reading = await LogReading.of(io, directory, { replica });
  const { onBytes } = reading.options;
  const result = await verify({
    directory,
    replica,
    keys,
    publicKeys,
    heads,
    knownLosses,
    isCopy,
    onBytes,
    ...witnessed,
    timestampAuthorities,
  });
  reading.hide();
  const empty = result.segments === 0;
  const place = replica === undefined ? directory : `${directory}, ${replica}`;
  // Names in the folder can hold what clears a terminal, or ends a line.
  const lines = json === true ? [asJson(directory, result)] : report(place, result);
  await print(io, `${lines.map(printable).join('\n')}\n`);
  return empty || result.alterations.length > 0 ? 1 : 0;
}

/** Longest file of heads or certificates that is read, in bytes: the heads of 10,000 trees. */
const MAX_FILE = 8 * 1024 * 1024;

/** The witnesses of a verification, and their heads of the selected logs. */
async function witnessesOf({
  witnessKey: witnessKeys,
  witnessHeads: file,
  publicKey,
  replica,
}: VerifyArguments): Promise<Pick<VerifyOptions, 'witnesses' | 'witnessHeads'>> {
  if (witnessKeys.length === 0) {
    if (file !== undefined) throw new CommandError(2, '--witness-heads needs --witness-key');
    return {};
  }
  if (publicKey.length === 0)
    throw new CommandError(2, '--witness-key needs --public-key: cosignatures are of signed heads');
  const witnesses = await readKeys(witnessKeys, witnessKey);
  if (file === undefined) return { witnesses };
  const found = checkpointsIn(await readBounded(file, MAX_FILE));
  // Otherwise a file of something else would find nothing wrong.
  if (!found.some((head) => cosignatureOf(head, witnesses) !== undefined)) {
    throw new CommandError(2, `${file} has no head that the witness of --witness-key has cosigned`);
  }
  return {
    witnesses,
    witnessHeads: found.filter((head) => isSelected(replica, head.replica)),
  };
}

/** The authorities of time stamps; undefined: time stamps are not checked. */
async function readTimestampCa({ timestampCa, publicKey }: VerifyArguments): Promise<string | undefined> {
  if (timestampCa === undefined) return undefined;
  if (publicKey.length === 0)
    throw new CommandError(2, '--timestamp-ca needs --public-key: time stamps are of signed heads');
  const pem = await readBounded(timestampCa, MAX_FILE);
  if (certificatesIn(pem) === undefined) {
    throw new CommandError(2, `${timestampCa} holds no certificate: name a file of certificates in PEM form`);
  }
  return pem;
}

/** Directory, keys and known heads of a verification. */
async function sourcesOf(
  io: Io,
  { config: file, directory: copy, publicKey, key, head, replica }: VerifyArguments,
): Promise<Pick<VerifyOptions, 'directory' | 'keys' | 'publicKeys' | 'heads'>> {
  if (publicKey.length > 0) {
    if (key.length > 0)
      throw new CommandError(2, '--key is a secret that --public-key needs not: give one of both');
    const directory = await auditDirectory({ config: file, directory: copy });
    return {
      directory,
      keys: 'unknown',
      publicKeys: await readKeys(publicKey, verificationKey),
      heads: head,
    };
  }
  if (file === undefined) throw new CommandError(2, 'Give --config, or --directory with --public-key');
  if (copy !== undefined) throw new CommandError(2, '--directory needs --public-key');
  const config = await openAuditConfig(io, file, key);
  const { directory, keys } = config;
  const inStream = hasStream(config) ? await headsInStream(io, file, config, replica) : [];
  return { directory, keys, publicKeys: undefined, heads: [...head, ...inStream] };
}

/** Reads the heads of the local replicas and their workers from the stream; none if Redis cannot be read. */
async function headsInStream(
  io: Io,
  file: string,
  { directory, keys }: AuditConfig,
  selected: string | undefined,
): Promise<Head[]> {
  const stream = new RedisStream(await streamRedisOf(io, file), keys);
  try {
    const here = await foldersIn(directory);
    const replicas = new Set(here.map((name) => processOf(name).replica));
    // The stream also has the replicas of other machines. A worker of a replica here has to be here, too.
    const isLocal = (name: string): boolean =>
      replicas.has(processOf(name).replica) && isSelected(selected, name);
    const { heads, forged } = await stream.heads();
    for (const name of forged.filter(isLocal)) {
      note(io, `the position of ${name} in Redis has no valid signature: it is ignored`);
    }
    for (const name of here.filter(isLocal)) {
      if (forged.includes(name) || heads.some(({ replica }) => replica === name)) continue;
      note(io, `the stream has no end of the log of ${name}: a cut-off end cannot be detected`);
    }
    return heads.filter(({ replica }) => isLocal(replica));
  } catch (error) {
    const reason = messageOf(error);
    note(io, `the stream could not be asked where the log ended: ${reason}`);
    return [];
  } finally {
    await stream.close();
  }
}

function report(
  place: string,
  { alterations, notes, replicas, workers, segments, records, seals, heads, ...signed }: Verified,
): string[] {
  const { checkpoints, provenRecords, stamped, stampedAt } = signed;
  if (segments === 0) return [...alterations.map(findingText), `${place}: there is no audit log here`];
  const counts = [
    count(replicas, 'replica') + (workers === 0 ? '' : ` with ${count(workers, 'worker')}`),
    count(records, 'record'),
    count(seals, 'seal'),
    count(segments, 'segment'),
    ...(checkpoints === 0
      ? []
      : [`${count(checkpoints, 'signed head')} over ${count(provenRecords, 'record')}`]),
    ...(signed.cosigned === 0 ? [] : [cosignedText(signed)]),
    ...(stamped === 0
      ? []
      : [`${count(stamped, 'time-stamped head')}, the last of ${formatTime(stampedAt)}`]),
  ].join(', ');
  return [
    ...alterations.map(findingText),
    ...notes.map((note) => `${findingText(note)} (note)`),
    ...heads.map((head) => `head ${formatHead(head)}`),
    `${place}: ${alterations.length === 0 ? 'ok' : 'ALTERED'} — ${counts}`,
  ];
}

function cosignedText({ cosigned, cosignedRecords, cosignedAt }: HeadCounts): string {
  const heads = count(cosigned, 'cosigned head');
  return `${heads} over ${count(cosignedRecords, 'record')}, the last of ${formatTime(cosignedAt)}`;
}

function asJson(directory: string, result: Verified): string {
  const ok = result.segments > 0 && result.alterations.length === 0;
  return JSON.stringify({ ok, directory, ...result, heads: result.heads.map(formatHead) });
}

function collectHead(value: string, before: readonly Head[]): Head[] {
  const head = parseHead(value);
  if (head === undefined) throw new InvalidArgumentError('A head is REPLICA:NUMBER:SEAL, as the log has it.');
  return [...before, head];
}
