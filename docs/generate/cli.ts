import { commandLine } from '../../src/cli/main.ts';
import { type DescribedCommand, describedCommands } from './commands.ts';
import { generatedFrom, page, wrap } from './markdown.ts';

const INTRODUCTION = [
  generatedFrom('the commands'),
  '# Commands',
  wrap(
    'The program is called `digest-gateway`. In a checkout, `npm run -s gateway -- COMMAND …` is the same program. `digest-gateway COMMAND --help` prints what this page says.',
  ),
  wrap(
    'Exit status: 0 done; 1 found something wrong, or failed; 2 wrong usage or configuration. Results are on stdout, messages on stderr. `serve` writes only its log there, from errors of the start to the last line: JSON lines, or readable lines on a terminal.',
  ),
];

/** The text of docs/configure/cli.md. */
export async function cliPage(): Promise<string> {
  return page([...INTRODUCTION, ...describedCommands(await commandLine()).flatMap(section)]);
}

function section({ name, usage, description, items }: DescribedCommand): string[] {
  const list = items.map(({ term, text, fallback }) =>
    wrap(`- \`${term}\`: ${text}${fallback === undefined ? '' : ` Default: \`${fallback}\`.`}`, '  '),
  );
  return [
    `## ${name}`,
    `    digest-gateway ${usage}`,
    wrap(description),
    ...(list.length === 0 ? [] : [list.join('\n')]),
  ];
}
