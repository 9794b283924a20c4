import type { Command } from 'commander';
import { configJsonSchema, partJsonSchema } from '../config/json-schema.ts';
import { type Io, print, type Run } from './io.ts';

/** `config schema`: works on configuration files. */
export function registerConfig(program: Command, run: Run): void {
  const config = program.command('config').description('work on configuration files');
  config
    .command('schema')
    .description(
      'print the JSON Schema of the configuration; an editor checks a file by it that starts with # yaml-language-server: $schema=PATH',
    )
    .option('--part', 'print that of an included file instead')
    .action(run(printSchema));
}

async function printSchema(io: Io, { part = false }: { part?: boolean }): Promise<void> {
  const schema = part ? partJsonSchema() : configJsonSchema();
  await print(io, `${JSON.stringify(schema, undefined, 2)}\n`);
}
