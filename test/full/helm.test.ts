import { execFileSync } from 'node:child_process';
import { chmod, cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { keysThatNeedRestart } from '../../src/app/changes.ts';
import { Metrics } from '../../src/metrics/metrics.ts';
import { useFolders } from '../support/audit-log.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { gateway } from '../support/program.ts';
import { repository } from '../support/repository.ts';
import {
  CHART,
  type ChartValues,
  helm,
  type Rendered,
  renderChart,
  schemaIssue,
  typeIssues,
} from './chart.ts';

execFileSync('sh', [join(repository, 'build/chart.sh')]);

const makeFolder = useFolders();
const read = (name: string): Promise<string> => readFile(join(repository, name), 'utf8');

const deployment = (name: string) => ({
  baseUrl: `https://${name}.example.org`,
  match: { pathPrefix: `/${name}/` },
  credential: 'journal-a',
});

const TLS = { certFile: '/run/secrets/tls/tls.crt', keyFile: '/run/secrets/tls/tls.key' };

/** Sets of values, each rendered once. */
const VALUES = {
  minimal: { examples: ['minimal'] },
  production: { examples: ['production'] },
  'egress node pool': { examples: ['production', 'egress-node-pool'] },
  'nothing optional': {
    examples: ['minimal'],
    further: {
      replicas: 1,
      topologySpread: [],
      podDisruptionBudget: null,
      networkPolicy: { enabled: false },
      config: { drain: { delay: '1500ms', timeout: '90s' } },
    },
  },
  'several deployments': {
    examples: ['minimal'],
    further: {
      fullnameOverride: 'outbound',
      image: { tag: '1.2.3' },
      config: {
        listen: { address: '::', port: 9000 },
        control: { port: 9001 },
        drain: { delay: '0s', timeout: '1h' },
        deployments: { abstracts: deployment('abstracts'), reviews: deployment('reviews') },
      },
      secrets: { 'audit-key': 'audit' },
      podLabels: { egress: 'fixed' },
      podAnnotations: { note: 'a: b' },
      affinity: { nodeAffinity: {} },
      service: { type: 'LoadBalancer', externalTrafficPolicy: 'Local', annotations: { a: 'b' } },
      autoscaling: { enabled: true, cpu: 0, requestsInFlight: 50 },
      networkPolicy: { clients: [{ ipBlock: { cidr: '192.0.2.0/24' } }], control: [] },
    },
  },
  'several listeners': {
    examples: ['minimal'],
    further: {
      secrets: { tls: 'digest-gateway-tls' },
      service: { port: 443 },
      config: {
        listen: [
          { port: 8443, tls: TLS, hosts: ['gateway.internal'] },
          { port: 8080, address: '::', proxyProtocol: ['192.0.2.0/24'] },
        ],
      },
      furtherServices: [{ port: 80, type: 'LoadBalancer', annotations: { a: 'b' } }],
    },
  },
} satisfies Record<string, ChartValues>;

const rendered = new Map<string, Rendered>();
for (const [name, values] of Object.entries(VALUES)) rendered.set(name, await renderChart(values));

function chart(name: keyof typeof VALUES): Rendered {
  const found = rendered.get(name);
  if (found === undefined) throw new Error(`${name} has not been rendered`);
  return found;
}

/** The name of the port of a listener. */
function portName(index: number): string {
  return index === 0 ? 'http' : `http-${index}`;
}

/** The configuration in the ConfigMap that the pods mount. */
function configText(objects: Rendered): string {
  const { name } = objects.the('StatefulSet').metadata;
  const [config] = objects.all('ConfigMap').filter(({ metadata }) => metadata.name === name);
  return config?.data['gateway.yaml'] ?? '';
}

describe.each([...rendered])('with the values: %s', (_, objects) => {
  const statefulSet = objects.the('StatefulSet');
  const { name } = statefulSet.metadata;
  const { metadata, spec: pod } = statefulSet.spec.template;
  const [container] = pod.containers;
  const config = parseConfig(configText(objects), 'gateway.yaml');

  test('every object fits the schema of its kind', async () => {
    for (const object of objects.objects) expect(await schemaIssue(object)).toBeUndefined();
    expect(await typeIssues(objects.objects)).toBe('');
  });

  test('the ports are those of the configuration, and nobody names another', () => {
    expect(container.ports).toEqual([
      ...config.listen.map(({ port }, index) => ({ name: portName(index), containerPort: port })),
      { name: 'control', containerPort: config.control.port },
    ]);
    const probes = [container.startupProbe, container.livenessProbe, container.readinessProbe];
    expect(probes.map(({ httpGet }) => httpGet)).toEqual([
      { path: '/livez', port: 'control' },
      { path: '/livez', port: 'control' },
      { path: '/readyz', port: 'control' },
    ]);
    const services = objects.all('Service');
    const replicas = services.pop();
    expect(services.map(({ metadata, spec }) => [metadata.name, spec.ports[0]?.targetPort])).toEqual(
      config.listen.map((_, index) => [index === 0 ? name : `${name}-${portName(index)}`, portName(index)]),
    );
    expect(services.map(({ spec }) => spec.ports[0]?.appProtocol)).toEqual(
      config.listen.map(({ tls }) => (tls === undefined ? 'http' : 'https')),
    );
    expect(replicas?.spec.ports).toMatchObject([{ port: config.control.port, targetPort: 'control' }]);
  });

  test('everything selects the pods of this release', () => {
    const labels = { 'app.kubernetes.io/name': 'digest-gateway', 'app.kubernetes.io/instance': 'prod' };
    expect(metadata.labels).toMatchObject(labels);
    const selectors = [
      statefulSet.spec.selector.matchLabels,
      ...objects.all('Service').map(({ spec }) => spec.selector),
      ...objects.all('PodDisruptionBudget').map(({ spec }) => spec.selector.matchLabels),
      ...objects.all('NetworkPolicy').map(({ spec }) => spec.podSelector.matchLabels),
      ...objects.all('PodMonitor').map(({ spec }) => spec.selector.matchLabels),
      ...(pod.topologySpreadConstraints ?? []).map(({ labelSelector }) => labelSelector.matchLabels),
    ];
    for (const selector of selectors) expect(selector).toEqual(labels);
    for (const { spec } of objects.all('HorizontalPodAutoscaler')) {
      expect(spec.scaleTargetRef).toMatchObject({ kind: 'StatefulSet', name });
    }
    const headless = objects.all('Service').filter(({ spec }) => spec.clusterIP === 'None');
    expect(headless.map((service) => service.metadata.name)).toEqual([statefulSet.spec.serviceName]);
  });

  test('every volume is mounted, and every secret is an existing one', () => {
    const claims = statefulSet.spec.volumeClaimTemplates ?? [];
    const volumes = [...pod.volumes, ...claims.map((claim) => claim.metadata)];
    expect(container.volumeMounts.map((mount) => mount.name)).toEqual(volumes.map((volume) => volume.name));
    expect(claims).toHaveLength(config.audit === undefined ? 0 : 1);
    expect(pod.volumes[0]?.configMap).toEqual({ name });
    for (const { secret } of pod.volumes.slice(1)) expect(secret?.defaultMode).toBe(0o400);
    expect(objects.objects.map(({ kind }) => kind)).not.toContain('Secret');
    const files = configText(objects).match(/\/run\/secrets\/[\w./-]+/g) ?? [];
    expect(files.length).toBeGreaterThan(0);
    const folders = container.volumeMounts.map(({ mountPath }) => mountPath);
    expect(files.filter((file) => !folders.includes(dirname(file)))).toEqual([]);
  });

  test('a drain has the time that it may take, and nothing is left to root', () => {
    const drainSeconds = (config.drain.delay + config.drain.timeout) / 1000;
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(drainSeconds + 30);
    expect(pod.terminationGracePeriodSeconds).toBeLessThanOrEqual(drainSeconds + 32);
    expect(pod.automountServiceAccountToken).toBe(false);
    expect(pod.securityContext).toEqual({
      runAsNonRoot: true,
      runAsUser: 1000,
      runAsGroup: 1000,
      fsGroup: 1000,
      fsGroupChangePolicy: 'OnRootMismatch',
      seccompProfile: { type: 'RuntimeDefault' },
    });
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
  });
});

test('what is optional is left out', () => {
  const kinds = (name: keyof typeof VALUES): string[] => chart(name).objects.map(({ kind }) => kind);
  expect(kinds('nothing optional').toSorted()).toEqual(['ConfigMap', 'Service', 'Service', 'StatefulSet']);
  expect(kinds('minimal').toSorted()).toEqual([
    'ConfigMap',
    'NetworkPolicy',
    'PodDisruptionBudget',
    'Service',
    'Service',
    'StatefulSet',
  ]);
  expect(new Set(kinds('production'))).toEqual(
    new Set([...kinds('minimal'), 'HorizontalPodAutoscaler', 'PodMonitor', 'PrometheusRule']),
  );
});

test('the rendered configuration passes check, with secrets as the kubelet mounts them', async () => {
  const folder = await makeFolder();
  const { cert, key } = await (await createTestAuthority()).server();
  const secrets = {
    'credentials/journal-a': 'hunter2',
    'credentials/abstracts': 'hunter2',
    'redis/password': 'hunter2',
    'redis/key': 'a1'.repeat(32),
    'audit/key': 'a1'.repeat(32),
    'tls/tls.crt': cert,
    'tls/tls.key': key,
  };
  for (const [name, secret] of Object.entries(secrets)) {
    const file = join(folder, 'secrets', name);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, secret);
    // 0400 and fsGroup.
    await chmod(file, 0o440);
  }
  await mkdir(join(folder, 'state'));
  await chmod(join(folder, 'state'), 0o2770);
  const file = join(folder, 'gateway.yaml');
  const text = configText(chart('production'))
    .replaceAll('/run/secrets', join(folder, 'secrets'))
    .replaceAll('/var/lib/digest-gateway', join(folder, 'state'));
  await writeFile(file, text);
  expect(await gateway(['check', '--config', file])).toEqual({
    status: 0,
    stdout: `${file}: ok — 2 deployments, 2 credentials\n`,
    stderr: '',
  });
});

