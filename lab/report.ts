import { count } from '../src/base/units.ts';
import type { PartReport } from './part.ts';

/** The report of one part. */
export interface NamedReport extends PartReport {
  readonly name: string;
  readonly description: string;
}

/** When, with which code and by which command a part was run. */
export interface RunFacts {
  /** `YYYY-MM-DD`, UTC. */
  readonly date: string;
  readonly commit: string;
  readonly node: string;
  readonly command: string;
}

/** Formats the report of a part as Markdown. */
export function markdownOf(report: NamedReport, { date, commit, node, command }: RunFacts): string {
  const { name, description, figures, tables, findings } = report;
  const parts = [
    `# ${name}\n\n${description}\n`,
    `${date}, commit ${commit}, Node.js ${node}, \`${command}\`: ${count(findings.length, 'finding')}.\n`,
    tableOf(
      ['figure', 'value'],
      Object.entries(figures).map(([figure, value]) => [figure, String(value)]),
    ),
    ...tables.map(({ title, head, rows }) => `## ${title}\n\n${tableOf(head, rows)}`),
  ];
  if (findings.length > 0) {
    const rows = findings.map(({ what, replay }) => [what, `\`${replay}\``]);
    parts.push(`## Findings\n\n${tableOf(['finding', 'replay'], rows)}`);
  }
  return parts.join('\n');
}

function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |\n`;
  return line(head) + line(head.map(() => '---')) + rows.map(line).join('');
}
