import { hash, randomBytes } from 'node:crypto';
import { type Command, InvalidArgumentError } from 'commander';
import { stringify } from 'yaml';
import { IDENTIFIED_BY_NOTHING, identifiedBy } from '../app/identified-by.ts';
import { Network } from '../base/network.ts';
import { endText, formatInstant } from '../base/units.ts';
import { type ApiKey as ApiKeyRule, keyName } from '../config/api-keys.ts';
import { isClientId } from '../config/clients.ts';
import { ConfigError, type LocatedIssue } from '../config/issues.ts';
import { type LocatedConfig, loadConfig, loadLocated } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { ANONYMOUS, ANY_DEPLOYMENT, isObserved, type Names, type Rule } from '../policy/client.ts';
import { CommandError, type Io, print, type Run } from './io.ts';
import { alignColumns } from './table.ts';

/** `client add|rotate|list`: creates API keys for clients of the gateway, and lists the clients. */
export function registerClient(program: Command, run: Run): void {
  const client = program.command('client').description('work on the clients of the gateway');
  client
    .command('add')
    .description('create an API key; print it once, with the configuration lines for its client')
    .argument('<name>', 'the id of the client in configuration, metrics and logs', clientId)
    .option('--address <network>', 'a network from which the client calls; can be repeated', addNetwork, [])
    .option('--json', 'print JSON')
    .action(run(addClient));
  client
    .command('rotate')
    .description('create another API key for a client; print it once, and where its hash goes')
    .argument('<name>', 'the id of the client in the configuration')
    .requiredOption('--config <file>', 'the configuration (YAML), which is not changed')
    .option('--json', 'print JSON')
    .action(run(rotateClient));
  client
    .command('list')
    .description('list the clients: how each is identified, and what it may do')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option('--json', 'print JSON')
    .action(run(listClients));
}

async function addClient(
  io: Io,
  id: string,
  { address, json = false }: { address: string[]; json?: boolean },
): Promise<void> {
  const key = createApiKey();
  const entry = clientEntry(id, address, key);
  const text = json ? JSON.stringify({ apiKey: key.apiKey, client: entry }) : addedText(key, entry);
  await print(io, `${text}\n`);
}

/** The entry under `clients`. */
interface ClientEntry {
  readonly id: string;
  readonly identify: { readonly addresses?: readonly string[]; readonly apiKeySha256: string };
}

function clientEntry(id: string, addresses: readonly string[], { apiKeySha256 }: ApiKey): ClientEntry {
  return { id, identify: { ...(addresses.length > 0 && { addresses }), apiKeySha256 } };
}

function addedText(key: ApiKey, entry: ClientEntry): string {
  return [
    ...shownOnce(`The API key of ${entry.id}`, key),
    `The client sends it as X-Api-Key, or as the password of Basic with the user name ${entry.id}.`,
    'Add this to the configuration, with rules under allow:',
    '',
    `${stringify({ clients: [entry] })}    allow: [] # such as [{ deployment: NAME, sites: [NAME], methods: [GET] }]`,
  ].join('\n');
}

function clientId(written: string): string {
  if (isClientId(written)) return written;
  throw new InvalidArgumentError(
    'Write letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first; "anonymous" is taken.',
  );
}

function addNetwork(written: string, before: string[]): string[] {
  try {
    return [...before, Network.parse(written).toString()];
  } catch (error) {
    if (error instanceof RangeError) throw new InvalidArgumentError(`It ${error.message}.`);
    throw error;
  }
}

interface RotateOptions {
  readonly config: string;
  readonly json?: boolean;
}

/** `client rotate NAME`: creates a key beside those that a client has, and prints where its hash goes. */
async function rotateClient(
  io: Io,
  id: string,
  { config: file, json = false }: RotateOptions,
): Promise<void> {
  const { place, hashes } = keysOf(await loadLocated(file), id, file);
  const key = createApiKey();
  const text = json
    ? JSON.stringify({
        apiKey: key.apiKey,
        path: place.path,
        file: place.file,
        line: place.line,
        apiKeySha256: [key.apiKeySha256, ...hashes],
      })
    : instructions(id, key, hashes, place);
  await print(io, `${text}\n`);
}

interface ClientKeys {
  readonly place: LocatedIssue;
  readonly hashes: readonly string[];
}

