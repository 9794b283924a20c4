import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { messageOf } from '../base/error-code.ts';
import { decodeUtf8 } from '../base/guarded-file.ts';
import { Secret } from '../base/secret.ts';
import { span } from '../base/units.ts';
import { ConfigError } from '../config/issues.ts';
import { type LocatedConfig, loadLocated } from '../config/load.ts';
import { type Credential, CredentialVersions } from '../credentials/credentials.ts';
import {
  CredentialError,
  type CredentialSources,
  type PartSources,
  proofSources,
  readCredentials,
} from '../credentials/reading.ts';
import { ENTRY_NAME, type SealedEntry, SealedError, type SealedSection } from '../credentials/sealed-file.ts';
import {
  changeEntries,
  type EntryChange,
  makeIdentity,
  promote,
  remove,
  SealingError,
  setNext,
  setTo,
  withdraw,
} from '../credentials/sealing.ts';
import { describeSource, issueOf, MAX_SECRET_BYTES, SourceReader } from '../credentials/sources.ts';
import { secretUses } from '../setup/warnings.ts';
import { CommandError, type Io, note, print, processContext, type Run } from './io.ts';
import { alignColumns } from './table.ts';

interface SealOptions {
  readonly config: string;
  readonly newIdentity?: boolean;
}

interface RotateOptions {
  readonly config: string;
  readonly promote?: boolean;
  readonly withdraw?: boolean;
}

/** `credential seal|rotate|remove|list`: changes the sealed file and lists credentials with their sources. */
export function registerCredential(program: Command, run: Run): void {
  const credential = program.command('credential').description('seal, rotate, remove and list credentials');
  const withEntry = (name: string, what: string): Command =>
    credential
      .command(name)
      .description(what)
      .argument('<name>', 'the name of the entry: sealed: NAME in the configuration', entryName)
      .requiredOption('--config <file>', 'the configuration (YAML)');

  withEntry('seal', 'store a secret from stdin in the sealed file, replacing the current one')
    .option('--new-identity', 'create the identity file that sealed.identity names first')
    .action(run(sealOne));
  withEntry('rotate', 'store the next version of a secret from stdin beside the current one')
    .option('--promote', 'make the next version the current one instead')
    .addOption(new Option('--withdraw', 'take the next version back instead').conflicts('promote'))
    .action(run(rotateOne));
  withEntry(
    'remove',
    'remove an entry, which the configuration no longer names, from the sealed file',
  ).action(run(removeOne));
  credential
    .command('list')
    .description('list credentials with their sources, versions and ages, without secrets')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option('--json', 'print JSON')
    .action(run(listCredentials));
}

async function sealOne(
  io: Io,
  name: string,
  { config: file, newIdentity = false }: SealOptions,
): Promise<void> {
  const sealed = await sealedFile(io, file);
  const value = await readSecretInput(io, `Secret for ${name}: `);
  if (newIdentity) {
    const made = await makeIdentity(sealed.section, new Date()).catch(sealed.failed);
    await print(io, `${made}: a new identity; keep a copy in a safe place\n`);
  }
  const { version } = await change(sealed, name, setTo(value, new Date()));
  await print(io, `${sealed.section.file}: sealed ${name}, version ${version}\n`);
}

async function rotateOne(
  io: Io,
  name: string,
  { config: file, promote: now = false, withdraw: isWithdrawn = false }: RotateOptions,
): Promise<void> {
  const sealed = await sealedFile(io, file);
  const step = isWithdrawn
    ? withdraw
    : now
      ? promote
      : setNext(await readSecretInput(io, `Next secret for ${name}: `), new Date());
  const { version, next } = await change(sealed, name, step);
  const state = isWithdrawn
    ? 'stays, the next version is withdrawn; a gateway that uses it already keeps it, and logs a warning'
    : next === undefined
      ? 'is in use now'
      : `is in use, version ${next.version} waits`;
  await print(io, `${sealed.section.file}: ${name}, version ${version} ${state}\n`);
}

async function removeOne(
  io: Io,
  name: string,
  { config: file }: Pick<RotateOptions, 'config'>,
): Promise<void> {
  const sealed = await sealedFile(io, file);
  const { config, locate } = sealed.located;
  const uses = [...secretUses(config)].filter(({ source }) => 'sealed' in source && source.sealed === name);
  if (uses.length > 0) {
    const message = `still names the sealed entry ${name}, so nothing was removed: change it first, and reload`;
    throw new ConfigError(uses.map(({ path }) => locate({ path, message })));
  }
  await change(sealed, name, remove);
  await print(io, `${sealed.section.file}: ${name} is removed\n`);
}

/** The sealed file that a configuration names. */
interface SealedFile {
  readonly located: LocatedConfig;
  readonly section: SealedSection;
  readonly reader: SourceReader;
  /** Makes an error with the file one for people. */
  readonly failed: (error: unknown) => never;
}

