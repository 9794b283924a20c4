import type { CompletedCommand } from './completion.ts';

/** Returns a completion script for fish. */
export function fishCompletion(commands: readonly CompletedCommand[]): string {
  return `${['complete -c digest-gateway -f', ...commands.flatMap(commandLines)].join('\n')}\n`;
}

function commandLines({ words, subcommands, options, choices }: CompletedCommand): string[] {
  const seen = words.map((word) => `__fish_seen_subcommand_from ${word}`);
  const names = subcommands.map(({ name }) => name);
  const unseen =
    words.length === 0
      ? ['__fish_use_subcommand']
      : names.length === 0
        ? []
        : [`not __fish_seen_subcommand_from ${names.join(' ')}`];
  const line = (rest: string): string =>
    `complete -c digest-gateway -n ${quoted([...seen, ...unseen].join('; and '))} ${rest}`;
  return [
    ...subcommands.map(({ name, description }) => line(`-a ${name} -d ${quoted(description)}`)),
    ...choices.map((choice) => line(`-a ${choice}`)),
    ...options.map(({ flag, description, value }) => {
      const taken = value === undefined ? '' : value === 'file' ? ' -r -F' : ' -x';
      return line(`-l ${flag.replace(/^--/, '')} -d ${quoted(description)}${taken}`);
    }),
  ];
}

function quoted(text: string): string {
  return `'${text.replaceAll(/['\\]/g, '\\$&')}'`;
}
