import type { Command } from 'commander';
import { type Judgement, UNKNOWN } from '../app/replay.ts';
import type { FoundRequest } from '../audit/reader/query.ts';
import { printable } from '../base/printable.ts';
import { count } from '../base/units.ts';
import { loadConfig } from '../config/load.ts';
import { type ExitStatus, type Io, note, print, type Run } from './io.ts';
import {
  addLogOptions,
  type LogArguments,
  openRecorded,
  recordedRequest,
  replayOf,
  requestsIn,
  wasServed,
} from './policy-log.ts';
import { tableText } from './table.ts';

interface ReplayArguments extends LogArguments {
  readonly json?: boolean;
}

/** Groups that are listed; requests of further ones are counted together. */
const MAX_GROUPS = 10_000;

/** Requests that are judged in the same way. */
interface Group {
  readonly verdict: Judgement['verdict'];
  /** True if the upstream was asked then. */
  readonly served: boolean;
  readonly client: string;
  readonly deployment: string;
  readonly operation: string;
  /** Code of the error, or name of the reason why it cannot be known; empty: the request is allowed. */
  readonly code: string;
  requests: number;
  /** One of them, the first in the log. */
  readonly example: { readonly requestId: string; readonly time: string };
}

/** Registers `policy replay`: exit status 1 if something that was served would be refused. */
export function registerReplay(policy: Command, run: Run): void {
  const command = policy
    .command('replay')
    .description('judge the recorded requests by a configuration, and print what it would refuse')
    .requiredOption('--config <file>', 'the configuration that judges (YAML)');
  addLogOptions(command).option('--json', 'print JSON').action(run(runReplay));
}

async function runReplay(io: Io, options: ReplayArguments): Promise<ExitStatus> {
  const config = await loadConfig(options.config);
  const replay = await replayOf(config, options);
  using log = await openRecorded(io, options);
  const groups = new Map<string, Group>();
  let [unidentified, others] = [0, 0];
  let isRefused = false;
  for await (const found of requestsIn(log)) {
    if (!isJudged(found)) {
      unidentified += 1;
      continue;
    }
    const group = groupOf(found, replay.judge(recordedRequest(found)));
    isRefused ||= group.served && group.verdict === 'refused';
    const key = JSON.stringify({ ...group, example: undefined });
    const known = groups.get(key);
    if (known !== undefined) known.requests += 1;
    else if (groups.size < MAX_GROUPS) groups.set(key, { ...group, requests: 1 });
    else others += 1;
  }
  const sorted = [...groups.values()].sort(byWeight);
  const json = `${printable(JSON.stringify({ groups: sorted, unidentified }))}\n`;
  await print(io, options.json === true ? json : table(sorted));
  const isEmpty = sorted.length + unidentified === 0;
  const notes = isEmpty ? [await log.nothing('no request')] : notesOf(sorted, unidentified, others);
  for (const line of notes) note(io, line);
  return isRefused ? 1 : log.reading.status;
}

/** False if no rule decided: no client was identified, the identity had ended, or the target could not be read. */
function isJudged({ access: { client, code, path } }: FoundRequest): boolean {
  return client !== '' && code !== 'client-key-expired' && path !== '';
}

function groupOf(found: FoundRequest, judgement: Judgement): Group {
  const { client, operation, requestId, time } = found.access;
  const { verdict, deployment } = judgement;
  return {
    verdict,
    served: wasServed(found),
    client,
    deployment,
    operation: verdict === 'allowed' ? judgement.grant.operation : operation,
    code: verdict === 'refused' ? judgement.code : verdict === 'unknown' ? judgement.reason : '',
    requests: 0,
    example: { requestId, time },
  };
}

const ORDER: readonly string[] = [
  'refused true',
  'unknown true',
  'allowed true',
  'unknown false',
  'allowed false',
];

/** Groups that were served and would be refused come first; within that, the most requests first. */
function byWeight(a: Group, b: Group): number {
  const rank = ({ verdict, served }: Group): number => {
    const place = ORDER.indexOf(`${verdict} ${served}`);
    return place === -1 ? ORDER.length : place;
  };
  return rank(a) - rank(b) || b.requests - a.requests;
}

function table(groups: readonly Group[]): string {
  const rows = groups.map(({ verdict, served, client, deployment, operation, code, requests, example }) => [
    verdict,
    served ? 'served' : 'refused',
    ...[client, deployment, operation, code, String(requests), example.time, example.requestId].map(
      (text) => printable(text) || '-',
    ),
  ]);
  const header = [
    'VERDICT',
    'WAS',
    'CLIENT',
    'DEPLOYMENT',
    'OPERATION',
    'CODE',
    'REQUESTS',
    'EXAMPLE',
    'REQUEST-ID',
  ];
  return tableText([header, ...rows]);
}

function notesOf(groups: readonly Group[], unidentified: number, others: number): string[] {
  const total = (verdict: Group['verdict'], served: boolean): number =>
    groups
      .filter((group) => group.verdict === verdict && group.served === served)
      .reduce((sum, { requests }) => sum + requests, 0);
  const reasons = new Set(groups.filter(({ verdict }) => verdict === 'unknown').map(({ code }) => code));
  return [
    `of what was served, ${count(total('refused', true), 'request')} would be refused, ${total('allowed', true)} allowed, and of ${total('unknown', true)} it cannot be known`,
    ...Object.entries(UNKNOWN)
      .filter(([reason]) => reasons.has(reason))
      .map(([reason, text]) => `${reason}: ${text}`),
    ...(unidentified > 0
      ? [`${count(unidentified, 'request')} had no client, an expired key, or no path, and were not judged`]
      : []),
    ...(others > 0 ? [`${count(others, 'request')} of further groups are not listed`] : []),
  ];
}