test('the control plane needs a token, or a sign-in by name', async () => {
  const minimal = parse(await read('deploy/helm/digest-gateway/examples/minimal.yaml'));
  const oidc = {
    issuer: 'https://login.example.org',
    clientId: 'console',
    clientSecret: { file: '/run/secrets/oidc/secret' },
    publicUrl: 'https://console.example.org',
    roles: { claim: 'groups', operator: ['gateway-operators'] },
  };
  const withControl = (control: object): ChartValues => ({
    further: {
      ...minimal,
      secrets: { ...minimal.secrets, oidc: 'digest-gateway-oidc' },
      config: { ...minimal.config, control },
    },
  });
  const { control } = parseConfig(configText(await renderChart(withControl({ oidc }))), 'gateway.yaml');
  expect(control.tokenSha256).toBeUndefined();
  expect(control.oidc?.issuer).toBe(oidc.issuer);
  const podMonitor = { enabled: true, token: { secretName: 'control-token' } };
  const monitored = (control: object): ChartValues => ({
    further: { ...withControl(control).further, podMonitor },
  });
  expect(await helm(['template', 'prod', CHART], monitored({ oidc }))).toMatchObject({
    status: 1,
    printed: expect.stringContaining('podMonitor needs config.control.tokenSha256'),
  });
  const withToken = { oidc, readTokenSha256: '0'.repeat(64) };
  expect(await helm(['template', 'prod', CHART], monitored(withToken))).toMatchObject({ status: 0 });
  const { status, printed } = await helm(['template', 'prod', CHART], withControl({}));
  expect(status).toBe(1);
  expect(printed).toMatch(/at '\/config\/control': 'anyOf' failed\s[\s\S]*'tokenSha256'[\s\S]*'oidc'/);
});

