import type { PartReport } from './part.ts';

/** The report of one part. */
export interface NamedReport extends PartReport {
  readonly name: string;
  readonly description: string;
}

/** The report for people, in Markdown. */
export function markdownOf(reports: readonly NamedReport[]): string {
  const findings = reports.reduce((sum, report) => sum + report.findings.length, 0);
  const sections = reports.map(sectionOf);
  return `# Torture\n\n${findings} findings.\n\n${sections.join('\n')}`;
}

function sectionOf({ name, description, figures, tables, findings }: NamedReport): string {
  const parts = [
    `## ${name}\n\n${description}\n`,
    tableOf(
      ['figure', 'value'],
      Object.entries(figures).map(([figure, value]) => [figure, String(value)]),
    ),
    ...tables.map(({ title, head, rows }) => `### ${title}\n\n${tableOf(head, rows)}`),
  ];
  if (findings.length > 0) {
    const rows = findings.map(({ what, replay }) => [what, `\`${replay}\``]);
    parts.push(`### Findings\n\n${tableOf(['finding', 'replay'], rows)}`);
  }
  return parts.join('\n');
}

function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |\n`;
  return line(head) + line(head.map(() => '---')) + rows.map(line).join('');
}
