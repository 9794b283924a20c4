import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { KubernetesObject } from './chart.ts';
import { runCommand } from './command.ts';
import { repository } from './repository.ts';

/** The module of npm's kubernetes-models that has the model of a kind. */
function moduleOf({ apiVersion, kind }: KubernetesObject): string {
  const ofOperator = apiVersion.startsWith('monitoring.coreos.com/');
  return `${ofOperator ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models'}/${apiVersion}/${kind}`;
}

/** The errors of an object by the schema of its kind, which permits unknown fields. */
export async function schemaIssue(object: KubernetesObject): Promise<string | undefined> {
  const models: Record<string, new (data: object) => { validate(): void }> = await import(moduleOf(object));
  const Model = models[object.kind];
  if (Model === undefined) return `${object.apiVersion} has no ${object.kind}`;
  try {
    new Model(object).validate();
    return undefined;
  } catch (error) {
    return String(error);
  }
}

/** The compiler's errors of objects as literals of their kinds' types: unknown fields are errors there. */
export async function typeIssues(objects: readonly KubernetesObject[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'kubernetes-'));
  try {
    await symlink(join(repository, 'node_modules'), join(folder, 'node_modules'));
    const source = objects.flatMap((object, index) => [
      `import type { I${object.kind} as Type${index} } from '${moduleOf(object)}';`,
      `export const object${index}: Type${index} = ${JSON.stringify(object, null, 1)};`,
    ]);
    await writeFile(join(folder, 'package.json'), '{ "type": "module" }');
    await writeFile(join(folder, 'objects.ts'), source.join('\n'));
    const compilerOptions = { noEmit: true, strict: true, skipLibCheck: true, module: 'nodenext', types: [] };
    await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions }));
    return (await runCommand(join(repository, 'node_modules/.bin/tsc'), ['-p', folder])).printed;
  } finally {
    await rm(folder, { recursive: true });
  }
}