test('the chart, the Compose file and the documentation allow a container the same memory', async () => {
  const [container] = chart('minimal').the('StatefulSet').spec.template.spec.containers;
  expect(container.resources.limits.memory).toBe('512Mi');
  const { services } = parse(await read('docker-compose.yml'));
  expect(services.gateway.mem_limit).toBe('512m');
  expect(await read('docs/operate/deploy.md')).toContain(' --memory 512m ');
  expect(await read('docs/operate/sizing.md')).toContain(' allow 512 MiB.');
});

test('the secrets of the values are mounted under their names', () => {
  const { containers, volumes } = chart('production').the('StatefulSet').spec.template.spec;
  const secretAt = containers[0].volumeMounts.map(({ name, mountPath }) => [
    mountPath,
    volumes.find((volume) => volume.name === name)?.secret?.secretName,
  ]);
  expect(Object.fromEntries(secretAt)).toMatchObject({
    '/run/secrets/audit': 'digest-gateway-audit',
    '/run/secrets/credentials': 'digest-gateway-credentials',
    '/run/secrets/redis': 'digest-gateway-redis',
    '/run/secrets/tls': 'digest-gateway-tls',
  });
});

test('a replica has a volume at the directory of its audit log, and a stable name', () => {
  const { metadata, spec } = chart('production').the('StatefulSet');
  const mounts = spec.template.spec.containers[0].volumeMounts;
  expect(mounts.at(-1)).toEqual({ name: 'audit', mountPath: '/var/lib/digest-gateway' });
  expect(parseConfig(configText(chart('production')), 'gateway.yaml').audit?.directory).toBe(
    '/var/lib/digest-gateway/audit',
  );
  expect(metadata.name).toBe('prod-digest-gateway');
  expect(spec.podManagementPolicy).toBe('Parallel');
});

