import { readFile } from 'node:fs/promises';

/** The version in package.json. */
export async function packageVersion(): Promise<string> {
  // The same two steps up from src/cli and from dist/cli.
  const text = await readFile(new URL('../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(text) as { version: string };
  return version;
}
