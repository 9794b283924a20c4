import type { Argument, Command, Option } from 'commander';

/** A command, described for a page. */
export interface DescribedCommand {
  /** Such as `audit search`. */
  readonly name: string;
  /** Its name with arguments and required options. */
  readonly usage: string;
  readonly description: string;
  readonly items: readonly Item[];
}

/** An argument or option. */
interface Item {
  readonly term: string;
  readonly text: string;
  /** Undefined without a default. */
  readonly fallback: string | undefined;
}

/** Returns the commands below a command, those in groups in place of their group. */
export function describedCommands(command: Command, parents = ''): DescribedCommand[] {
  return command.commands.flatMap((child) => {
    const name = `${parents}${child.name()}`;
    return child.commands.length > 0 ? describedCommands(child, `${name} `) : [described(child, name)];
  });
}

function described(command: Command, name: string): DescribedCommand {
  const { registeredArguments: args, options } = command;
  return {
    name,
    usage: [name, ...args.map(argumentUsage), ...required(options)].join(' '),
    description: sentence(command.description()),
    items: [...args.map(argumentItem), ...options.map(optionItem)],
  };
}

function required(options: readonly Option[]): string[] {
  const optional = options.some(({ mandatory }) => !mandatory) ? ['[options]'] : [];
  return [...options.filter(({ mandatory }) => mandatory).map(({ flags }) => flags), ...optional];
}

function argumentUsage(argument: Argument): string {
  const name = `${argument.name()}${argument.variadic ? '...' : ''}`;
  return argument.required ? `<${name}>` : `[${name}]`;
}

function argumentItem(argument: Argument): Item {
  const choices = argument.argChoices === undefined ? '' : ` (${argument.argChoices.join(', ')})`;
  return {
    term: argumentUsage(argument),
    text: sentence(`${argument.description}${choices}`),
    fallback: undefined,
  };
}

function optionItem({ flags, description, defaultValue, mandatory, negate }: Option): Item {
  const isShown = defaultValue !== undefined && !Array.isArray(defaultValue) && !negate;
  return {
    term: flags,
    text: `${sentence(description)}${mandatory ? ' Required.' : ''}`,
    fallback: isShown ? String(defaultValue) : undefined,
  };
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
