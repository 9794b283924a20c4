import type { Command } from 'commander';
import { ConfigError, formatIssue } from '../config/issues.ts';
import { readSetup } from '../setup/setup.ts';
import { count } from './count.ts';
import { processContext } from './process-context.ts';

/** `check --config FILE`: reads a configuration and every secret that it names, without network access. */
export function registerCheck(program: Command): void {
  program
    .command('check')
    .description('read the configuration and its secrets, without network access, and report every issue')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .action(async ({ config }: { config: string }) => {
      const { lines, status } = await check(config);
      process.stdout.write(`${lines.join('\n')}\n`);
      process.exitCode = status;
    });
}

async function check(file: string): Promise<{ lines: string[]; status: 0 | 2 }> {
  try {
    const { config, warnings } = await readSetup(file, processContext());
    const deployments = count(Object.keys(config.deployments).length, 'deployment');
    const credentials = count(Object.keys(config.credentials).length, 'credential');
    const lines = warnings.map((warning) => `${formatIssue(warning)} (warning)`);
    return { lines: [...lines, `${file}: ok — ${deployments}, ${credentials}`], status: 0 };
  } catch (error) {
    if (error instanceof ConfigError) {
      return { lines: error.issues.map(formatIssue), status: 2 };
    }
    throw error;
  }
}