/** @throws ConfigError, or CommandError if there is no sealed file */
async function sealedFile(io: Io, file: string): Promise<SealedFile> {
  const located = await loadLocated(file);
  const section = located.config.sealed;
  if (section === undefined) {
    throw new CommandError(2, `${file} names no sealed file: give file and identity under sealed`);
  }
  const failed = (error: unknown): never => {
    if (error instanceof SealedError) throw new ConfigError([located.locate(issueOf(['sealed'], error))]);
    if (error instanceof SealingError) throw new CommandError(1, error.message, error);
    throw error;
  };
  return { located, section, reader: new SourceReader(processContext(io), section), failed };
}

async function change<T extends SealedEntry | undefined>(
  { section, reader, failed }: SealedFile,
  name: string,
  step: EntryChange<T>,
): Promise<T> {
  const [entry] = await changeEntries(section, reader, [name], step).catch(failed);
  return entry as T;
}

function entryName(name: string): string {
  if (ENTRY_NAME.test(name)) return name;
  // Commander adds the argument to the message; a name is not secret.
  throw new InvalidArgumentError(
    'Write letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first.',
  );
}

/**
 * Reads a secret from stdin: without echo on a terminal, else until the end, without one trailing newline.
 * @throws CommandError if it is empty, too large or no UTF-8, or the prompt is interrupted
 */
async function readSecretInput(io: Io, prompt: string): Promise<Secret> {
  const entered = io.stdin.isTTY ? await promptFor(io, prompt) : await readPiped(io);
  if (entered !== '') return new Secret(entered);
  throw new CommandError(2, 'no secret came on stdin: type it, or redirect a file that holds it');
}

async function readPiped(io: Io): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of io.stdin) {
    chunks.push(Buffer.from(chunk));
    bytes += chunk.length;
    if (bytes <= MAX_SECRET_BYTES) continue;
    throw new CommandError(2, `stdin has more than ${MAX_SECRET_BYTES} bytes: redirect the right file`);
  }
  try {
    return decodeUtf8(Buffer.concat(chunks), 'stdin').replace(/\r?\n$/, '');
  } catch (error) {
    throw new CommandError(2, messageOf(error), error);
  }
}

async function promptFor(io: Io, prompt: string): Promise<string> {
  // In terminal mode readline disables the terminal's echo and writes the input to its output, which is
  // discarded.
  const discard = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({ input: io.stdin, output: discard, terminal: true });
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  lines.once('SIGINT', () => reject(new CommandError(1, 'given up: nothing was changed')));
  lines.once('close', () => reject(new CommandError(1, 'given up: nothing was changed')));
  io.stderr.write(prompt);
  try {
    return await Promise.race([lines.question(''), aborted]);
  } finally {
    note(io, '');
    lines.close();
  }
}

interface Row {
  readonly name: string;
  readonly state: 'current' | 'next' | 'unused';
  readonly from: readonly string[];
  readonly version: string;
  /** Undefined if unknown. */
  readonly changedAt: Date | undefined;
}

/** `credential list`: one row for each credential, next version, and unused sealed entry. */
async function listCredentials(
  io: Io,
  { config: file, json = false }: { config: string; json?: boolean },
): Promise<void> {
  const rows = await readRows(io, file);
  const text = json ? JSON.stringify(rows, undefined, 2) : listLines(rows, Date.now()).join('\n');
  await print(io, `${text}\n`);
}

async function readRows(io: Io, file: string): Promise<Row[]> {
  const { config, locate } = await loadLocated(file);
  const reader = new SourceReader(processContext(io), config.sealed);
  const byName = await readCredentials(config.credentials, reader, new CredentialVersions()).catch(
    (error) => {
      throw error instanceof CredentialError ? new ConfigError(error.issues.map(locate)) : error;
    },
  );
  const uses = [...secretUses(config)].map(({ source }) => source);
  const used = new Set(uses.flatMap((source) => ('sealed' in source ? source.sealed : [])));
  const rows = Object.entries(config.credentials).flatMap(([name, sources]): Row[] => {
    const set = byName.get(name);
    return [...rowOf('current', sources, set?.current), ...rowOf('next', nextOf(sources), set?.next)];
  });
  for (const [name, { version, sealedAt }] of await reader.sealed()) {
    if (used.has(name)) continue;
    const from = [`sealed ${name}`];
    rows.push({ name: '-', state: 'unused', from, version: String(version), changedAt: sealedAt });
  }
  return rows;
}

function rowOf(state: Row['state'], sources: PartSources, credential: Credential | undefined): Row[] {
  if (credential === undefined) return [];
  const { name, version, changedAt } = credential;
  return [{ name, state, from: proofSources(sources).map(describeSource), version, changedAt }];
}

/** Without a password of its own, `next` has the source of the current password. */
function nextOf({ next, ...current }: CredentialSources): PartSources {
  return next?.password !== undefined || next?.ha1 !== undefined ? next : current;
}

function listLines(rows: readonly Row[], now: number): string[] {
  const lines = rows.map(({ name, state, from, version, changedAt }) => {
    const age = changedAt === undefined ? '-' : span((now - changedAt.getTime()) / 1000);
    return [name, state, version, age, from.join(', ')];
  });
  return alignColumns([['NAME', 'STATE', 'VERSION', 'AGE', 'FROM'], ...lines]);
}
