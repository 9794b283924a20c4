import type { Command } from 'commander';
import { IDENTIFIED_BY_NOTHING, identifiedBy } from '../app/explanation.ts';
import { findLastSeen, type LastSeen } from '../audit/reader/last-seen.ts';
import { fileMessageOf } from '../base/error-code.ts';
import { reportDefect } from '../base/expected-errors.ts';
import { printableLines } from '../base/printable.ts';
import { endText, formatInstant, parseDuration, span } from '../base/units.ts';
import { type ApiKey, apiKeysOf, keyName } from '../config/api-keys.ts';
import { loadConfig } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { CLIENT_LAST_SEEN } from '../metrics/metrics.ts';
import { ANONYMOUS, ANY_DEPLOYMENT, isObserved, type Names, type Rule } from '../policy/rules.ts';
import { argument, openLog } from './audit-log.ts';
import { type Io, note, print, type Run } from './io.ts';
import { alignColumns } from './table.ts';

/** Registers `client list`. */
export function registerClientList(client: Command, run: Run): void {
  client
    .command('list')
    .description('list the clients: how each is identified, when it was last seen, and what it may do')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option(
      '--seen <period>',
      'how far back the audit log is read for when clients were last seen, such as 90d; left out, it is 30d',
      argument(parseDuration),
    )
    .option('--json', 'print JSON')
    .action(run(listClients));
}

type Client = Config['clients'][number];

const DAY_MS = 86_400_000;

interface ListOptions {
  readonly config: string;
  /** Milliseconds. */
  readonly seen?: number;
  readonly json?: boolean;
}

async function listClients(
  io: Io,
  { config: file, seen: period = 30 * DAY_MS, json = false }: ListOptions,
): Promise<void> {
  const config = await loadConfig(file);
  const { clients, anonymous } = config;
  const seen = await seenIn(io, config, { file, period });
  const text = json
    ? printableLines(
        JSON.stringify({ clients: clients.map((each) => plain(each, seen)), anonymous }, withoutSets, 2),
      )
    : table(clients, anonymous, seen).join('\n');
  await print(io, `${text}\n`);
}

/** When clients were last seen. */
interface SeenClients {
  /** Undefined: the log could not be read. */
  readonly clients: ReadonlyMap<string, LastSeen> | undefined;
  /** The texts for a client and for a key that were not found. */
  readonly absent: { readonly client: string; readonly key: string };
}

/** Reads the audit log; undefined: none is configured. A list without these times is better than none. */
async function seenIn(
  io: Io,
  { audit, clients, anonymous }: Config,
  { file, period }: { readonly file: string; readonly period: number },
): Promise<SeenClients | undefined> {
  if (audit === undefined) {
    note(
      io,
      `no audit log is configured: see the metric ${CLIENT_LAST_SEEN} or the console for who was seen`,
    );
    return undefined;
  }
  try {
    using log = await openLog(io, { config: file, key: [], asRecorded: true });
    const found = await findLastSeen({
      ...log.options,
      clients: new Map<string, readonly string[]>([
        ...clients.map(({ id, identify }) => [id, Array.from(apiKeysOf(identify), keyName)] as const),
        ...(anonymous ? [[ANONYMOUS.id, []] as const] : []),
      ]),
      since: new Date(Math.max(0, Date.now() - period)).toISOString(),
    });
    const isWhole = found.isWholeLog && log.reading.status === 0;
    return { clients: found.clients, absent: isWhole ? NEVER : absentSince(period) };
  } catch (error) {
    reportDefect(error);
    note(
      io,
      `when clients were last seen is unknown, since the audit log cannot be read: ${fileMessageOf(error)}`,
    );
    return { clients: undefined, absent: { client: 'unknown', key: '' } };
  }
}

const NEVER: SeenClients['absent'] = { client: 'never', key: 'never seen' };

function absentSince(period: number): SeenClients['absent'] {
  const days = period / DAY_MS;
  const text = Number.isInteger(days) && days !== 1 ? `${days} days` : span(period / 1000);
  return { client: `not in ${text}`, key: `not seen in ${text}` };
}

/** A time of a record to the minute. */
function minuteText(time: string): string {
  return `${time.slice(0, '2026-01-01T00:00'.length)}Z`;
}

