import { styleText } from 'node:util';
import type { Command } from 'commander';
import { doctorInput } from '../app/deployments.ts';
import { shareLookups } from '../base/name-lookup.ts';
import { count } from '../base/units.ts';
import { listNearest } from '../config/cross-check.ts';
import { examine, type Report } from '../doctor/doctor.ts';
import type { Finding, Mark } from '../doctor/finding.ts';
import { readSetup } from '../setup/setup.ts';
import { CommandError, type ExitStatus, type Io, print, processContext, type Run } from './io.ts';
import { alignColumns } from './table.ts';

/** Width of the longest mark, so that columns start at the same place in every report. */
const MARK_WIDTH = 4;

interface Options {
  readonly config: string;
  readonly deployment?: string;
  readonly json?: boolean;
}

const COLORS = { ok: 'green', warn: 'yellow', fail: 'red' } as const;

/** `doctor`: tests upstreams, Redis and disk, and prints advice. Exit status 1: at least one failure. */
export function registerDoctor(program: Command, run: Run): void {
  program
    .command('doctor')
    .description(
      'test what a configuration depends on: upstreams, credentials, Redis and the audit log; report what to do',
    )
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option('--deployment <name>', 'test this deployment only')
    .option('--json', 'print JSON')
    .action(run(doctor));
}

async function doctor(io: Io, { config: file, deployment, json = false }: Options): Promise<ExitStatus> {
  const setup = await readSetup(file, processContext(io));
  const names = Object.keys(setup.config.deployments);
  if (deployment !== undefined && !names.includes(deployment)) {
    throw new CommandError(2, `Name a deployment of the configuration: ${listNearest(deployment, names)}`);
  }
  shareLookups();
  const report = await examine(doctorInput(setup, deployment), { wallTime: Date.now });
  await print(io, `${json ? JSON.stringify(report, undefined, 2) : painted(io, report)}\n`);
  const status = report.failures > 0 ? 1 : 0;
  // A pending DNS query without a reply would keep the process alive.
  io.exit?.(status);
  return status;
}

function painted({ stdout: stream }: Io, report: Report): string {
  return reportLines(report, (mark, text) => styleText(COLORS[mark], text, { stream })).join('\n');
}

/** Colours a text, or returns it unchanged. */
type Paint = (mark: Mark, text: string) => string;

/** Formats the report as text lines: the findings of each deployment, with the advice under each problem. */
export function reportLines(report: Report, paint: Paint): string[] {
  const { deployments, gateway } = report;
  const all = [...deployments.flatMap(({ findings }) => findings), ...gateway];
  // One table, so that the columns of all deployments are aligned.
  const table = alignColumns(
    all.map((finding) => cellsOf(finding, paint)),
    [MARK_WIDTH],
  );
  const lines = (findings: readonly Finding[]): string[] => {
    const height = findings.reduce((sum, { advice }) => sum + (advice === undefined ? 1 : 2), 0);
    return table.splice(0, height).map((line) => `  ${line}`);
  };
  return [
    ...deployments.flatMap(({ name, origin, probe, findings }) => [
      `${name}  ${origin}  ${probe}`,
      ...lines(findings),
      '',
    ]),
    ...(gateway.length === 0 ? [] : [...lines(gateway), '']),
    paint(report.mark, summary(report)),
  ];
}

function cellsOf(finding: Finding, paint: Paint): string[] {
  const { mark, check, subject = '', saw, problem, advice } = finding;
  const called = problem === undefined ? '' : `  [${problem}]`;
  const below = advice === undefined ? '' : `\n→ ${advice}`;
  return [paint(mark, mark), `${check} ${subject}`.trimEnd(), `${saw}${called}${below}`];
}

function summary({ failures, warnings, mark }: Report): string {
  if (mark === 'ok') return 'All is well.';
  const parts = [
    ...(failures > 0 ? [count(failures, 'failure')] : []),
    ...(warnings > 0 ? [count(warnings, 'warning')] : []),
  ];
  return `${parts.join(', ')}.`;
}
