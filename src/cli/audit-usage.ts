import { type Command, Option } from 'commander';
import type { UsageRow } from '../audit/reader/results.ts';
import { UndecidedRequests } from '../audit/reader/undecided.ts';
import {
  countUsage,
  DEFAULT_FIELDS,
  identifierLists,
  OTHER,
  statusText,
  USAGE_FIELDS,
  type Usage,
  type UsageField,
  usageCsv,
  usageFields,
  usageNotes,
} from '../audit/reader/usage.ts';
import { printable } from '../base/printable.ts';
import { loadConfig } from '../config/load.ts';
import {
  argument,
  fromOption,
  keyOption,
  type LogOptions,
  openLog,
  replicaOption,
  toOption,
} from './audit-log.ts';
import { type ExitStatus, type Io, note, print, type Run } from './io.ts';
import { tableText } from './table.ts';

interface UsageArguments extends LogOptions {
  readonly by?: readonly UsageField[];
  readonly json?: boolean;
  readonly csv?: boolean;
}

/** Registers `audit usage`. */
export function registerUsage(audit: Command, run: Run): void {
  audit
    .command('usage')
    .description('count requests, identifiers, bytes, errors and days in the audit log')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .addOption(keyOption())
    .option(
      '--by <fields>',
      `what is counted together, of ${USAGE_FIELDS.join(', ')}; left out, it is ${DEFAULT_FIELDS}`,
      argument(usageFields),
    )
    .addOption(replicaOption('requests'))
    .addOption(fromOption('requests'))
    .addOption(toOption('requests'))
    .addOption(new Option('--json', 'print one JSON object, with the counts of each day').conflicts('csv'))
    .addOption(new Option('--csv', 'print comma-separated values').conflicts('json'))
    .action(run(runUsage));
}

async function runUsage(io: Io, options: UsageArguments): Promise<ExitStatus> {
  using log = await openLog(io, options);
  const { by = usageFields(DEFAULT_FIELDS) } = options;
  const { deployments } = await loadConfig(options.config);
  const lists = identifierLists(deployments);
  const undecided = new UndecidedRequests();
  const usage = await countUsage({ ...log.options, by, lists, onUndecided: undecided.add });
  log.reading.hide();
  await print(io, textOf(usage, options));
  if (usage.total.requests === 0) note(io, await log.nothing('no request'));
  for (const line of [...undecided.notes, ...usageNotes(usage)]) note(io, line);
  return log.reading.status;
}

function textOf(usage: Usage, { json, csv }: UsageArguments): string {
  if (csv === true) return usageCsv(usage);
  return json === true ? `${printable(JSON.stringify(usageJson(usage)))}\n` : usageTable(usage);
}

function usageTable({ by, rows, other, total }: Usage): string {
  const header = [...by.map((field) => field.toUpperCase()), ...COUNTS];
  const named = (row: UsageRow, name: string) => [name, ...by.slice(1).map(() => ''), ...countsOf(row)];
  const lines = [
    header,
    ...rows.map((row) => [...row.values.map((value) => printable(value) || '-'), ...countsOf(row)]),
    ...(other === undefined ? [] : [named(other, OTHER)]),
    ...(rows.length === 1 ? [] : [named(total, 'total')]),
  ];
  return tableText(lines);
}

const COUNTS = ['REQUESTS', 'IDENTIFIERS', 'BYTES-OUT', 'BYTES-IN', 'DAYS', 'ERRORS'];

function countsOf(row: UsageRow): string[] {
  const { requests, identifiers, bytesOut, bytesIn, days, errors } = row;
  const shown = errors === 0 ? '0' : `${errors} (${statusText(row)})`;
  return [...[requests, identifiers, bytesOut, bytesIn, days].map(String), shown];
}

/** The rows with the names of their fields. */
function usageJson({ by, rows, other, total, daily, namesOnly }: Usage): object {
  return {
    by,
    rows: rows.map(({ values, ...counts }) => ({
      ...Object.fromEntries(by.map((field, index) => [field, values[index]])),
      ...counts,
    })),
    ...(other !== undefined && { other: withoutValues(other) }),
    total: withoutValues(total),
    daily,
    namesOnly,
  };
}

function withoutValues({ values: _none, ...counts }: UsageRow): object {
  return counts;
}
