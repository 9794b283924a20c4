import { hash, randomBytes } from 'node:crypto';
import { type Command, InvalidArgumentError } from 'commander';
import { stringify } from 'yaml';
import { Network } from '../base/network.ts';
import { parseInstant } from '../base/units.ts';
import { type ApiKey, apiKeysOf, KEY_PREFIX } from '../config/api-keys.ts';
import { isClientId } from '../config/clients.ts';
import { listNearest } from '../config/cross-check.ts';
import { ConfigError, formatPath, type LocatedIssue } from '../config/issues.ts';
import { type LocatedConfig, loadLocated } from '../config/load.ts';
import { NAME_FORM } from '../config/value-schemas.ts';
import { registerClientList, writtenKey } from './client-list.ts';
import { CommandError, type Io, print, type Run } from './io.ts';

/** `client add|rotate|list`: creates API keys for clients of the gateway, and lists the clients. */
export function registerClient(program: Command, run: Run): void {
  const client = program.command('client').description('work on the clients of the gateway');
  client
    .command('add')
    .description('create an API key; print it once, with the configuration lines for its client')
    .argument('<name>', 'the id of the client in configuration, metrics and logs', clientId)
    .option(
      '--address <network>',
      'a network from which the client calls, which then needs no API key; can be repeated',
      addNetwork,
      [],
    )
    .option('--key', 'create an API key beside --address, so that both must hold')
    .option('--expires <date>', EXPIRES, instantAhead)
    .option('--json', 'print JSON')
    .action(run(addClient));
  client
    .command('rotate')
    .description('create another API key for a client; print it once, and where its hash goes')
    .argument('<name>', 'the id of the client in the configuration')
    .requiredOption('--config <file>', 'the configuration (YAML), which is not changed')
    .option('--expires <date>', EXPIRES, instantAhead)
    .option('--json', 'print JSON')
    .action(run(rotateClient));
  registerClientList(client, run);
}

const EXPIRES = 'when the key ends: a date, from whose beginning in UTC it is refused, or a time of RFC 3339';

interface AddOptions {
  readonly address: readonly string[];
  readonly key?: boolean;
  readonly expires?: number;
  readonly json?: boolean;
}

async function addClient(
  io: Io,
  id: string,
  { address, key: withKey = false, expires, json = false }: AddOptions,
): Promise<void> {
  const needsKey = withKey || expires !== undefined || address.length === 0;
  const key = needsKey ? createApiKey(expires) : undefined;
  const identify = { ...(address.length > 0 && { addresses: address }), ...(key && keyLines([key])) };
  const entry = { id, identify };
  const text = json
    ? JSON.stringify({ ...(key && { apiKey: key.apiKey }), client: entry })
    : addedText(key, entry);
  await print(io, `${text}\n`);
}

function addedText(key: NewKey | undefined, entry: { readonly id: string }): string {
  const { id } = entry;
  const about =
    key === undefined
      ? [`Requests from there are of ${id}, without an API key; --key makes one that must be sent, too.`]
      : [
          ...shownOnce(`The API key of ${id}`, key),
          `The client sends it as X-Api-Key, or as the password of Basic with the user name ${id}.`,
        ];
  return [
    ...about,
    'Add this to the configuration, with rules under allow:',
    '',
    `${stringify({ clients: [entry] })}    allow: [] # such as [{ deployment: NAME, sites: [NAME], methods: [GET] }]`,
  ].join('\n');
}

/** The keys of a client as the configuration has them: in the short form if none has an end or a note. */
interface KeyLines {
  readonly apiKeySha256?: string | readonly string[];
  readonly apiKeys?: readonly object[];
}

function keyLines(keys: readonly ApiKey[]): KeyLines {
  if (keys.some(({ expires, note }) => expires !== undefined || note !== undefined)) {
    return { apiKeys: keys.map(writtenKey) };
  }
  const hashes = keys.map(({ sha256 }) => sha256);
  return { apiKeySha256: hashes.length === 1 ? (hashes[0] ?? '') : hashes };
}

function clientId(written: string): string {
  if (isClientId(written)) return written;
  throw new InvalidArgumentError(`Write ${NAME_FORM}; "anonymous" is taken.`);
}

function addNetwork(written: string, before: string[]): string[] {
  return [...before, inform(() => Network.parse(written).toString())];
}

function instantAhead(written: string): number {
  const at = inform(() => parseInstant(written));
  if (at > Date.now()) return at;
  throw new InvalidArgumentError('It is over: name a time to come.');
}