test('long names are cut to what Kubernetes takes', async () => {
  // A StatefulSet adds a hyphen and a hash of ten characters to its name in a label.
  const objects = await renderChart({
    examples: ['production'],
    further: { fullnameOverride: `${'a'.repeat(51)}-${'b'.repeat(30)}` },
  });
  const statefulSet = objects.the('StatefulSet');
  expect(statefulSet.metadata.name).toBe('a'.repeat(51));
  expect(statefulSet.spec.serviceName).toBe(`${'a'.repeat(51)}-replicas`);
  expect(objects.objects.filter(({ metadata }) => metadata.name.length > 63)).toEqual([]);
});

function expectRestartAsNeeded(before: Rendered, after: Rendered): void {
  const [running, next] = [before, after].map((each) => parseConfig(configText(each), 'gateway.yaml'));
  if (running === undefined || next === undefined) throw new Error('two configurations were parsed');
  expect(next).not.toEqual(running);
  const [old, fresh] = [before, after].map(
    (each) => each.the('StatefulSet').spec.template.metadata.annotations,
  );
  expect(isDeepStrictEqual(old, fresh)).toBe(keysThatNeedRestart(running, next).length === 0);
}

describe('a change restarts the pods exactly if a reload does not suffice', () => {
  test.each<[string, object]>([
    ['log', { log: { level: 'debug' } }],
    [
      'clients',
      {
        clients: [{ id: 'a', identify: { addresses: ['192.0.2.1'] }, allow: [{ deployment: 'abstracts' }] }],
      },
    ],
    ['deployments', { deployments: { reviews: deployment('reviews') } }],
    ['listen.hosts', { listen: { hosts: ['gateway.internal'] } }],
    ['listen.trustedProxies', { listen: { trustedProxies: ['192.0.2.1'] } }],
    ['listen.forwardedHeader', { listen: { forwardedHeader: 'Forwarded' } }],
    ['audit.parameters', { audit: { parameters: ['external_id'] } }],
    ['audit.pseudonyms', { audit: { pseudonyms: { keysDirectory: '/var/lib/digest-gateway/keys' } } }],
    ['listen.address', { listen: { address: '::' } }],
    ['listen.port', { listen: { port: 9000 } }],
    ['listen.tls', { listen: { tls: { minVersion: 'TLSv1.3' } } }],
    ['listen.limits', { listen: { limits: { connections: 5 } } }],
    ['a list of the same listener', { listen: [{ port: 8080, tls: TLS, hosts: ['gateway.internal'] }] }],
    ['a list of another listener', { listen: [{ port: 8443, tls: TLS }] }],
    ['control', { control: { port: 9001 } }],
    ['redis', { redis: { timeout: '200ms' } }],
    ['audit.segment', { audit: { segment: { keep: '30d' } } }],
  ])('%s', async (_, config) => {
    const after = await renderChart({ examples: ['production'], further: { config } });
    expectRestartAsNeeded(chart('production'), after);
  });

  test('audit.pseudonyms.fields', async () => {
    const [before, after] = await Promise.all(
      ['address', 'parameters.ids'].map((field) => {
        const pseudonyms = { keysDirectory: '/var/lib/digest-gateway/keys', fields: [field] };
        const config = { audit: { parameters: ['ids'], pseudonyms } };
        return renderChart({ examples: ['production'], further: { config } });
      }),
    );
    if (before === undefined || after === undefined) throw new Error('two charts were rendered');
    expectRestartAsNeeded(before, after);
  });

  test('and the gateway watches the file that the ConfigMap is mounted as', () => {
    const [container] = chart('production').the('StatefulSet').spec.template.spec.containers;
    const [command, , file = '', ...options] = container.args;
    expect([command, options]).toEqual(['serve', ['--watch']]);
    expect(container.volumeMounts[0]).toEqual({
      name: 'configuration',
      mountPath: dirname(file),
      readOnly: true,
    });
    expect(chart('production').all('ConfigMap')[0]?.data).toHaveProperty([basename(file)]);
  });
});

