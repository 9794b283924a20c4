import type { CompletedCommand } from './completion.ts';

/** Returns a completion script for bash. It runs in zsh with bashcompinit, too. */
export function bashCompletion(commands: readonly CompletedCommand[]): string {
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
      ${named.map(({ words }) => pattern([...words.slice(0, -1)].join(' '), words.at(-1) ?? '')).join('|')})
        command="\${command:+$command }\${COMP_WORDS[index]}" ;;
    esac
  done
  COMPREPLY=()
  case "$command $before" in
${commands.flatMap(valueCases).join('\n')}
  esac
  case "$command" in
${commands.map(wordCase).join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _digest_gateway digest-gateway
`;
}

function pattern(command: string, word: string): string {
  return `'${command} ${word}'`;
}

/** Completes the value of an option: names of files, or nothing. */
function valueCases({ words, options }: CompletedCommand): string[] {
  const cases = (value: 'file' | 'other', body: string): string[] => {
    const flags = options.filter((option) => option.value === value);
    if (flags.length === 0) return [];
    return [`    ${flags.map(({ flag }) => pattern(words.join(' '), flag)).join('|')}) ${body}; return ;;`];
  };
  return [...cases('file', '_digest_gateway_files'), ...cases('other', ':')];
}

function wordCase({ words, subcommands, options, choices }: CompletedCommand): string {
  const offered = [...subcommands.map(({ name }) => name), ...choices, ...options.map(({ flag }) => flag)];
  return `    '${words.join(' ')}') words='${offered.join(' ')}' ;;`;
}