/** Turns the issue of an argument into a message of wrong usage. */
function inform<T>(parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    if (error instanceof RangeError) throw new InvalidArgumentError(`It ${error.message}.`);
    throw error;
  }
}

interface RotateOptions {
  readonly config: string;
  readonly expires?: number;
  readonly json?: boolean;
}

/** `client rotate NAME`: creates a key beside those that a client has, and prints where its hash goes. */
async function rotateClient(
  io: Io,
  id: string,
  { config: file, expires, json = false }: RotateOptions,
): Promise<void> {
  const found = keysOf(await loadLocated(file), id, file);
  const { place, keys } = found;
  const key = createApiKey(expires);
  const { path, line } = place;
  const text = json
    ? JSON.stringify({ apiKey: key.apiKey, path, file: place.file, line, ...listed([key, ...keys]) })
    : instructions(id, key, found);
  await print(io, `${text}\n`);
}

/** The same form for any number of keys, for programs. */
function listed(keys: readonly ApiKey[]): KeyLines {
  const { apiKeySha256, ...others } = keyLines(keys);
  return apiKeySha256 === undefined ? others : { apiKeySha256: [apiKeySha256].flat() };
}

interface ClientKeys {
  /** Of the first section that has them. */
  readonly place: LocatedIssue;
  /** Paths of all sections that have them. */
  readonly paths: readonly string[];
  readonly keys: readonly ApiKey[];
}

function keysOf({ config, locate }: LocatedConfig, id: string, file: string): ClientKeys {
  const index = config.clients.findIndex((client) => client.id === id);
  const client = config.clients[index];
  if (client === undefined) {
    const known = listNearest(
      id,
      config.clients.map((each) => each.id),
    );
    const others = known === '' ? ' or any other:' : `, but ${known}: name one of these, or`;
    throw new CommandError(2, `${file} has no client ${id}${others} run client add ${id}`);
  }
  const { identify } = client;
  const sections = (['apiKeySha256', 'apiKeys'] as const)
    .filter((form) => identify[form] !== undefined)
    .map((form) => ['clients', index, 'identify', form]);
  const [path = ['clients', index, 'identify', 'apiKeySha256']] = sections;
  const keys = [...apiKeysOf(identify)];
  if (keys.length === 0) {
    const message = `is missing: ${id} has no API key to rotate; client add ${id} creates one`;
    throw new ConfigError([locate({ path, key: path, message })]);
  }
  return { place: locate({ path, key: path, message: '' }), paths: sections.map(formatPath), keys };
}

function instructions(id: string, key: NewKey, { place: { file, line }, paths, keys }: ClientKeys): string {
  const [old, use] = keys.length === 1 ? ['the old key', 'both'] : [`the ${keys.length} old keys`, 'all'];
  return [
    ...shownOnce(`The new API key of ${id}`, key),
    `1. In ${file}, line ${line}, put its hash beside that of ${old} in place of what is there (${paths.join(' and ')}), then reload, so that ${use} work:`,
    '',
    ...yamlLines(keyLines([key, ...keys])),
    '',
    `2. Give the key to ${id}, which sends it in place of ${old}.`,
    '3. When it does, keep the new hash alone, and reload:',
    '',
    ...yamlLines(keyLines([key])),
  ].join('\n');
}

/** Formats the lines under `identify`, a list or mapping on one line each. */
function yamlLines({ apiKeySha256, apiKeys = [] }: KeyLines): string[] {
  const flow = (value: unknown): string =>
    stringify(value, { collectionStyle: 'flow', flowCollectionPadding: false, lineWidth: 0 }).trimEnd();
  if (apiKeySha256 !== undefined) return [`    apiKeySha256: ${flow(apiKeySha256)}`];
  return ['    apiKeys:', ...apiKeys.map((key) => `      - ${flow(key)}`)];
}

/** Bytes of randomness in a key, which cannot be guessed. */
const KEY_BYTES = 20;
/** A new API key of a client, and its hash for the configuration. */
interface NewKey extends ApiKey {
  readonly apiKey: string;
}

/** Creates an API key. It is stored nowhere. */
function createApiKey(expires: number | undefined): NewKey {
  const apiKey = `${KEY_PREFIX}${randomBytes(KEY_BYTES).toString('hex')}`;
  return { apiKey, sha256: hash('sha256', apiKey), expires };
}

/** Returns the lines that show a key, which cannot be shown again. */
function shownOnce(title: string, { apiKey }: NewKey): string[] {
  return [`${title}. It is shown once and stored nowhere:`, '', `    ${apiKey}`, ''];
}