test('the autoscaler counts a metric that exists, and the number of replicas is left to it', async () => {
  const { registry } = new Metrics({ version: 'test', node: 'v0' });
  const [cpu, inFlight] = chart('production').the('HorizontalPodAutoscaler').spec.metrics;
  expect(cpu).toMatchObject({
    type: 'Resource',
    resource: { name: 'cpu', target: { averageUtilization: 70 } },
  });
  expect(inFlight).toMatchObject({ type: 'Pods', pods: { target: { averageValue: '100' } } });
  expect(registry.getSingleMetric(inFlight?.pods?.metric.name ?? '')).toBeDefined();
  expect(chart('production').the('StatefulSet').spec.replicas).toBeUndefined();
  expect(chart('minimal').the('StatefulSet').spec.replicas).toBe(2);
});

test('the network policy admits whom the values name, to the ports of the pods', () => {
  const several = chart('several deployments');
  expect(several.the('NetworkPolicy').spec).toMatchObject({
    policyTypes: ['Ingress'],
    ingress: [{ ports: [{ port: 'http' }], from: [{ ipBlock: { cidr: '192.0.2.0/24' } }] }],
  });
  const [toListeners] = chart('several listeners').the('NetworkPolicy').spec.ingress ?? [];
  expect(toListeners?.ports.map(({ port }) => port)).toEqual(['http', 'http-1']);
  const { policyTypes, ingress, egress } = chart('production').the('NetworkPolicy').spec;
  expect(policyTypes).toEqual(['Ingress', 'Egress']);
  expect(ingress?.map(({ ports }) => ports[0]?.port)).toEqual(['http', 'control']);
  expect(egress?.flatMap(({ ports }) => ports.map(({ port }) => port))).toEqual([53, 53, 443, 6379, 4318]);
});

test('the node pool keeps replicas on its nodes', () => {
  const { nodeSelector, tolerations, topologySpreadConstraints } =
    chart('egress node pool').the('StatefulSet').spec.template.spec;
  expect(nodeSelector).toEqual({ 'node-pool': 'fixed-egress' });
  expect(tolerations).toEqual([
    { key: 'node-pool', operator: 'Equal', value: 'fixed-egress', effect: 'NoSchedule' },
  ]);
  expect(topologySpreadConstraints).toMatchObject([
    { topologyKey: 'kubernetes.io/hostname', whenUnsatisfiable: 'DoNotSchedule' },
  ]);
  expect(chart('several deployments').the('StatefulSet').spec.template.metadata.labels).toMatchObject({
    egress: 'fixed',
  });
});

test('Prometheus scrapes under the name of the job that the alerts know', async () => {
  const { spec } = chart('production').the('PodMonitor');
  const labels = chart('production').the('StatefulSet').spec.template.metadata.labels;
  const [{ job_name }] = parse(await read('deploy/prometheus/prometheus.yml')).scrape_configs;
  expect(labels[spec.jobLabel]).toBe(job_name);
  expect(spec.podMetricsEndpoints).toMatchObject([
    { port: 'control', authorization: { credentials: { name: 'digest-gateway-control', key: 'token' } } },
  ]);
});

