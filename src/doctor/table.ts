import type { Report } from './doctor.ts';
import type { Finding, Mark } from './finding.ts';

/** Colours a text, or returns it unchanged. */
export type Paint = (mark: Mark, text: string) => string;

/** Formats the report as text: a table for each deployment, with the advice under each problem. */
export function reportLines(report: Report, paint: Paint): string[] {
  const { deployments, redis, audit } = report;
  const others = [redis, audit].filter((finding) => finding !== null);
  const all = [...deployments.flatMap(({ findings }) => findings), ...others];
  const width = Math.max(0, ...all.map((finding) => nameOf(finding).length));
  const lines = (findings: readonly Finding[]): string[] =>
    findings.flatMap((finding) => findingLines(finding, width, paint));
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

function findingLines(finding: Finding, width: number, paint: Paint): string[] {
  const { mark, saw, problem, advice } = finding;
  const called = problem === undefined ? '' : `  [${problem}]`;
  const line = `  ${paint(mark, mark.padEnd(4))}  ${nameOf(finding).padEnd(width)}  ${saw}${called}`;
  return advice === undefined ? [line] : [line, `  ${' '.repeat(4)}  ${' '.repeat(width)}  → ${advice}`];
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

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
