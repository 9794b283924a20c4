import { cliPage } from './cli.ts';
import { configurationPage } from './configuration.ts';
import { errorsPage } from './errors.ts';

/** Every generated page below docs/ with its text. */
export async function generatedPages(): Promise<Map<string, string>> {
  return new Map([
    ['configuration.md', configurationPage()],
    ['cli.md', await cliPage()],
    ['errors.md', errorsPage()],
  ]);
}