test('the rules and the dashboard are those of deploy/', async () => {
  const alerts = (await read('deploy/prometheus/alerts.yml')).replaceAll(
    'runbook_url: docs/',
    'runbook_url: https://docs.example.org/digest-gateway/',
  );
  expect(chart('production').the('PrometheusRule').spec).toEqual(parse(alerts));
  const [, dashboard] = chart('production').all('ConfigMap');
  expect(dashboard?.metadata.labels).toMatchObject({ grafana_dashboard: '1' });
  const shown = (await read('deploy/grafana/digest-gateway.json'))
    .replaceAll('"docs/"', '"https://docs.example.org/digest-gateway/"')
    .replaceAll('"http://127.0.0.1:8081/"', '"https://gateway-console.example.org/"');
  expect(JSON.parse(dashboard?.data['digest-gateway.json'] ?? '')).toEqual(JSON.parse(shown));
  const { list } = JSON.parse(shown).templating;
  const current = (name: string): unknown =>
    list.find((variable: { name: string }) => variable.name === name)?.current.value;
  expect([current('docs'), current('console')]).toEqual([
    'https://docs.example.org/digest-gateway/',
    'https://gateway-console.example.org/',
  ]);
});

test('the image is the one of this version, unless the values name another', async () => {
  const image = (objects: Rendered) => objects.the('StatefulSet').spec.template.spec.containers[0].image;
  const { version } = JSON.parse(await read('package.json'));
  const repositoryOfImage = 'registry.example.org/digest-gateway';
  expect(image(chart('minimal'))).toBe(`${repositoryOfImage}:${version}`);
  expect(image(chart('several deployments'))).toBe(`${repositoryOfImage}:1.2.3`);
  expect(image(chart('production'))).toBe(`${repositoryOfImage}@sha256:${'0'.repeat(64)}`);
});

test.each(['minimal', 'production'])('helm lint has nothing against the chart: %s', async (example) => {
  expect((await helm(['lint', '--strict', CHART], { examples: [example] })).printed).toMatch(
    /==> Linting [^\n]*\n\[INFO\] Chart.yaml: icon is recommended\n\n1 chart\(s\) linted, 0 chart\(s\) failed\n$/,
  );
});

test('an installation prints how to call and to test the gateway', async () => {
  const args = ['install', 'prod', CHART, '--dry-run=client', '--namespace', 'gateways'];
  const { printed } = await helm(args, { examples: ['production'] });
  expect(printed).toContain('call https://prod-digest-gateway.gateways:443\n');
  expect(printed).toContain('keep their names and the volumes with their audit logs');
});

test('each listener has a Service of its own kind, and an installation prints how to call each', async () => {
  const specs = chart('several listeners').all('Service');
  expect(specs.slice(0, 2).map(({ spec }) => spec)).toMatchObject([
    { type: 'ClusterIP', ports: [{ port: 443 }] },
    { type: 'LoadBalancer', ports: [{ port: 80 }] },
  ]);
  const args = ['install', 'prod', CHART, '--dry-run=client', '--namespace', 'gateways'];
  const { printed } = await helm(args, VALUES['several listeners']);
  expect(printed).toContain(
    'call https://prod-digest-gateway.gateways:443\nApplications in the cluster call http://prod-digest-gateway-http-1.gateways:80\n',
  );
  expect(printed).not.toContain('warning');
});

test('a chart of a checkout says how to make the files that it lacks', async () => {
  const folder = await makeFolder();
  await cp(CHART, folder, { recursive: true });
  await rm(join(folder, 'files'), { recursive: true });
  const { status, printed } = await helm(['template', 'prod', folder], { examples: ['production'] });
  expect(status).not.toBe(0);
  expect(printed).toContain('the chart lacks files/alerts.yml: run npm run build:chart in the checkout');
});

