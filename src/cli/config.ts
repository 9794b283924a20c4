import type { Command } from 'commander';
import { configJsonSchema } from '../config/json-schema.ts';
import { print, type Run } from './io.ts';

/** `config schema`: prints the JSON Schema of the configuration. */
export function registerConfig(program: Command, run: Run): void {
  program
    .command('config')
    .description('work on configuration files')
    .command('schema')
    .description(
      'print the JSON Schema of the configuration; an editor checks a file by it that starts with # yaml-language-server: $schema=PATH',
    )
    .action(run((io) => print(io, `${JSON.stringify(configJsonSchema(), undefined, 2)}\n`)));
}
