import { createInterface } from 'node:readline/promises';
import { type Command, Option } from 'commander';
import type { PseudonymOptions } from '../audit/audit.ts';
import { addressForms } from '../audit/reader/query.ts';
import { allKeys, destroyKey, endDestruction, type PlacedKey } from '../audit/segments/pseudonym-files.ts';
import { fileMessageOf } from '../base/error-code.ts';
import { ignoreAbort } from '../base/expected-errors.ts';
import { count } from '../base/units.ts';
import { ConfigError } from '../config/issues.ts';
import { loadLocated } from '../config/load.ts';
import { argument } from './audit-log.ts';
import { CommandError, type Io, note, print, type Run } from './io.ts';

interface ForgetArguments {
  readonly config: string;
  readonly month?: string;
  readonly subject?: string;
  readonly yes?: boolean;
}

/** Registers `audit forget`. */
export function registerForget(audit: Command, run: Run): void {
  audit
    .command('forget')
    .description(
      'destroy keys of pseudonyms: what they hide can never be read again, and the log stays as it is',
    )
    .requiredOption('--config <file>', 'the configuration (YAML); none of its secrets is read')
    .addOption(
      new Option('--month <month>', 'the keys of a month (UTC), such as 2026-03')
        .argParser(argument(monthOf))
        .conflicts('subject'),
    )
    .option(
      '--subject <subject>',
      'the keys of a client (its id) or of an address, as audit.pseudonyms.per says',
    )
    .option('--yes', 'do not ask')
    .action(run(forget));
}

async function forget(io: Io, { config: file, month, subject, yes }: ForgetArguments): Promise<void> {
  if (month === undefined && subject === undefined) throw new CommandError(2, 'give --month or --subject');
  const options = await pseudonymsOf(file);
  const { keysDirectory: directory } = options;
  const unusable = (error: unknown): never => {
    throw new CommandError(1, `the keys in ${directory} cannot be used: ${fileMessageOf(error)}`, error);
  };
  const ended = await endDestruction(directory).catch(unusable);
  for (const id of ended) await print(io, `destroyed: key ${id}, which was begun before\n`);
  const onIssue = (issue: string): void => note(io, `left as it is: ${issue}`);
  const placed = await allKeys(directory, onIssue).catch(unusable);
  const wanted = placed.filter(({ key }) =>
    month === undefined
      ? key.scope !== 'month' && addressForms(subject ?? '').includes(key.subject)
      : key.scope === 'month' && key.subject === month,
  );
  if (wanted.length === 0 && ended.length > 0) return;
  if (wanted.length === 0) throw new CommandError(1, nothingFound(options, month));
  if (yes !== true) await confirm(io, wanted);
  for (const each of wanted) {
    await destroyKey(directory, each).catch((error) => {
      const reason = fileMessageOf(error);
      throw new CommandError(1, `${nameOf(each)} is not destroyed: ${reason}; run the command again`, error);
    });
    await print(io, `destroyed: ${nameOf(each)}\n`);
  }
  const them = wanted.length === 1 ? 'it' : 'them';
  note(
    io,
    `${count(wanted.length, 'key')} destroyed. Destroy ${them} in backups of ${directory}, too. Gateways record it within seconds, or when they start.`,
  );
}

/** The settings of pseudonyms in a configuration. */
async function pseudonymsOf(file: string): Promise<PseudonymOptions> {
  const { config, locate } = await loadLocated(file);
  if (config.audit?.pseudonyms !== undefined) return config.audit.pseudonyms;
  const message = 'is missing: the audit log has no pseudonyms, so nothing in it can be forgotten';
  throw new ConfigError([locate({ path: ['audit', 'pseudonyms'], message })]);
}

function nothingFound({ keysDirectory, per }: PseudonymOptions, month: string | undefined): string {
  if (month !== undefined) return `${keysDirectory} has no key of ${month}: nothing was destroyed`;
  const hint =
    per === 'month' ? 'with per: month, give --month' : `with per: ${per}, the subject is ${SUBJECTS[per]}`;
  return `${keysDirectory} has no key of that subject: nothing was destroyed; ${hint}`;
}

const SUBJECTS = { client: 'the id of a client', address: 'an address' };

/** The key without its subject, which must not be found in the output of a command later. */
function nameOf({ key: { id, scope, subject }, replica }: PlacedKey): string {
  return `key ${id} of ${scope === 'month' ? subject : `the ${scope}`} in ${replica}`;
}

async function confirm(io: Io, wanted: readonly PlacedKey[]): Promise<void> {
  if (io.stdin.isTTY !== true) throw new CommandError(2, 'Give --yes: there is no terminal to ask at');
  const reader = createInterface({ input: io.stdin, output: io.stderr });
  try {
    for (const each of wanted) note(io, nameOf(each));
    const question = `Destroy ${count(wanted.length, 'key')}? Nobody can read what they hide again. Type yes: `;
    const { promise: aborted, reject } = Promise.withResolvers<never>();
    reader.once('close', () => reject(new CommandError(1, 'nothing was destroyed')));
    const entered = await Promise.race([reader.question(question).catch(ignoreAbort), aborted]);
    if (entered?.trim() !== 'yes') throw new CommandError(1, 'nothing was destroyed');
  } finally {
    reader.close();
  }
}

function monthOf(text: string): string {
  if (/^\d{4}-(?:0[1-9]|1[0-2])$/.test(text)) return text;
  throw new RangeError('a month is 2026-03');
}