describe('refused', () => {
  test.each<[string, ChartValues, string]>([
    ['no configuration', {}, "at '/config/deployments': minProperties"],
    ['no image', { further: { image: { repository: '' } } }, "at '/image/repository'"],
    ['an unknown value', { further: { replica: 2 } }, "additional properties 'replica' not allowed"],
    [
      'a loopback address',
      { further: { config: { listen: { address: '127.0.0.1' } } } },
      '/config/listen/address',
    ],
    [
      'a loopback address in a list',
      { further: { config: { listen: [{ port: 8080, address: '127.0.0.1' }] } } },
      '/config/listen/0/address',
    ],
    [
      'a listener of a list without a port',
      { further: { config: { listen: [{ address: '::' }] } } },
      "at '/config/listen/0': missing property 'port'",
    ],
    [
      'two listeners with one port',
      { further: { config: { listen: [{ port: 8080 }, { port: 8080 }] }, furtherServices: [{ port: 81 }] } },
      'config.listen: port 8080 is taken by another listener or by config.control: give each a port of its own',
    ],
    [
      'a listener without a Service',
      { further: { config: { listen: [{ port: 8080 }, { port: 8443 }] } } },
      'config.listen has 2 listeners and furtherServices 0 entries: list one for each listener after the first',
    ],
    ['a port of root', { further: { config: { listen: { port: 80 } } } }, "at '/config/listen/port'"],
    [
      'a token as a number',
      { further: { config: { control: { tokenSha256: 1 } } } },
      '/config/control/tokenSha256',
    ],
    [
      'a secret in the place of its name',
      { further: { secrets: { a: { password: 'b' } } } },
      "at '/secrets/a'",
    ],
    [
      'a file of a secret that is not mounted',
      { further: { config: { redis: { url: 'redis://redis', keyFile: '/run/secrets/redis/key' } } } },
      'config names files in /run/secrets/redis: add the Secret with them as secrets.redis',
    ],
    [
      'an audit log outside the volume',
      { further: { config: { audit: { directory: '/tmp/audit', keyFile: '/run/secrets/credentials/k' } } } },
      'config.audit.directory must be below the volume of the replica',
    ],
    [
      'keys of pseudonyms outside the volume',
      {
        further: {
          config: {
            audit: {
              directory: '/var/lib/digest-gateway/audit',
              keyFile: '/run/secrets/credentials/k',
              pseudonyms: { keysDirectory: '/tmp/keys' },
            },
          },
        },
      },
      'config.audit.pseudonyms.keysDirectory must be below the volume of the replica',
    ],
    [
      'one name for all replicas',
      {
        further: {
          config: {
            audit: {
              directory: '/var/lib/digest-gateway/audit',
              keyFile: '/run/secrets/credentials/k',
              replica: 'a',
            },
          },
        },
      },
      'config.audit.replica would be the same for all replicas',
    ],
    [
      'a drain that is no duration',
      { further: { config: { drain: { delay: '5 seconds' } } } },
      'config.drain: 5 seconds is not a duration, such as 500ms, 30s or 5m',
    ],
    [
      'an autoscaler without a target',
      { further: { autoscaling: { enabled: true, cpu: 0 } } },
      'autoscaling needs a target: autoscaling.cpu or autoscaling.requestsInFlight',
    ],
    [
      'an autoscaler without a number of replicas',
      { further: { autoscaling: { enabled: true, minReplicas: 3, maxReplicas: 2 } } },
      'autoscaling.minReplicas is more than autoscaling.maxReplicas',
    ],
    [
      'a policy for traffic from outside, to which a Service is closed',
      { further: { service: { externalTrafficPolicy: 'Local' } } },
      'externalTrafficPolicy is for a Service of the type LoadBalancer or NodePort',
    ],
    [
      'such a policy of a further Service',
      {
        further: {
          config: { listen: [{ port: 8080 }, { port: 8443 }] },
          furtherServices: [{ port: 443, externalTrafficPolicy: 'Local' }],
        },
      },
      'externalTrafficPolicy is for a Service of the type LoadBalancer or NodePort',
    ],
    [
      'a monitor without a token',
      { further: { podMonitor: { enabled: true } } },
      'podMonitor.token.secretName: the Secret with the token',
    ],
  ])('%s', async (name, values, message) => {
    const examples = name === 'no configuration' ? [] : ['minimal'];
    const { status, printed } = await helm(['template', 'prod', CHART], { examples, ...values });
    expect(status).toBe(1);
    expect(printed).toContain(message);
  });
});

describe('the check of schemas', () => {
  test.each([
    ['replicas', 'two', 'data/spec/replicas must be integer', 'not assignable to type'],
    ['replicaCount', 2, undefined, '\'"replicaCount"\' does not exist in type'],
  ])('sees a wrong %s', async (key, value, schema, type) => {
    const statefulSet = chart('minimal').the('StatefulSet');
    const wrong = { ...statefulSet, spec: { ...statefulSet.spec, [key]: value } };
    const issue = await schemaIssue(wrong);
    expect(issue?.replace('Error: ', '')).toBe(schema);
    expect(await typeIssues([wrong])).toContain(type);
  });
});
