import type { Command } from 'commander';

/** `help [COMMAND...]`: displays the help of the program, of a group, or of a command in a group. */
export function registerHelp(program: Command): void {
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