function keysOf({ config, locate }: LocatedConfig, id: string, file: string): ClientKeys {
  const index = config.clients.findIndex((client) => client.id === id);
  if (index === -1) {
    const known = config.clients.map((client) => client.id).join(', ') || 'no clients';
    throw new CommandError(
      2,
      `${file} has no client ${id}, but ${known}: name one of these, or run client add ${id}`,
    );
  }
  const path = ['clients', index, 'identify', 'apiKeySha256'];
  const hashes = config.clients[index]?.identify.apiKeySha256;
  if (hashes === undefined) {
    const message = `is missing: ${id} has no API key to rotate; client add ${id} creates one`;
    throw new ConfigError([locate({ path, key: path, message })]);
  }
  return { place: locate({ path, key: path, message: '' }), hashes };
}

function instructions(
  id: string,
  key: ApiKey,
  hashes: readonly string[],
  { file, line, path }: LocatedIssue,
): string {
  const [old, use] = hashes.length === 1 ? ['the old key', 'both'] : [`the ${hashes.length} old keys`, 'all'];
  return [
    ...shownOnce(`The new API key of ${id}`, key),
    `1. In ${file}, line ${line}, put its hash beside that of ${old}, then reload, so that ${use} work (${path}):`,
    '',
    `    apiKeySha256: [${[key.apiKeySha256, ...hashes].join(', ')}]`,
    '',
    `2. Give the key to ${id}, which sends it in place of ${old}.`,
    '3. When it does, keep the new hash alone, and reload:',
    '',
    `    apiKeySha256: ${key.apiKeySha256}`,
  ].join('\n');
}

type Client = Config['clients'][number];

/** `client list`: who is configured, how clients are identified, and what they may do. */
async function listClients(
  io: Io,
  { config: file, json = false }: { config: string; json?: boolean },
): Promise<void> {
  const { clients, anonymous } = await loadConfig(file);
  const text = json
    ? JSON.stringify({ clients: clients.map(plain), anonymous }, withoutSets, 2)
    : table(clients, anonymous).join('\n');
  await print(io, `${text}\n`);
}

function plain({ id, identify, allow, limits, mode }: Client): object {
  const addresses = identify.addresses?.map(String);
  const apiKeys = identify.apiKeys?.map((key) =>
    key.expires === undefined ? key : { ...key, expires: formatInstant(key.expires) },
  );
  return {
    id,
    identify: { ...identify, ...(addresses && { addresses }), ...(apiKeys && { apiKeys }) },
    allow: allow.map((rule) =>
      rule.ends === undefined ? rule : { ...rule, ends: formatInstant(rule.ends) },
    ),
    limits,
    ...(mode && { mode: { ...mode, until: formatInstant(mode.until) } }),
  };
}

function withoutSets(_key: string, value: unknown): unknown {
  return value instanceof Set ? [...value] : value;
}

function table(clients: readonly Client[], anonymous: boolean): string[] {
  const now = Date.now();
  const rows = clients.map((client) => [
    client.id,
    identifiedBy(client.identify, (keys) => keysText(keys, now)).join('\n'),
    [...modeText(client, now), ...rulesText(client, now)].join('\n'),
  ]);
  if (anonymous)
    rows.push([
      ANONYMOUS.id,
      IDENTIFIED_BY_NOTHING,
      ANONYMOUS.allow.map((rule) => ruleText(rule, now)).join('\n'),
    ]);
  return alignColumns([['CLIENT', 'IDENTIFIED BY', 'ALLOWED'], ...rows]);
}

function modeText(client: Client, now: number): string[] {
  if (client.mode === undefined || !isObserved(client, now)) return [];
  return [`everything until ${formatInstant(client.mode.until)}, observing these rules:`];
}

function rulesText({ allow }: Client, now: number): string[] {
  return allow.length === 0 ? ['nothing: no rule under allow'] : allow.map((rule) => ruleText(rule, now));
}

function keysText(keys: readonly ApiKeyRule[], now: number): string {
  const texts = keys.map((key) => {
    const name = key.note ?? `${keyName(key)}…`;
    return key.expires === undefined ? name : `${name} (${endText(key.expires, now)})`;
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

/** Bytes of randomness in a key, which cannot be guessed. */
const KEY_BYTES = 20;
/** Identifies the key for people and secret scanners. */
const PREFIX = 'dgk_';

/** An API key of a client, and its hash for the configuration. */
interface ApiKey {
  readonly apiKey: string;
  readonly apiKeySha256: string;
}

/** Creates an API key. It is stored nowhere. */
function createApiKey(): ApiKey {
  const apiKey = `${PREFIX}${randomBytes(KEY_BYTES).toString('hex')}`;
  return { apiKey, apiKeySha256: hash('sha256', apiKey) };
}

/** Returns the lines that show a key, which nobody can show again. */
function shownOnce(title: string, { apiKey }: ApiKey): string[] {
  return [`${title}. It is shown once and stored nowhere:`, '', `    ${apiKey}`, ''];
}
