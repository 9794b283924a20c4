import { Command } from 'commander';
import { registerCompletion } from './completion.ts';
import { registerHelp } from './help.ts';
import { packageVersion } from './version.ts';

type Register = (program: Command) => void;

/**
 * Each command registers itself, and sets `process.exitCode` if it is not 0. Only the command that runs is
 * loaded.
 */
const COMMANDS = new Map<string, () => Promise<Register>>([
  ['serve', async () => (await import('./serve.ts')).registerServe],
  ['check', async () => (await import('./check.ts')).registerCheck],
  ['doctor', async () => (await import('./doctor.ts')).registerDoctor],
  ['credential', async () => (await import('./credential.ts')).registerCredential],
  ['policy', async () => (await import('./policy.ts')).registerPolicy],
  ['simulate', async () => (await import('./simulate.ts')).registerSimulate],
  ['demo', async () => (await import('./demo.ts')).registerDemo],
  ['client', async () => (await import('./client.ts')).registerClient],
  ['audit', async () => (await import('./audit.ts')).registerAudit],
  ['config', async () => (await import('./config.ts')).registerConfig],
]);

/** Commander's flags for the version. */
const VERSION_FLAGS = ['-V', '--version'];

/** Commands whose stderr is a log from the first line to the last, for a program that reads it. */
const LOGGING = new Set(['serve', 'worker']);

/**
 * Runs the command in the arguments. Exit status: 0 done, 1 failed or found an error, 2 wrong usage or
 * configuration.
 */
export async function main(args: readonly string[]): Promise<void> {
  // A diagnostic report (--report-on-fatalerror and the like) would contain the environment with its
  // secrets.
  process.report.excludeEnv = true;
  // A reader such as `| head` may close the pipe early, which is not an error.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1));
  const program = await commandLine(args[0]);
  try {
    await program.parseAsync(args, { from: 'user' });
  } catch (error) {
    const { logError, printError, statusOf } = await import('./error-report.ts');
    process.exitCode = statusOf(error);
    if (LOGGING.has(args[0] ?? '')) logError(error);
    else printError(error);
  }
}

/** Creates the program with the command of that name, or with all commands if there is none. */
export async function commandLine(name = ''): Promise<Command> {
  // Subcommands copy these settings when they are registered, so they must be set first.
  const program = new Command('digest-gateway')
    .description('Answers HTTP Digest challenges for clients that cannot, and alone holds the credentials.')
    .version(await packageVersion())
    .exitOverride()
    .showHelpAfterError('(see digest-gateway --help)');
  if (LOGGING.has(name)) program.configureOutput({ writeErr: () => undefined });
  for (const load of commandsFor(name)) (await load())(program);
  registerCompletion(program, commandLine);
  registerHelp(program);
  return program;
}

/** Returns the commands to load if the first argument is `name`. */
function commandsFor(name: string): Iterable<() => Promise<Register>> {
  if (VERSION_FLAGS.includes(name)) return [];
  // `worker` is not for people, so no list names it.
  if (name === 'worker') return [async () => (await import('./worker.ts')).registerWorker];
  const named = COMMANDS.get(name);
  return named === undefined ? COMMANDS.values() : [named];
}
