import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { gateway } from '../../support/program.ts';
import { needProgram } from '../../support/system-packages.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'completion-'));
  for (const shell of ['bash', 'zsh', 'fish']) {
    const { status, stdout } = await gateway(['completion', shell]);
    expect(status).toBe(0);
    await writeFile(join(folder, shell), stdout);
  }
  await writeFile(join(folder, 'gateway one.yaml'), '');
  await writeFile(join(folder, 'other.yaml'), '');
});
afterAll(() => rm(folder, { recursive: true }));

/** Runs a shell without the user's settings; `typed` is an argument of its script. */
async function run(program: string, args: readonly string[], typed: readonly string[]): Promise<string[]> {
  // Of fish, whose folders are otherwise those of the user.
  const folders = { HOME: folder, XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder };
  const env = { PATH: process.env['PATH'], TERM: 'dumb', ...folders };
  needProgram(program);
  const { stdout } = await promisify(execFile)(program, [...args, ...typed], { cwd: folder, env });
  return stdout.split('\n').filter((line) => line !== '');
}

const BASH = `source ./bash
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _digest_gateway; printf '%s\\n' "\${COMPREPLY[@]}"`;

const FISH = 'source ./fish; complete -C $argv[1]';

/** Types into a zsh on a terminal of its own, then the Tab key, and Ctrl-X, which prints the line. */
const ZSH = `zmodload zsh/zpty
zpty z "zsh -f -i"
zpty -w z 'autoload -U compinit; compinit -D; source ./zsh; unsetopt beep
show() { print -r -- "<<$BUFFER>>" }; zle -N show; bindkey "^X" show; print "RE""ADY"'
zpty -r z out '*READY*'
zpty -w -n z "$1"$'\\t\\x18'
zpty -r z out '*<<*>>*'
line=\${out##*<<}
print -r -- "\${line%%>>*}"
zpty -d z`;

type Complete = (typed: string) => Promise<string[]>;

const bash: Complete = (typed) => run('bash', ['--norc', '-c', BASH, 'bash'], typed.split(' '));
const fish: Complete = async (typed) => {
  const lines = await run('fish', ['--no-config', '-c', FISH], [typed]);
  return lines.map((line) => line.split('\t', 1)[0] ?? '');
};
const zsh: Complete = async (typed) => {
  const [line = ''] = await run('zsh', ['-f', '-c', ZSH, 'zsh'], [typed]);
  return line === typed ? [] : [line.slice(typed.lastIndexOf(' ') + 1).trimEnd()];
};

describe.each([
  ['bash', bash],
  ['zsh', zsh],
  ['fish', fish],
])('in %s', (_shell, complete) => {
  test.each([
    ['digest-gateway au', ['audit']],
    ['digest-gateway audit se', ['search']],
    ['digest-gateway audit search --cl', ['--client']],
    ['digest-gateway audit search --client x --js', ['--json']],
    ['digest-gateway completion f', ['fish']],
    ['digest-gateway credential seal audit --new', ['--new-identity']],
    ['digest-gateway check --config oth', ['other.yaml']],
    ['digest-gateway check --config gate', ['gateway one.yaml']],
    ['digest-gateway nothing-like-this', []],
  ])('%j becomes %j', async (typed, words) => {
    expect((await complete(typed)).map((word) => word.replaceAll('\\ ', ' '))).toEqual(words);
  });
});

test.each([
  ['bash', bash],
  ['fish', fish],
])('%s offers every command, and no file in place of one', async (_shell, complete) => {
  const offered = await complete('digest-gateway ');
  expect(offered).toEqual(expect.arrayContaining(['serve', 'check', 'doctor', 'audit', 'client', 'help']));
  expect(offered).not.toContain('other.yaml');
  const inGroup = (await complete('digest-gateway client ')).filter((word) => !word.startsWith('-'));
  expect(inGroup.toSorted()).toEqual(['add', 'list', 'rotate']);
});

test('another shell is wrong usage', async () => {
  const { status, stderr } = await gateway(['completion', 'nu']);
  expect([status, stderr]).toEqual([2, expect.stringContaining('Allowed choices are bash, zsh, fish.')]);
});
