import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { parseAllDocuments } from 'yaml';
import { parseConfig } from '../../src/config/load.ts';
import { defaultDrainSeconds } from '../support/drain-time.ts';
import { repository } from '../support/repository.ts';

const read = (name: string): Promise<string> => readFile(join(repository, name), 'utf8');

const documents = parseAllDocuments(await read('deploy/kubernetes/digest-gateway.yaml'));
const [configMap, workload, service, budget] = documents.map((document) => document.toJS());
const pod = workload.spec.template;
const [container] = pod.spec.containers;

test('is YAML with the kinds that it promises', () => {
  expect(documents.flatMap(({ errors }) => errors)).toEqual([]);
  expect([configMap, workload, service, budget].map(({ kind }) => kind)).toEqual([
    'ConfigMap',
    'Deployment',
    'Service',
    'PodDisruptionBudget',
  ]);
});

test('has a configuration that the gateway takes, on the ports that are named', () => {
  const { listen, control, credentials } = parseConfig(configMap.data['gateway.yaml'], 'gateway.yaml');
  const ports = container.ports.map(({ name, containerPort }: { name: string; containerPort: number }) => [
    name,
    containerPort,
  ]);
  expect(ports).toEqual([
    ['http', listen.port],
    ['control', control.port],
  ]);
  const [, secrets] = container.volumeMounts;
  const { password } = credentials['journal-a'] as { password: { file: string } };
  expect(password.file.startsWith(secrets.mountPath)).toBe(true);
});

test('selects its own pods, probes its own ports, and mounts its own volumes', async () => {
  const [monitor] = parseAllDocuments(await read('deploy/kubernetes/pod-monitor.yaml')).map((each) =>
    each.toJS(),
  );
  const { labels } = pod.metadata;
  expect(workload.spec.selector.matchLabels).toEqual(labels);
  expect(service.spec.selector).toEqual(labels);
  expect(budget.spec.selector.matchLabels).toEqual(labels);
  expect(monitor.spec.selector.matchLabels).toEqual(labels);
  expect(labels[monitor.spec.jobLabel]).toBe('digest-gateway');
  for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
    expect(container[probe].httpGet.port).toBe('control');
  }
  const names = (list: { name: string }[]): string[] => list.map(({ name }) => name);
  expect(names(container.volumeMounts)).toEqual(names(pod.spec.volumes));
});

test('leaves longer for a drain than a drain takes, and nothing to root', () => {
  expect(pod.spec.terminationGracePeriodSeconds).toBeGreaterThan(defaultDrainSeconds());
  expect(pod.spec.securityContext).toMatchObject({ runAsNonRoot: true, fsGroup: 1000 });
  expect(container.securityContext).toMatchObject({
    readOnlyRootFilesystem: true,
    allowPrivilegeEscalation: false,
  });
  expect(pod.spec.volumes[1].secret.defaultMode).toBe(0o400);
});