function plain({ id, identify, allow, limits, mode }: Client, seen: SeenClients | undefined): object {
  const addresses = identify.addresses?.map(String);
  const apiKeys = identify.apiKeys?.map(writtenKey);
  return {
    id,
    identify: { ...identify, ...(addresses && { addresses }), ...(apiKeys && { apiKeys }) },
    allow: allow.map((rule) =>
      rule.ends === undefined ? rule : { ...rule, ends: formatInstant(rule.ends) },
    ),
    limits,
    ...plainSeen(seen?.clients?.get(id)),
    ...(mode && { mode: { ...mode, until: formatInstant(mode.until) } }),
  };
}

/** Absent if it is unknown. */
function plainSeen(seen: LastSeen | undefined): object {
  if (seen === undefined) return {};
  const keys = Array.from(seen.keys, ([name, time]) => ({ name, lastSeen: time ?? null }));
  return { lastSeen: seen.time ?? null, ...(keys.length > 0 && { keys }) };
}

function withoutSets(_key: string, value: unknown): unknown {
  return value instanceof Set ? [...value] : value;
}

function table(clients: readonly Client[], anonymous: boolean, seen: SeenClients | undefined): string[] {
  const now = Date.now();
  const rulesOf = ({ allow }: { readonly allow: readonly Rule[] }): string[] =>
    allow.length === 0 ? ['nothing: no rule under allow'] : allow.map((rule) => ruleText(rule, now));
  const rows = clients.map((client) => [
    client.id,
    identifiedBy(client.identify, (keys) => keysText(keys, now, seen && keySeenIn(client.id, seen))).join(
      '\n',
    ),
    ...seenCell(client.id, seen),
    [...modeText(client, now), ...rulesOf(client)].join('\n'),
  ]);
  if (anonymous)
    rows.push([
      ANONYMOUS.id,
      IDENTIFIED_BY_NOTHING,
      ...seenCell(ANONYMOUS.id, seen),
      rulesOf(ANONYMOUS).join('\n'),
    ]);
  const header = ['CLIENT', 'IDENTIFIED BY', ...(seen === undefined ? [] : ['LAST SEEN']), 'ALLOWED'];
  return alignColumns([header, ...rows]);
}

function seenCell(id: string, seen: SeenClients | undefined): string[] {
  if (seen === undefined) return [];
  const time = seen.clients?.get(id)?.time;
  return [time === undefined ? seen.absent.client : minuteText(time)];
}

function modeText(client: Client, now: number): string[] {
  if (client.mode === undefined || !isObserved(client, now)) return [];
  return [`everything until ${formatInstant(client.mode.until)}, observing these rules:`];
}

/** Returns a function that says when a key was last seen; empty: it is unknown. */
function keySeenIn(id: string, { clients, absent }: SeenClients): (key: string) => string {
  const times = clients?.get(id)?.keys;
  return (key) => {
    const time = times?.get(key);
    return time === undefined ? absent.key : `seen ${minuteText(time)}`;
  };
}

function keysText(
  keys: readonly ApiKey[],
  now: number,
  seenText: ((key: string) => string) | undefined,
): string {
  const texts = keys.map((key) => {
    const name = key.note ?? `${keyName(key)}…`;
    const end = key.expires === undefined ? '' : endText(key.expires, now);
    const facts = [end, seenText?.(keyName(key)) ?? ''].filter((fact) => fact !== '');
    return facts.length === 0 ? name : `${name} (${facts.join(', ')})`;
  });
  return `API key ${texts.join(', ')}`;
}

function ruleText(rule: Rule, now: number): string {
  const { deployment, sites, operations, methods, parameters, credential, ends } = rule;
  const limits = [
    namesText('sites', sites),
    namesText('operations', operations),
    namesText('methods', methods),
    ...parameters.map(({ name }) => `limits of ${name}`),
    credential === undefined ? undefined : `credential ${credential}`,
    ends === undefined ? undefined : endText(ends, now),
  ].filter((part) => part !== undefined);
  const name = deployment === ANY_DEPLOYMENT ? 'every deployment' : deployment;
  return limits.length === 0 ? name : `${name}: ${limits.join('; ')}`;
}

function namesText(what: string, names: Names): string | undefined {
  return names === '*' ? undefined : `${what} ${[...names].join(', ')}`;
}

/** The hash of a key with its end and note, as the configuration has it. */
export function writtenKey({ sha256, expires, note }: ApiKey): object {
  return {
    sha256,
    ...(expires !== undefined && { expires: formatInstant(expires) }),
    ...(note !== undefined && { note }),
  };
}
