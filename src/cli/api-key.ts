import { hash, randomBytes } from 'node:crypto';

/** Bytes of randomness in a key, which cannot be guessed. */
const KEY_BYTES = 20;
/** Identifies the key for people and secret scanners. */
const PREFIX = 'dgk_';

/** An API key of a client, and its hash for the configuration. */
export interface ApiKey {
  readonly apiKey: string;
  readonly apiKeySha256: string;
}

/** Creates an API key. It is stored nowhere. */
export function createApiKey(): ApiKey {
  const apiKey = `${PREFIX}${randomBytes(KEY_BYTES).toString('hex')}`;
  return { apiKey, apiKeySha256: hash('sha256', apiKey) };
}

/** Returns the lines that show a key, which nobody can show again. */
export function shownOnce(title: string, { apiKey }: ApiKey): string[] {
  return [`${title}. It is shown once and stored nowhere:`, '', `    ${apiKey}`, ''];
}
