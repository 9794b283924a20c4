import type { Command } from 'commander';
import { clientIn, explain } from '../app/explanation.ts';
import { printable } from '../base/printable.ts';
import { isFieldValue, isToken } from '../base/raw-headers.ts';
import { listNearest } from '../config/cross-check.ts';
import { loadConfig } from '../config/load.ts';
import { isMethod } from '../config/operations.ts';
import type { GrantedView, ObservedRefusalView, RefusedView } from '../control/client-view.ts';
import { CommandError, type ExitStatus, type Io, print, type Run } from './io.ts';
import { registerLearn } from './policy-learn.ts';
import { registerReplay } from './policy-replay.ts';
import { alignColumns } from './table.ts';

interface Options {
  readonly config: string;
  readonly client?: string;
  readonly host?: string;
  readonly header: readonly string[];
  readonly json?: boolean;
}

/**
 * Registers `policy` and its subcommands. `policy explain` explains the outcome of a request without sending it; exit
 * status 1: it would be refused.
 */
export function registerPolicy(program: Command, run: Run): void {
  const policy = program.command('policy').description('work on the rules of clients');
  policy
    .command('explain')
    .description('explain what the gateway would do with a request and why, without sending it')
    .argument('<method>', 'the HTTP method, such as GET')
    .argument('<target>', 'the path and query in quotes, as the client sends them, or the absolute URL')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option('--client <id>', 'the client; may be left out if anonymous is true')
    .option(
      '--host <name>',
      'the Host of the request, for deployments that are matched by host; left out, it is the first of listen.hosts',
    )
    .option(
      '--header <line...>',
      'header fields, such as "Content-Type: text/csv"; "Content-Length: 1" stands for a body',
      [],
    )
    .option('--json', 'print JSON')
    .action(run(runExplain));
  registerReplay(policy, run);
  registerLearn(policy, run);
}

async function runExplain(io: Io, method: string, target: string, options: Options): Promise<ExitStatus> {
  if (!isMethod(method))
    throw new CommandError(2, `${method} is not an HTTP method in capitals, such as GET`);
  const config = await loadConfig(options.config);
  const client = clientIn(config, options.client);
  if (client === undefined) {
    const known = listNearest(
      options.client ?? '',
      config.clients.map(({ id }) => id),
    );
    throw new CommandError(
      2,
      known === ''
        ? `${options.config} has no clients: leave --client out for a request of the client anonymous`
        : `Name a client of the configuration with --client: ${known}`,
    );
  }
  const headers = options.header.flatMap(fieldOf);
  const { host } = options;
  const explanation = explain(config, { client, method, target, host, headers, now: Date.now() });
  const rows = explanation.allowed ? grantRows(explanation) : refusalRows(explanation);
  const lines = alignColumns(rows.filter(([, value]) => value !== ''));
  const text =
    options.json === true ? printable(JSON.stringify(explanation)) : lines.map(printable).join('\n');
  await print(io, `${text}\n`);
  return explanation.allowed ? 0 : 1;
}

/** Returns name and value of a header line. */
function fieldOf(line: string): [string, string] {
  const colon = line.indexOf(':');
  const [name, value] = [line.slice(0, colon), line.slice(colon + 1).trim()];
  if (isToken(name) && isFieldValue(value)) return [name, value];
  throw new CommandError(2, `${line} is not a header line, such as "Content-Type: text/csv"`);
}

type Row = readonly [name: string, value: string];

function grantRows(granted: GrantedView): Row[] {
  const { client, identifiedBy, deployment, rule, operation, site, credential, credentialBy } = granted;
  const { ends, endedRules, sends, siteAdded, drops, parameters, limits, wouldRefuse } = granted;
  const until = wouldRefuse === undefined ? '' : `, until ${wouldRefuse.until}`;
  return [
    ['allowed', `by ${rule}${ends === '' ? '' : `, which ends ${ends}`}${until}`],
    ...(wouldRefuse === undefined ? [] : observedRows(wouldRefuse)),
    ...endedRules.map((text): Row => ['not by', text]),
    ['client', client],
    ...identifiedBy.map((text): Row => ['known by', text]),
    ['deployment', deployment],
    ['operation', operation || 'none that is listed'],
    ['site', `${site}${siteAdded ? ' (added)' : ''}`],
    ['credential', `${credential}, named by ${credentialBy}`],
    ['sends', sends],
    ['drops', drops.join(', ')],
    ...limits.map((text): Row => ['limit', text]),
    ...Object.entries(parameters).map(([name, value]): Row => [name, `= ${JSON.stringify(value)}`]),
  ];
}

function observedRows({ status, code, detail, rule }: ObservedRefusalView): Row[] {
  return [
    ['then', `refused: ${status} ${code}`],
    ['because', detail],
    ['decided by', rule],
  ];
}

function refusalRows(refused: RefusedView): Row[] {
  const { client, identifiedBy, deployment, rule, endedRules, status, code, detail } = refused;
  return [
    ['refused', `${status} ${code}`],
    ['because', detail],
    ['decided by', rule],
    ...endedRules.map((text): Row => ['not by', text]),
    ['client', client],
    ...identifiedBy.map((text): Row => ['known by', text]),
    ['deployment', deployment],
  ];
}
