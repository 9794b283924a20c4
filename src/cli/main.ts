import { Command, Help, type Option, type OutputConfiguration } from 'commander';
import { registerCompletion } from './completion.ts';
import { type ExitStatus, type Io, packageVersion, type Run } from './io.ts';

type Register = (program: Command, run: Run) => void;

/** Each command registers itself. Only the command that runs is loaded. */
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
  ['witness', async () => (await import('./witness.ts')).registerWitness],
  ['config', async () => (await import('./config.ts')).registerConfig],
]);

/** Commander's flags for the version. */
const VERSION_FLAGS = ['-V', '--version'];

/** Commands whose stderr is a log from the first line to the last, for a program that reads it. */
const LOGGING = new Set(['serve', 'worker', 'witness']);

const EPILOGUE = `
Begin with demo. Then write a configuration, and run check, doctor and serve with
it.

Exit status: 0 done, 1 something is wrong, 2 wrong usage or configuration.`;

/** The description of an option, without a default that says nothing: an empty list, or that a flag is off. */
function optionDescription(option: Option): string {
  const { defaultValue, description } = option;
  const isEmpty = defaultValue === false || (Array.isArray(defaultValue) && defaultValue.length === 0);
  return isEmpty ? description : new Help().optionDescription(option);
}

/** Runs the command in the arguments. Resolves to the exit status. */
export async function main(args: readonly string[], io: Io): Promise<ExitStatus> {
  let status: ExitStatus = 0;
  const run: Run =
    (command) =>
    async (...given) => {
      status = (await command(io, ...given)) ?? 0;
    };
  const logs = LOGGING.has(args[0] ?? '');
  const program = await commandLine(args[0], run, outputTo(io, logs));
  try {
    await program.parseAsync(args, { from: 'user' });
    return status;
  } catch (error) {
    const { logError, printError, statusOf } = await import('./error-report.ts');
    if (logs) logError(io, error, args[0] ?? '');
    else printError(io, error);
    return statusOf(error);
  }
}

/** Where commander writes help and wrong usage. */
function outputTo({ stdout, stderr }: Io, logs: boolean): OutputConfiguration {
  return {
    writeOut: (text) => void stdout.write(text),
    writeErr: (text) => void (logs || stderr.write(text)),
    getOutHelpWidth: () => stdout.columns ?? 80,
    getErrHelpWidth: () => stderr.columns ?? 80,
  };
}

/**
 * Creates the program with the command of that name, or with all commands if there is none. `run`: without it, the
 * commands are only described.
 */
export async function commandLine(
  name = '',
  run: Run = () => () => Promise.resolve(),
  output: OutputConfiguration = {},
): Promise<Command> {
  // Subcommands copy these settings when they are registered, so they must be set first.
  const program = new Command('digest-gateway')
    .description('Answers HTTP Digest challenges for clients that cannot, and alone holds the credentials.')
    .version(await packageVersion())
    .exitOverride()
    .configureOutput(output)
    .configureHelp({ optionDescription })
    .addHelpText('after', EPILOGUE);
  for (const load of commandsFor(name)) (await load())(program, run);
  registerCompletion(program, run, commandLine);
  registerHelp(program);
  pointAtHelp(program, program.name());
  return program;
}

/** After wrong usage, each command names the help that describes it. */
function pointAtHelp(command: Command, path: string): void {
  command.showHelpAfterError(`(see ${path} --help)`);
  for (const child of command.commands) pointAtHelp(child, `${path} ${child.name()}`);
}

/** Returns the commands to load if the first argument is `name`. */
function commandsFor(name: string): Iterable<() => Promise<Register>> {
  if (VERSION_FLAGS.includes(name)) return [];
  // `worker` is not for people, so no list names it.
  if (name === 'worker') return [async () => (await import('./worker.ts')).registerWorker];
  const named = COMMANDS.get(name);
  return named === undefined ? COMMANDS.values() : [named];
}

/** `help [COMMAND...]`: displays the help of the program, of a group, or of a command in a group. */
function registerHelp(program: Command): void {
  // The one of commander knows no commands in groups.
  program
    .helpCommand(false)
    .command('help')
    .description('display help for a command, such as help audit search')
    .argument('[command...]', 'the command')
    .action((names: readonly string[]) => {
      let command = program;
      for (const name of names) command = childOf(command, name);
      command.help();
    });
}

function childOf(command: Command, name: string): Command {
  const child = command.commands.find((each) => each.name() === name);
  if (child !== undefined) return child;
  const parents = command.parent === null ? '' : `${command.name()} `;
  const known = command.commands.map((each) => each.name()).join(', ');
  const remedy = known === '' ? `run help ${parents}`.trim() : `there are ${known}`;
  return command.error(`error: there is no command ${parents}${name}: ${remedy}`);
}
