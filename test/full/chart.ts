import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseAllDocuments, stringify } from 'yaml';
import { type CommandEnd, runCommand } from '../support/program.ts';
import { repository } from '../support/repository.ts';

export const CHART = join(repository, 'deploy/helm/digest-gateway');

type Texts = Readonly<Record<string, string>>;
interface Named {
  readonly name: string;
}

export interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels: Texts };
}

export interface ConfigMap extends KubernetesObject {
  readonly data: Texts;
}

export interface Service extends KubernetesObject {
  readonly spec: {
    readonly type?: string;
    readonly clusterIP?: string;
    readonly selector: Texts;
    readonly ports: readonly { port: number; targetPort: string; appProtocol?: string }[];
  };
}

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}

export interface Container {
  readonly image: string;
  readonly args: readonly string[];
  readonly ports: readonly { name: string; containerPort: number }[];
  readonly securityContext: object;
  readonly resources: { readonly limits: { readonly memory: string } };
  readonly startupProbe: Probe;
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly volumeMounts: readonly { name: string; mountPath: string }[];
}

export interface StatefulSet extends KubernetesObject {
  readonly spec: {
    readonly replicas?: number;
    readonly serviceName: string;
    readonly podManagementPolicy: string;
    readonly selector: { readonly matchLabels: Texts };
    readonly template: {
      readonly metadata: { readonly labels: Texts; readonly annotations: Texts };
      readonly spec: {
        readonly terminationGracePeriodSeconds: number;
        readonly automountServiceAccountToken: boolean;
        readonly securityContext: object;
        readonly nodeSelector?: Texts;
        readonly tolerations?: readonly object[];
        readonly topologySpreadConstraints?: readonly {
          topologyKey: string;
          whenUnsatisfiable: string;
          labelSelector: { matchLabels: Texts };
        }[];
        readonly containers: readonly [Container];
        readonly volumes: readonly {
          name: string;
          configMap?: Named;
          secret?: { secretName: string; defaultMode: number };
        }[];
      };
    };
    readonly volumeClaimTemplates?: readonly { metadata: Named }[];
  };
}

export interface PodDisruptionBudget extends KubernetesObject {
  readonly spec: { readonly selector: { readonly matchLabels: Texts } };
}

export interface HorizontalPodAutoscaler extends KubernetesObject {
  readonly spec: {
    readonly scaleTargetRef: { readonly kind: string; readonly name: string };
    readonly metrics: readonly { type: string; pods?: { metric: Named } }[];
  };
}

export interface NetworkPolicy extends KubernetesObject {
  readonly spec: {
    readonly podSelector: { readonly matchLabels: Texts };
    readonly policyTypes: readonly string[];
    readonly ingress: readonly { ports: readonly { port: string }[] }[] | null;
    readonly egress?: readonly { ports: readonly { port: number }[] }[];
  };
}

export interface PodMonitor extends KubernetesObject {
  readonly spec: {
    readonly jobLabel: string;
    readonly selector: { readonly matchLabels: Texts };
    readonly podMetricsEndpoints: readonly { port: string }[];
  };
}

export interface PrometheusRule extends KubernetesObject {
  readonly spec: object;
}

interface Kinds {
  ConfigMap: ConfigMap;
  Service: Service;
  StatefulSet: StatefulSet;
  PodDisruptionBudget: PodDisruptionBudget;
  HorizontalPodAutoscaler: HorizontalPodAutoscaler;
  NetworkPolicy: NetworkPolicy;
  PodMonitor: PodMonitor;
  PrometheusRule: PrometheusRule;
}

/** The objects that the chart renders. */
export interface Rendered {
  readonly objects: readonly KubernetesObject[];
  /** The objects of a kind, in the order of their names. Test that they have the shape of their kind: schemaIssue. */
  all<K extends keyof Kinds>(kind: K): Kinds[K][];
  /** @throws Error if the kind has not exactly one object */
  the<K extends keyof Kinds>(kind: K): Kinds[K];
}

/** Values: examples of the chart by name, then further ones, which win. */
export interface ChartValues {
  readonly examples?: readonly string[];
  readonly further?: object;
}

/**
 * Renders the chart as the release `prod`.
 * @throws Error with what Helm printed
 */
export async function renderChart(values: ChartValues): Promise<Rendered> {
  const { status, printed } = await helm(['template', 'prod', CHART, '--namespace', 'gateways'], values);
  if (status !== 0) throw new Error(printed);
  const objects: KubernetesObject[] = parseAllDocuments(printed).map((document) => {
    if (document.errors.length > 0) throw new Error(String(document.errors));
    return document.toJS();
  });
  const all: Rendered['all'] = (kind) =>
    objects
      .filter((object): object is Kinds[typeof kind] => object.kind === kind)
      .toSorted((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  return {
    objects,
    all,
    the(kind) {
      const [object, second] = all(kind);
      if (object === undefined || second !== undefined) throw new Error(`not one ${kind}:\n${printed}`);
      return object;
    },
  };
}

/** Runs `helm COMMAND…` with values; the pinned Helm is installed if it is missing. */
export async function helm(
  command: readonly string[],
  { examples = [], further = {} }: ChartValues,
): Promise<CommandEnd> {
  const installed = await runCommand('sh', [join(repository, 'test/full/install-helm.sh')]);
  if (installed.status !== 0) throw new Error(installed.printed);
  const files = [...examples.map((name) => join(CHART, 'examples', `${name}.yaml`)), '-'];
  const program = join(repository, 'node_modules/.cache/helm/helm');
  return runCommand(
    program,
    [...command, ...files.flatMap((file) => ['--values', file])],
    stringify(further),
  );
}

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
