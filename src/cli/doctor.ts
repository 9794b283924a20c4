import { styleText } from 'node:util';
import type { Command } from 'commander';
import { doctorInput } from '../app/doctor-input.ts';
import { monotonicClock } from '../base/clock.ts';
import { examine, type Report } from '../doctor/doctor.ts';
import { readSetup } from '../setup/setup.ts';
import { CommandError } from './command-error.ts';
import { reportLines } from './doctor-report.ts';
import { processContext } from './process-context.ts';

interface Options {
  readonly config: string;
  readonly deployment?: string;
  readonly json?: boolean;
}

const COLORS = { ok: 'green', warn: 'yellow', fail: 'red' } as const;

/** `doctor`: tests upstreams, Redis and disk, and prints advice. Exit status 1: at least one failure. */
export function registerDoctor(program: Command): void {
  program
    .command('doctor')
    .description(
      'test what a configuration depends on: upstreams, credentials, Redis and the audit log; report what to do',
    )
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option('--deployment <name>', 'test this deployment only')
    .option('--json', 'print JSON')
    .action(async ({ config: file, deployment, json = false }: Options) => {
      const setup = await readSetup(file, processContext());
      const names = Object.keys(setup.config.deployments);
      if (deployment !== undefined && !names.includes(deployment)) {
        throw new CommandError(2, `Name a deployment of the configuration: ${names.join(', ')}`);
      }
      const deps = { clock: monotonicClock, wallTime: Date.now };
      const report = await examine(doctorInput(setup, deployment), deps);
      await print(json ? JSON.stringify(report, undefined, 2) : painted(report));
      // A pending DNS query without a reply would keep the process alive.
      process.exit(report.failures > 0 ? 1 : 0);
    });
}

function painted(report: Report): string {
  const stream = process.stdout;
  return reportLines(report, (mark, text) => styleText(COLORS[mark], text, { stream })).join('\n');
}

function print(text: string): Promise<void> {
  return new Promise((resolve) => process.stdout.write(`${text}\n`, () => resolve()));
}
