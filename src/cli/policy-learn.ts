import type { Command } from 'commander';
import { type LearnedRule, Learner, type Unservable } from '../app/learn.ts';
import { type Judgement, UNKNOWN } from '../app/replay.ts';
import type { FoundRequest } from '../audit/reader/query.ts';
import { printable } from '../base/printable.ts';
import { count, formatInstant } from '../base/units.ts';
import { loadConfig } from '../config/load.ts';
import type { ParameterLimit } from '../policy/rules.ts';
import { CommandError, type ExitStatus, type Io, note, print, type Run } from './io.ts';
import {
  addLogOptions,
  type LogArguments,
  openRecorded,
  recordedRequest,
  replayOf,
  requestsIn,
  wasServed,
} from './policy-log.ts';

interface LearnArguments extends LogArguments {
  readonly client: string;
}

/** Registers `policy learn`: exit status 1 if no rules can serve all that was served. */
export function registerLearn(policy: Command, run: Run): void {
  const command = policy
    .command('learn')
    .description('print the tightest rules that would have served everything that a client was served')
    .requiredOption('--config <file>', 'the configuration that the rules are for (YAML)')
    .requiredOption('--client <id>', 'the client');
  addLogOptions(command).action(run(runLearn));
}

async function runLearn(io: Io, options: LearnArguments): Promise<ExitStatus> {
  const config = await loadConfig(options.config);
  const { client: id } = options;
  const replay = await replayOf(config, options);
  const learner = new Learner(config, replay, id);
  using log = await openRecorded(io, options);
  let served = 0;
  for await (const found of requestsIn(log, id)) {
    if (!wasServed(found)) continue;
    learner.add(recordedRequest(found));
    served += 1;
  }
  if (served === 0) {
    throw new CommandError(1, await log.nothing(`no request of ${printable(id)} that was served`));
  }
  const rules = learner.rules();
  // Rules together can refuse what each allows: one that leaves its site out, if several sites were used so.
  const client = { id, allow: rules };
  const verdicts = { refused: 0, unknown: 0, allowed: 0 };
  const changes = new Map<string, number>();
  using again = await openRecorded(io, options);
  for await (const found of requestsIn(again, id)) {
    if (!wasServed(found)) continue;
    const judgement = replay.judgeFor(client, recordedRequest(found));
    verdicts[judgement.verdict] += 1;
    const change = credentialChange(found, judgement);
    if (change !== undefined) changes.set(change, (changes.get(change) ?? 0) + 1);
  }
  await print(io, rulesText(id, rules, served));
  for (const line of notesOf(learner.unservable, verdicts, changes)) note(io, line);
  return verdicts.refused > 0 ? 1 : log.reading.status;
}

function notesOf(
  unservable: readonly Unservable[],
  { refused, unknown }: { readonly refused: number; readonly unknown: number },
  changes: ReadonlyMap<string, number>,
): string[] {
  return [
    ...unservable.map(({ deployment, code, requests }) => {
      const reason = Object.entries(UNKNOWN).find(([name]) => name === code)?.[1] ?? code;
      return `no rule serves ${count(requests, 'request')} to ${printable(deployment) || 'no deployment'}: ${reason}`;
    }),
    ...(refused > 0 ? [`these rules would refuse ${count(refused, 'request')}: see policy replay`] : []),
    ...(unknown > 0 ? [`of ${count(unknown, 'request')} it cannot be known: see policy replay`] : []),
    ...[...changes].map(([change, requests]) => `${count(requests, 'request')} would get ${change}`),
  ];
}

/** Says which credential a request would get that it did not have; undefined: the same one. */
function credentialChange({ access }: FoundRequest, judgement: Judgement): string | undefined {
  const before = access.credential?.name;
  const now = judgement.verdict === 'allowed' ? judgement.grant.credential : before;
  if (before === undefined || now === before) return undefined;
  return `the credential ${printable(now ?? '')}, and had ${printable(before)}`;
}

/** The rules as YAML, with what each has served as comments. */
export function rulesText(id: string, rules: readonly LearnedRule[], served: number): string {
  const head = `# ${count(served, 'request')} of ${id}`;
  if (rules.length === 0) return `${head}\nallow: []\n`;
  return `${[head, 'allow:', ...rules.flatMap(ruleLines)].map(printable).join('\n')}\n`;
}

function ruleLines(rule: LearnedRule): string[] {
  const { deployment, sites, operations, methods, parameters, credential, ends, requests } = rule;
  const named = (key: string, names: LearnedRule['sites'], counts: ReadonlyMap<string, number>): string[] =>
    names === '*' ? [] : [`    ${key}: [${[...names].map(scalar).join(', ')}]${countsText(counts)}`];
  return [
    `  - deployment: ${scalar(deployment)} # ${count(requests, 'request')}`,
    ...named('sites', sites, rule.ofSites),
    ...named('operations', operations, rule.ofOperations),
    ...named('methods', methods, rule.ofMethods),
    ...(parameters.length === 0 ? [] : [`    parameters: { ${parameters.map(limitText).join(', ')} }`]),
    ...(credential === undefined ? [] : [`    credential: ${scalar(credential)}`]),
    ...(ends === undefined ? [] : [`    ends: ${formatInstant(ends)}`]),
  ];
}

function limitText({ name, max, values }: ParameterLimit): string {
  const parts = [
    ...(max === undefined ? [] : [`max: ${max}`]),
    ...(values === undefined
      ? []
      : [`values: [${[...values].map((value) => JSON.stringify(value)).join(', ')}]`]),
  ];
  return `${scalar(name)}: { ${parts.join(', ')} }`;
}

function countsText(counts: ReadonlyMap<string, number>): string {
  if (counts.size < 2) return '';
  return ` # ${[...counts].map(([name, requests]) => `${printable(name)} ${requests}`).join(', ')}`;
}

/** Words that YAML reads as something else than text. */
const RESERVED = /^(?:y|n|yes|no|on|off|true|false|null)$/i;

function scalar(name: string): string {
  return /^[a-z][\w.-]*$/i.test(name) && !RESERVED.test(name) ? name : JSON.stringify(name);
}
