import { chmod, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PROGRAM, runCommand } from './program.ts';
import { repository } from './repository.ts';

/** A fenced block of a page. */
export interface Block {
  readonly language: string;
  readonly text: string;
}

/** A command that a page shows. */
export interface PageCommand {
  readonly command: string;
  /** What the page shows below it; empty where the block shows commands only. */
  readonly shown: string;
}

/** The README and every page of docs/. */
export async function allPages(): Promise<string[]> {
  const names = await readdir(join(repository, 'docs'), { recursive: true });
  const pages = names.filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`);
  return ['README.md', ...pages.sort()];
}

/** The fenced blocks of a page, in order. */
export async function blocksOf(page: string): Promise<Block[]> {
  const text = await readFile(join(repository, page), 'utf8');
  return Array.from(
    text.matchAll(/^( *)```(\w*)\n([\s\S]*?)^ *```/gm),
    ([, indent = '', language = '', block = '']): Block => ({
      language,
      text: block.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
    }),
  );
}

/** The commands of a block: the lines of `sh`, and those behind `$ ` of a transcript. */
export function commandsOf({ language, text }: Block): PageCommand[] {
  if (language === 'sh') {
    const whole = text.replaceAll(/\\\n\s*/g, '');
    return whole
      .split('\n')
      .flatMap((line) => (line.trim() === '' ? [] : { command: withoutRemark(line), shown: '' }));
  }
  if (language !== 'console' && !text.startsWith('$ ')) return [];
  return text
    .split(/^\$ /m)
    .slice(1)
    .map((part) => {
      const [command = ''] = part.split('\n', 1);
      return { command: withoutRemark(command), shown: part.slice(command.length + 1) };
    });
}

/** A remark stands behind several spaces. */
function withoutRemark(line: string): string {
  return line.replace(/ {2,}# .*$/, '').trim();
}

/** Less than a test may take. */
const MAX_SECONDS = 170;

/** A command for the shell, with what has to be done around it. */
export interface Step {
  readonly command: string;
  /** Shell commands whose output is not part of the result. */
  readonly before?: string;
  readonly after?: string;
}

/**
 * Runs commands one after the other in one shell in a folder, where `digest-gateway` is the program of the checkout.
 * Resolves to what each printed on stdout and stderr. What still runs in the background at the end is ended.
 */
export async function runInShell(
  folder: string,
  steps: readonly Step[],
  environment: Readonly<Record<string, string>> = {},
): Promise<string[]> {
  const bin = join(folder, '.bin');
  await mkdir(bin, { recursive: true });
  const program = join(bin, 'digest-gateway');
  await writeFile(program, `#!/bin/sh\nexec ${process.execPath} --no-warnings ${PROGRAM} "$@"\n`);
  await chmod(program, 0o755);
  const script = [
    `cd ${folder}`,
    `PATH=${bin}:$PATH`,
    // On a terminal, curl shows no progress beside a short response.
    'curl() { command curl -sS "$@"; }',
    ...Object.entries(environment).map(([name, value]) => `${name}='${value}'`),
    "trap 'exec > /dev/null 2>&1; kill $(jobs -p); wait' EXIT",
    ...steps.flatMap(({ command, before = ':', after = ':' }, index) => [
      `{ ${before}; } > /dev/null 2>&1`,
      `exec > ${bin}/${index} 2>&1`,
      command,
      'exec > /dev/null 2>&1',
      after,
    ]),
  ];
  await writeFile(join(bin, 'script'), script.join('\n'));
  // Otherwise a command that hangs would outlive its test, with what was started before it.
  const { printed } = await runCommand('timeout', [String(MAX_SECONDS), 'bash', join(bin, 'script')]);
  return Promise.all(
    steps.map((_, index) =>
      readFile(join(bin, `${index}`), 'utf8').catch(() => {
        throw new Error(`command ${index} did not run: ${printed}`);
      }),
    ),
  );
}
