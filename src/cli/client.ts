import { hash, randomBytes } from 'node:crypto';
import { type Command, InvalidArgumentError } from 'commander';
import { stringify } from 'yaml';
import { Network } from '../base/network.ts';
import { isClientId } from '../config/clients.ts';

/** Bytes of randomness in a key, which cannot be guessed. */
const KEY_BYTES = 20;
/** Identifies the key for people and secret scanners. */
const PREFIX = 'dgk_';

/** `client add NAME`: creates an API key for a client of the gateway. */
export function registerClient(program: Command): void {
  program
    .command('client')
    .description('work on the clients of the gateway')
    .command('add')
    .description('create an API key; print it once, with the configuration lines for its client')
    .argument('<name>', 'the id of the client in configuration, metrics and logs', clientId)
    .option('--address <network>', 'a network from which the client calls; can be repeated', addNetwork, [])
    .option('--json', 'print JSON')
    .action((id: string, { address, json = false }: { address: string[]; json?: boolean }) => {
      const added = addClient(id, address);
      process.stdout.write(json ? `${JSON.stringify(added)}\n` : addedText(added));
    });
}

interface AddedClient {
  readonly apiKey: string;
  /** The entry under `clients`. */
  readonly client: {
    readonly id: string;
    readonly identify: { readonly addresses?: readonly string[]; readonly apiKeySha256: string };
  };
}

function addClient(id: string, addresses: readonly string[]): AddedClient {
  const apiKey = `${PREFIX}${randomBytes(KEY_BYTES).toString('hex')}`;
  const identify = { ...(addresses.length > 0 && { addresses }), apiKeySha256: hash('sha256', apiKey) };
  return { apiKey, client: { id, identify } };
}

function addedText({ apiKey, client }: AddedClient): string {
  return [
    `The API key of ${client.id}. It is shown once and stored nowhere:`,
    '',
    `    ${apiKey}`,
    '',
    `The client sends it as X-Api-Key, or as the password of Basic with the user name ${client.id}.`,
    'Add this to the configuration, with rules under allow:',
    '',
    `${stringify({ clients: [client] })}    allow: [] # such as [{ deployment: NAME, sites: [NAME], methods: [GET] }]\n`,
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
