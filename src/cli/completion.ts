import { Argument, type Command, type Option } from 'commander';
import { bashCompletion } from './completion-bash.ts';
import { fishCompletion } from './completion-fish.ts';

const SCRIPTS = {
  bash: bashCompletion,
  // zsh runs functions of bash.
  zsh: (commands: readonly CompletedCommand[]) =>
    `#compdef digest-gateway\nautoload -U +X bashcompinit && bashcompinit\n${bashCompletion(commands)}`,
  fish: fishCompletion,
} as const;

/** A command or group as completion sees it. */
export interface CompletedCommand {
  /** The words that select it; none for the program. */
  readonly words: readonly string[];
  readonly subcommands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly CompletedOption[];
  /** Values of its first argument; none if any text is. */
  readonly choices: readonly string[];
}

interface CompletedOption {
  readonly flag: string;
  readonly description: string;
  /** Undefined for an option without value. */
  readonly value: 'file' | 'other' | undefined;
}

/** `completion bash|zsh|fish`: prints a completion script, made from the commands in `load`. */
export function registerCompletion(program: Command, load: () => Promise<Command>): void {
  program
    .command('completion')
    .description(
      'print a completion script for a shell; for bash, run: source <(digest-gateway completion bash)',
    )
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(SCRIPTS)))
    .action(async (shell: keyof typeof SCRIPTS) => {
      process.stdout.write(SCRIPTS[shell](completedCommands(await load(), [])));
    });
}

function completedCommands(command: Command, words: readonly string[]): CompletedCommand[] {
  const own: CompletedCommand = {
    words,
    subcommands: command.commands.map((each) => ({ name: each.name(), description: each.description() })),
    options: command.createHelp().visibleOptions(command).map(completedOption),
    choices: command.registeredArguments[0]?.argChoices ?? [],
  };
  return [own, ...command.commands.flatMap((each) => completedCommands(each, [...words, each.name()]))];
}

function completedOption({ long, flags, description, required, optional }: Option): CompletedOption {
  const takesValue = required || optional;
  const value = takesValue ? (flags.includes('<file>') ? 'file' : 'other') : undefined;
  return { flag: long ?? flags, description, value };
}
