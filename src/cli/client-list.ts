import { IDENTIFIED_BY_NOTHING, identifiedBy } from '../app/identified-by.ts';
import { loadConfig } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { ANONYMOUS, ANY_DEPLOYMENT, type Names, type Rule } from '../policy/client.ts';
import { type Io, print } from './io.ts';
import { alignColumns } from './table.ts';

type Client = Config['clients'][number];

/** Hex digits of a hash that tell keys apart. */
const SHOWN_DIGITS = 8;

/** `client list`: who is configured, how clients are identified, and what they may do. */
export async function listClients(
  io: Io,
  { config: file, json = false }: { config: string; json?: boolean },
): Promise<void> {
  const { clients, anonymous } = await loadConfig(file);
  const text = json
    ? JSON.stringify({ clients: clients.map(plain), anonymous }, withoutSets, 2)
    : table(clients, anonymous).join('\n');
  await print(io, `${text}\n`);
}

function plain({ id, identify, allow, limits }: Client): object {
  const addresses = identify.addresses?.map(String);
  return { id, identify: { ...identify, ...(addresses && { addresses }) }, allow, limits };
}

function withoutSets(_key: string, value: unknown): unknown {
  return value instanceof Set ? [...value] : value;
}

function table(clients: readonly Client[], anonymous: boolean): string[] {
  const rows = clients.map(({ id, identify, allow }) => [
    id,
    identifiedBy(identify, keyText).join('\n'),
    allow.length === 0 ? 'nothing: no rule under allow' : allow.map(ruleText).join('\n'),
  ]);
  if (anonymous) rows.push([ANONYMOUS.id, IDENTIFIED_BY_NOTHING, ANONYMOUS.allow.map(ruleText).join('\n')]);
  return alignColumns([['CLIENT', 'IDENTIFIED BY', 'ALLOWED'], ...rows]);
}

function keyText(hashes: readonly string[]): string {
  return `API key ${hashes.map((hex) => `${hex.slice(0, SHOWN_DIGITS)}…`).join(', ')}`;
}

function ruleText({ deployment, sites, operations, methods, parameters }: Rule): string {
  const limits = [
    namesText('sites', sites),
    namesText('operations', operations),
    namesText('methods', methods),
    ...parameters.map(({ name }) => `limits of ${name}`),
  ].filter((part) => part !== undefined);
  const name = deployment === ANY_DEPLOYMENT ? 'every deployment' : deployment;
  return limits.length === 0 ? name : `${name}: ${limits.join('; ')}`;
}

function namesText(what: string, names: Names): string | undefined {
  return names === '*' ? undefined : `${what} ${[...names].join(', ')}`;
}
