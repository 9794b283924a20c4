import type { Argument, Command, Option } from 'commander';
import { commandLine } from '../../src/cli/main.ts';
import { generatedFrom, page, wrap } from './markdown.ts';

const INTRODUCTION = [
  generatedFrom('the commands'),
  '# Commands',
  wrap(
    'The program is called `digest-gateway`. In a checkout, `npm run -s gateway -- COMMAND …` is the same program. `digest-gateway COMMAND --help` prints what this page says.',
  ),
  wrap(
    'Exit status: 0 done; 1 found something wrong, or failed; 2 wrong usage or configuration. Results are on stdout. Logs are on stderr: JSON lines, or readable lines on a terminal.',
  ),
];

/** The text of docs/cli.md. */
export async function cliPage(): Promise<string> {
  const program = await commandLine();
  return page([...INTRODUCTION, ...program.commands.flatMap((command) => sections(command, ''))]);
}

function sections(command: Command, parents: string): string[] {
  const name = `${parents}${command.name()}`;
  if (command.commands.length > 0) return command.commands.flatMap((child) => sections(child, `${name} `));
  const items = [...command.registeredArguments.map(argumentItem), ...command.options.map(optionItem)];
  const usage = [name, ...command.registeredArguments.map(argumentUsage), ...required(command)].join(' ');
  const list = items.length === 0 ? [] : [items.join('\n')];
  return [`## ${name}`, `    digest-gateway ${usage}`, wrap(`${sentence(command.description())}`), ...list];
}

function required(command: Command): string[] {
  const optional = command.options.some(({ mandatory }) => !mandatory) ? ['[options]'] : [];
  return [...command.options.filter(({ mandatory }) => mandatory).map(({ flags }) => flags), ...optional];
}

function argumentUsage(argument: Argument): string {
  return argument.required ? `<${argument.name()}>` : `[${argument.name()}]`;
}

function argumentItem(argument: Argument): string {
  return wrap(`- \`${argumentUsage(argument)}\`: ${sentence(argument.description)}`, '  ');
}

function optionItem({ flags, description, defaultValue, mandatory }: Option): string {
  const list = Array.isArray(defaultValue);
  const fallback = defaultValue === undefined || list ? '' : ` Default: \`${defaultValue}\`.`;
  return wrap(`- \`${flags}\`: ${sentence(description)}${mandatory ? ' Required.' : fallback}`, '  ');
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
