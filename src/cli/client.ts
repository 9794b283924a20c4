import { type Command, InvalidArgumentError } from 'commander';
import { stringify } from 'yaml';
import { Network } from '../base/network.ts';
import { isClientId } from '../config/clients.ts';
import { type ApiKey, createApiKey, shownOnce } from './api-key.ts';
import { listClients } from './client-list.ts';
import { rotateClient } from './client-rotate.ts';
import { type Io, print, type Run } from './io.ts';

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
