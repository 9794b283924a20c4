import { isNativeError } from 'node:util/types';
import { Command, CommanderError } from 'commander';
import { errorCode } from '../base/error-code.ts';
import { PortError } from '../base/open-port.ts';
import { ConfigError } from '../config/issues.ts';
import { WorkerError } from '../fleet/worker-error.ts';
import { CommandError } from './command-error.ts';
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
    process.exitCode = report(error);
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
  // `worker` is not for people, so no list names it.
  const named =
    name === 'worker' ? async () => (await import('./worker.ts')).registerWorker : COMMANDS.get(name);
  for (const load of named === undefined ? COMMANDS.values() : [named]) (await load())(program);
  registerCompletion(program, commandLine);
  registerHelp(program);
  return program;
}

/** Prints the error to stderr, unless commander did, and returns the exit status. */
function report(error: unknown): 0 | 1 | 2 {
  if (error instanceof CommanderError) {
    return error.exitCode === 0 ? 0 : 2;
  }
  if (error instanceof ConfigError) {
    process.stderr.write(`${error.message}\n`);
    return 2;
  }
  if (error instanceof PortError || error instanceof WorkerError) {
    process.stderr.write(`${error.message}\n`);
    return 1;
  }
  if (error instanceof CommandError) {
    process.stderr.write(`${error.message}\n`);
    return error.status;
  }
  if (isNativeError(error) && errorCode(error) === 'EADDRINUSE') {
    process.stderr.write(
      `${error.message}. Another program listens there: stop it, choose another port in the configuration, or run demo --free-ports.\n`,
    );
    return 1;
  }
  process.stderr.write(`${isNativeError(error) ? error.stack : String(error)}\n`);
  return 1;
}
