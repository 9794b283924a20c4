import type { Command } from 'commander';
import { effectiveTree, effectiveYaml } from '../config/effective.ts';
import { configJsonSchema, partJsonSchema } from '../config/json-schema.ts';
import { loadLocated } from '../config/load.ts';
import { type Io, print, type Run } from './io.ts';

/** `config schema|show`: works on configuration files. */
export function registerConfig(program: Command, run: Run): void {
  const config = program.command('config').description('work on configuration files');
  config
    .command('schema')
    .description(
      'print the JSON Schema of the configuration; an editor checks a file by it that starts with # yaml-language-server: $schema=PATH',
    )
    .option('--part', 'print that of an included file instead')
    .action(run(printSchema));
  config
    .command('show')
    .description('print the effective configuration: with defaults and included files, without secrets')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option('--json', 'print JSON')
    .action(run(show));
}

async function printSchema(io: Io, { part = false }: { part?: boolean }): Promise<void> {
  const schema = part ? partJsonSchema() : configJsonSchema();
  await print(io, `${JSON.stringify(schema, undefined, 2)}\n`);
}

async function show(
  io: Io,
  { config: file, json = false }: { config: string; json?: boolean },
): Promise<void> {
  const { tree } = await loadLocated(file);
  const text = json
    ? JSON.stringify(effectiveTree(tree), undefined, 2)
    : `# ${file} with defaults; names of files are relative to its folder.\n${effectiveYaml(tree).trimEnd()}`;
  await print(io, `${text}\n`);
}
