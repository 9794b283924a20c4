import { readFile } from 'node:fs/promises';

/** Returns the version in package.json. */
export async function packageVersion(): Promise<string> {
  // package.json is two folders up from src/cli and from dist/cli.
  const text = await readFile(new URL('../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(text) as { version: string };
  return version;
}
