import { buffer } from 'node:stream/consumers';
import type { Command } from 'commander';
import { printableLines } from '../base/printable.ts';
import { count } from '../base/units.ts';
import { ConfigError, formatIssue, type LocatedIssue } from '../config/issues.ts';
import { loadLocated, locatedIn } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { readSetupOf } from '../setup/setup.ts';
import { configWarnings } from '../setup/warnings.ts';
import { type ExitStatus, type Io, print, processContext, type Run } from './io.ts';

/** Names stdin in place of a file. */
const STDIN = '-';

interface CheckOptions {
  readonly config: string;
  readonly secrets: boolean;
  readonly json?: boolean;
}

interface Checked {
  readonly file: string;
  /** Undefined if there are issues. */
  readonly config: Config | undefined;
  readonly issues: readonly LocatedIssue[];
  readonly warnings: readonly LocatedIssue[];
}

/** `check --config FILE`: reads a configuration and every secret that it names, without network access. */
export function registerCheck(program: Command, run: Run): void {
  program
    .command('check')
    .description('read the configuration and its secrets, without network access, and report every issue')
    .requiredOption(
      '--config <file>',
      'the configuration (YAML); - reads it from stdin, with file names relative to the current folder',
    )
    .option(
      '--no-secrets',
      'check the configuration alone, and read none of the secrets, certificates and folders that it names',
    )
    .option('--json', 'print JSON')
    .action(run(runCheck));
}

async function runCheck(io: Io, options: CheckOptions): Promise<ExitStatus> {
  const { config, ...found } = await check(io, options);
  const isValid = config !== undefined;
  const text =
    options.json === true
      ? JSON.stringify({ valid: isValid, ...found }, undefined, 2)
      : lines({ config, ...found }).join('\n');
  await print(io, `${printableLines(text)}\n`);
  return isValid ? 0 : 2;
}

async function check(io: Io, { config: given, secrets }: CheckOptions): Promise<Checked> {
  const isStdin = given === STDIN;
  const file = isStdin ? 'stdin' : given;
  try {
    const context = processContext(io);
    // A pipeline has the files of its checkout, which belong to another user than those of the gateway.
    const trust = secrets ? context : undefined;
    const located = isStdin
      ? await locatedIn(await buffer(io.stdin), file, trust)
      : await loadLocated(file, trust);
    const warnings = secrets
      ? (await readSetupOf(located, context)).warnings
      : [...located.warnings, ...configWarnings(located.config, Date.now())].map(located.locate);
    return { file, config: located.config, issues: [], warnings };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { file, config: undefined, issues: error.issues, warnings: [] };
  }
}

function lines({ file, config, issues, warnings }: Checked): string[] {
  if (config === undefined) return issues.map(formatIssue);
  const deployments = count(Object.keys(config.deployments).length, 'deployment');
  const credentials = count(Object.keys(config.credentials).length, 'credential');
  return [
    ...warnings.map((warning) => `${formatIssue(warning)} (warning)`),
    `${file}: ok — ${deployments}, ${credentials}`,
  ];
}
