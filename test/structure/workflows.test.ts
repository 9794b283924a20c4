import { globSync, readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { basename, join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { releaseIssues } from '../../build/release.ts';
import { repository } from '../support/repository.ts';

interface Step {
  readonly run?: string;
  readonly uses?: string;
}

interface Workflow {
  readonly permissions?: unknown;
  readonly jobs: Readonly<Record<string, { readonly 'timeout-minutes'?: number; readonly steps: Step[] }>>;
}

// The package imports its schemas without the attribute that Node.js asks for.
registerHooks({
  resolve: (specifier, context, next) => ({
    ...next(specifier, context),
    ...(specifier.endsWith('.min.json') && { importAttributes: { type: 'json' } }),
  }),
});
const { convertWorkflowTemplate, NoOperationTraceWriter, parseWorkflow } = await import(
  '@actions/workflow-parser'
);

const { scripts, version } = JSON.parse(read('package.json'));
/** Programs that the runner has, beside npm. */
const PROGRAMS = ['echo', 'gh', 'helm'];

function read(name: string): string {
  return readFileSync(join(repository, name), 'utf8');
}

describe.each(globSync('.github/workflows/*.yml', { cwd: repository }))('%s', (file) => {
  const content = read(file);
  const workflow: Workflow = parse(content);
  const jobs = Object.values(workflow.jobs);

  test('is a workflow as its service reads it', async () => {
    const { context, value } = parseWorkflow({ name: basename(file), content }, new NoOperationTraceWriter());
    if (value !== undefined) await convertWorkflowTemplate(context, value);
    expect(context.errors.getErrors().map(({ message }) => message)).toEqual([]);
  });

  test('runs nothing but scripts of package.json and commands of npm', () => {
    const commands = jobs.flatMap(({ steps }) => steps.flatMap(({ run = '' }) => run.split(/\n|\|/)));
    const unknown = commands
      .map((command) => command.trim())
      .filter((command) => command !== '' && !PROGRAMS.includes(command.split(' ')[0] ?? ''))
      .filter((command) => {
        const [, script] = /^npm (?:run )?([\w:]+)/.exec(command) ?? [];
        const isOfNpm = ['audit', 'ci', 'pack', 'publish'].includes(script ?? '');
        return script === undefined || !(isOfNpm || script in scripts);
      });
    expect(unknown).toEqual([]);
  });

  test('has few permissions, and an end', () => {
    expect(workflow.permissions).toEqual({ contents: 'read' });
    expect(jobs.filter((job) => job['timeout-minutes'] === undefined)).toEqual([]);
  });

  test('uses actions of the service itself and of Docker only, each with its version', () => {
    const used = jobs.flatMap(({ steps }) => steps.flatMap(({ uses }) => uses ?? []));
    expect(used.filter((each) => !/^(?:actions|docker)\/[\w-]+@v\d+$/.test(each))).toEqual([]);
  });
});

test('a workflow with a mistake is none', () => {
  const content = 'on: push\njobs:\n  test:\n    runs-on: ubuntu-24.04\n    stepz: []\n';
  const { context } = parseWorkflow({ name: 'wrong.yml', content }, new NoOperationTraceWriter());
  expect(context.errors.getErrors().map(({ message }) => message)).not.toEqual([]);
});

test('package, lock, chart and CHANGELOG have one version', () => {
  expect(releaseIssues(`v${version}`)).toEqual([]);
  expect(releaseIssues('v9.9.9')).toHaveLength(5);
});

test('templates and updates are YAML', () => {
  const files = globSync(['.github/*.yml', '.github/ISSUE_TEMPLATE/*.yml'], { cwd: repository });
  expect(files).toHaveLength(5);
  for (const file of files) expect(parse(read(file))).toEqual(expect.any(Object));
});
