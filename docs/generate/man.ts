import { packageVersion } from '../../src/cli/io.ts';
import { commandLine } from '../../src/cli/main.ts';
import { type DescribedCommand, describedCommands } from './commands.ts';

/** The manual page that the npm package has, in the macros of man(7). */
async function manPage(version: string): Promise<string> {
  const program = await commandLine();
  const commands = describedCommands(program);
  return lines([
    String.raw`.\" Generated from the commands by "npm pack". Do not edit.`,
    `.TH DIGEST\\-GATEWAY 1 "" "digest\\-gateway ${roff(version)}" "User Commands"`,
    '.SH NAME',
    `digest\\-gateway \\- ${roff('answer HTTP Digest challenges for clients that cannot')}`,
    '.SH SYNOPSIS',
    '.B digest\\-gateway',
    '.I command',
    '.RI [ options ]',
    '.SH DESCRIPTION',
    roff(program.description()),
    '.SH COMMANDS',
    ...commands.flatMap(section),
    '.SH EXIT STATUS',
    ...['0: done.', '1: found something wrong, or failed.', '2: wrong usage or configuration.'].flatMap(
      (text) => {
        const [status = '', meaning = ''] = text.split(': ');
        return ['.TP', `.B ${status}`, roff(meaning)];
      },
    ),
    '.SH OUTPUT',
    roff(
      'Results are on stdout, messages on stderr. serve writes only its log there, from errors of the start to the last line: JSON lines, or readable lines on a terminal.',
    ),
    '.SH SEE ALSO',
    roff('The folder docs of the package, and digest-gateway COMMAND --help.'),
  ]);
}

function section({ name, usage, description, items }: DescribedCommand): string[] {
  return [
    `.SS ${roff(name)}`,
    `.B digest\\-gateway ${roff(usage)}`,
    '.PP',
    roff(description),
    ...items.flatMap(({ term, text, fallback }) => [
      '.TP',
      `.B ${roff(term)}`,
      roff(`${text}${fallback === undefined ? '' : ` Default: ${fallback}.`}`),
    ]),
  ];
}

/** Escapes text; a hyphen as such could be broken, or copied as another character. */
function roff(text: string): string {
  return text.replaceAll('\\', '\\e').replaceAll('-', '\\-').replaceAll('…', '...').replace(/^[.']/, '\\&$&');
}

/** Breaks the lines of text, one sentence on each as man(7) asks. A line must not begin like a macro. */
function lines(all: readonly string[]): string {
  const broken = all.flatMap((line) => {
    if (/^\.[A-Z\\]/.test(line)) return line;
    const sentences = line.replaceAll(/([.:]) (?=[A-Z])/g, '$1\n').split('\n');
    return sentences.flatMap((sentence) => sentence.match(/.{1,76}(?: (?![.'])|$)/g) ?? []);
  });
  return `${broken.map((line) => line.trimEnd()).join('\n')}\n`;
}

process.stdout.write(await manPage(await packageVersion()));
