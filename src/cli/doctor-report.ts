import { count } from '../base/count.ts';
import type { Report } from '../doctor/doctor.ts';
import type { Finding, Mark } from '../doctor/finding.ts';
import { alignColumns } from './table.ts';

/** Width of the longest mark, so that columns start at the same place in every report. */
const MARK_WIDTH = 4;

/** Colours a text, or returns it unchanged. */
export type Paint = (mark: Mark, text: string) => string;

/** Formats the report as text lines: the findings of each deployment, with the advice under each problem. */
export function reportLines(report: Report, paint: Paint): string[] {
  const { deployments, redis, audit } = report;
  const others = [redis, audit].filter((finding) => finding !== null);
  const all = [...deployments.flatMap(({ findings }) => findings), ...others];
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
    ...(others.length === 0 ? [] : [...lines(others), '']),
    paint(report.mark, summary(report)),
  ];
}

function cellsOf(finding: Finding, paint: Paint): string[] {
  const { mark, saw, problem, advice } = finding;
  const called = problem === undefined ? '' : `  [${problem}]`;
  const below = advice === undefined ? '' : `\n→ ${advice}`;
  return [paint(mark, mark), nameOf(finding), `${saw}${called}${below}`];
}

function nameOf({ check, subject }: Finding): string {
  return subject === undefined ? check : `${check} ${subject}`;
}

function summary({ failures, warnings, mark }: Report): string {
  if (mark === 'ok') return 'All is well.';
  const parts = [
    ...(failures > 0 ? [count(failures, 'failure')] : []),
    ...(warnings > 0 ? [count(warnings, 'warning')] : []),
  ];
  return `${parts.join(', ')}.`;
}
