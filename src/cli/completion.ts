import { Argument, type Command, type Option } from 'commander';
import { print, type Run } from './io.ts';

const SCRIPTS = {
  bash: bashCompletion,
  // zsh runs functions of bash.
  zsh: (commands: readonly CompletedCommand[]) =>
    `#compdef digest-gateway\nautoload -U +X bashcompinit && bashcompinit\n${bashCompletion(commands)}`,
  fish: (commands: readonly CompletedCommand[]) =>
    `${['complete -c digest-gateway -f', ...commands.flatMap(fishLines)].join('\n')}\n`,
} as const;

/** A command or group as completion sees it. */
interface CompletedCommand {
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
export function registerCompletion(program: Command, run: Run, load: () => Promise<Command>): void {
  program
    .command('completion')
    .description(
      'print a completion script for a shell; for bash, run: source <(digest-gateway completion bash)',
    )
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(SCRIPTS)))
    .action(
      run(async (io, shell: keyof typeof SCRIPTS) =>
        print(io, SCRIPTS[shell](completedCommands(await load(), []))),
      ),
    );
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

/** Returns a completion script for bash. It runs in zsh with bashcompinit, too. */
function bashCompletion(commands: readonly CompletedCommand[]): string {
  const named = commands.filter(({ words }) => words.length > 0);
  return `_digest_gateway_files() {
  local IFS=$'\\n'
  COMPREPLY=($(compgen -f -- "$current"))
  # Not in zsh, nor in bash before version 4.
  type compopt >/dev/null 2>&1 && compopt -o filenames 2>/dev/null
}
_digest_gateway() {
  local current="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" command='' words='' index
  for ((index = 1; index < COMP_CWORD; index++)); do
    case "$command \${COMP_WORDS[index]}" in
      ${named.map(({ words }) => bashPattern([...words.slice(0, -1)].join(' '), words.at(-1) ?? '')).join('|')})
        command="\${command:+$command }\${COMP_WORDS[index]}" ;;
    esac
  done
  COMPREPLY=()
  case "$command $before" in
${commands.flatMap(bashValueCases).join('\n')}
  esac
  case "$command" in
${commands.map(bashWordCase).join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _digest_gateway digest-gateway
`;
}

function bashPattern(command: string, word: string): string {
  return `'${command} ${word}'`;
}

/** Completes the value of an option: names of files, or nothing. */
function bashValueCases({ words, options }: CompletedCommand): string[] {
  const cases = (value: 'file' | 'other', body: string): string[] => {
    const flags = options.filter((option) => option.value === value);
    if (flags.length === 0) return [];
    return [
      `    ${flags.map(({ flag }) => bashPattern(words.join(' '), flag)).join('|')}) ${body}; return ;;`,
    ];
  };
  return [...cases('file', '_digest_gateway_files'), ...cases('other', ':')];
}

function bashWordCase({ words, subcommands, options, choices }: CompletedCommand): string {
  const offered = [...subcommands.map(({ name }) => name), ...choices, ...options.map(({ flag }) => flag)];
  return `    '${words.join(' ')}') words='${offered.join(' ')}' ;;`;
}

function fishLines({ words, subcommands, options, choices }: CompletedCommand): string[] {
  const seen = words.map((word) => `__fish_seen_subcommand_from ${word}`);
  const names = subcommands.map(({ name }) => name);
  const unseen =
    words.length === 0
      ? ['__fish_use_subcommand']
      : names.length === 0
        ? []
        : [`not __fish_seen_subcommand_from ${names.join(' ')}`];
  const line = (rest: string): string =>
    `complete -c digest-gateway -n ${fishQuoted([...seen, ...unseen].join('; and '))} ${rest}`;
  return [
    ...subcommands.map(({ name, description }) => line(`-a ${name} -d ${fishQuoted(description)}`)),
    ...choices.map((choice) => line(`-a ${choice}`)),
    ...options.map(({ flag, description, value }) => {
      const taken = value === undefined ? '' : value === 'file' ? ' -r -F' : ' -x';
      return line(`-l ${flag.replace(/^--/, '')} -d ${fishQuoted(description)}${taken}`);
    }),
  ];
}

function fishQuoted(text: string): string {
  return `'${text.replaceAll(/['\\]/g, '\\$&')}'`;
}
