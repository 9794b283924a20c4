import { configJsonSchema } from '../../src/config/json-schema.ts';
import { cliPage } from './cli.ts';
import { configurationPage, witnessSettingsPage } from './configuration.ts';
import { conformancePage } from './conformance.ts';
import { errorsPage } from './errors.ts';
import { exampleFile } from './example.ts';
import { findingsPage } from './findings.ts';

/** Every generated file with its text, by its name in the repository. */
export async function generatedPages(): Promise<Map<string, string>> {
  return new Map([
    ['docs/configure/configuration.md', configurationPage()],
    ['docs/configure/cli.md', await cliPage()],
    ['docs/configure/errors.md', errorsPage()],
    ['docs/audit/findings.md', findingsPage()],
    ['docs/audit/witness-settings.md', witnessSettingsPage()],
    ['docs/security/conformance.md', conformancePage()],
    ['config/example.yaml', await exampleFile()],
    ['config/schema.json', `${JSON.stringify(configJsonSchema(), null, 2)}\n`],
  ]);
}
