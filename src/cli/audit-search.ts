import { type Command, Option } from 'commander';
import {
  addressCriterion,
  addressForms,
  codeCriterion,
  type Found,
  type Query,
  statusCriterion,
} from '../audit/reader/query.ts';
import { search } from '../audit/reader/search.ts';
import { NOT_RECORDED, UndecidedRequests } from '../audit/reader/undecided.ts';
import { type Format, formatted, printLines } from './audit-format.ts';
import {
  argument,
  asRecordedOption,
  fromOption,
  keyOption,
  type LogOptions,
  openLog,
  replicaOption,
  toOption,
} from './audit-log.ts';
import { type ExitStatus, type Io, note, type Run } from './io.ts';

interface SearchArguments extends Omit<Query, 'address' | 'since' | 'until' | 'replica'>, LogOptions {
  readonly address?: string;
  readonly json?: boolean;
  readonly csv?: boolean;
}

/** Registers `audit search`. */
export function registerSearch(audit: Command, run: Run): void {
  audit
    .command('search')
    .description('find the requests in the audit log that match all given options')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .addOption(keyOption())
    .addOption(replicaOption('requests'))
    .option('--request-id <id>', 'requests whose response has this X-Request-Id')
    .option(
      '--address <address>',
      'requests of the client at this IP address, also if it was recorded as a pseudonym',
      argument(addressCriterion),
    )
    .option('--client <id>', 'requests of this client')
    .option('--deployment <name>', 'requests to this deployment')
    .option('--site <name>', 'requests for this site')
    .option('--operation <name>', 'requests of this operation')
    .option('--id <identifier>', 'requests with this value of a parameter, or with it in a quoted list')
    .option(
      '--status <status>',
      'requests with this response status: 404, 4xx or 400-499',
      argument(statusCriterion),
    )
    .option(
      '--code <code>',
      'requests that ended with this error of the gateway: rate-limited',
      argument(codeCriterion),
    )
    .option('--outcome <name>', 'requests whose response belongs to this outcome')
    .option('--text <text>', 'requests with this text in any value, in any case')
    .addOption(fromOption('requests'))
    .addOption(toOption('requests'))
    .addOption(asRecordedOption())
    .addOption(new Option('--json', 'print one JSON object per request').conflicts(['csv', 'table']))
    .addOption(new Option('--csv', 'print comma-separated values').conflicts(['json', 'table']))
    .addOption(new Option('--table', 'print columns (default)').conflicts(['json', 'csv']))
    .action(run(runSearch));
}

async function runSearch(
  io: Io,
  { config, key, json, csv, asRecorded, address, replica, from, to, ...given }: SearchArguments,
): Promise<ExitStatus> {
  using log = await openLog(io, { config, key, replica, from, to, asRecorded });
  const { reading, options } = log;
  const { parameters } = log.section;
  const query = {
    ...given,
    ...options.query,
    address: address === undefined ? undefined : addressForms(address),
  };
  const undecided = new UndecidedRequests();
  const found = search({ ...options, query, parameters, onUndecided: undecided.add });
  const format: Format = json === true ? 'json' : csv === true ? 'csv' : 'table';
  let isEmpty = true;
  const seen = async function* (): AsyncGenerator<Found> {
    for await (const each of found) {
      isEmpty = false;
      yield each;
    }
  };
  await printLines(io, formatted(seen(), format), reading);
  reading.hide();
  if (isEmpty) note(io, await log.nothing('no request', 'matches'));
  if (query.id !== undefined && parameters.length === 0) note(io, NOT_RECORDED);
  for (const line of undecided.notes) note(io, line);
  return reading.status;
}
