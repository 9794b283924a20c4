import type { Command } from 'commander';
import { configJsonSchema } from '../config/json-schema.ts';

/** `config schema`: prints the JSON Schema of the configuration. */
export function registerConfig(program: Command): void {
  program
    .command('config')
    .description('work on configuration files')
    .command('schema')
    .description(
      'print the JSON Schema of the configuration; an editor checks a file by it that starts with # yaml-language-server: $schema=PATH',
    )
    .action(() => {
      process.stdout.write(`${JSON.stringify(configJsonSchema(), undefined, 2)}\n`);
    });
}
