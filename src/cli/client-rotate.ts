import { ConfigError, type LocatedIssue } from '../config/issues.ts';
import { type LocatedConfig, loadLocated } from '../config/load.ts';
import { type ApiKey, createApiKey, shownOnce } from './api-key.ts';
import { CommandError } from './command-error.ts';
import { type Io, print } from './io.ts';

interface RotateOptions {
  readonly config: string;
  readonly json?: boolean;
}

/** `client rotate NAME`: creates a key beside those that a client has, and prints where its hash goes. */
export async function rotateClient(
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
