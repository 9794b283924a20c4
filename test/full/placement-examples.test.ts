import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, test } from '@jest/globals';
import { parse, parseAllDocuments } from 'yaml';
import type { KeyPair } from '../../src/simulator/certificates.ts';
import { auditOptions, recordsIn, useFolders } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { gateway, runCommand } from '../support/program.ts';
import { repository } from '../support/repository.ts';
import { authors, type RunningScene, startScene } from '../support/scene.ts';
import { type ServerProcess, speaksTls, startServer } from '../support/server-process.ts';
import { needPackages } from '../support/system-packages.ts';
import { type ConfigMap, type KubernetesObject, schemaIssue, typeIssues } from './chart.ts';

const example = (name: string): Promise<string> =>
  readFile(join(repository, 'deploy/examples', name), 'utf8');

interface Named {
  readonly name: string;
}

/** The parts of the pod that the test looks at. */
interface SidecarPod {
  readonly initContainers: readonly [
    { livenessProbe: { exec: { command: readonly string[] } }; volumeMounts: readonly Named[] },
  ];
  readonly containers: readonly [{ env: readonly [{ value: string }] }];
  readonly volumes: readonly Named[];
}

const folder = useFolders();

/** The gateway of an example, with free ports and the simulator as its upstream. */
async function gatewayOf(name: string, directory: string): Promise<RunningScene> {
  const { listen, clients, deployments } = parse(await example(name));
  const { baseUrl: _, credential: __, ...settings } = deployments.submissions;
  const pair = await startScene({
    settings,
    top: { listen: { ...listen, port: 0 }, anonymous: false, clients },
    audit: auditOptions(directory),
  });
  return pair;
}

describe('nginx with client certificates', () => {
  interface Asked {
    readonly status: number | undefined;
    readonly body: string;
  }

  /** nginx with the files of the example; only the ports are others. */
  async function startNginx(gatewayPort: number): Promise<{
    get(pair?: KeyPair, headers?: Record<string, string>): Promise<Asked>;
    client(subject: string): Promise<KeyPair>;
  }> {
    const [own, clients] = [await createTestAuthority('CN=Servers'), await createTestAuthority('CN=Clients')];
    const server: ServerProcess = await startServer({
      async prepare({ folder: at, port }) {
        const config = (await example('nginx/nginx.conf'))
          .replace('listen 8443 ssl', `listen 127.0.0.1:${port} ssl`)
          .replace('127.0.0.1:8080', `127.0.0.1:${gatewayPort}`);
        const { cert, key } = await own.server();
        const files = { 'nginx.conf': config, 'keys.conf': await example('nginx/keys.conf') };
        const secrets = { 'server.crt': cert, 'server.key': key, 'clients-ca.crt': clients.ca };
        for (const [name, content] of Object.entries({ ...files, ...secrets }))
          await writeFile(join(at, name), content);
        return ['nginx', '-p', at, '-c', 'nginx.conf', '-e', 'stderr'];
      },
      answers: ({ port }) => speaksTls(port, own.ca),
    });
    closing.push(() => server.close());
    const { port } = server.place;
    return {
      client: (subject) => clients.client({ subject }),
      async get(pair, headers = {}) {
        const asked = request({
          port,
          path: authors,
          ca: own.ca,
          host: '127.0.0.1',
          headers,
          agent: false,
          ...pair,
        });
        const [response] = await once(asked.end(), 'response');
        return { status: response.statusCode, body: await text(response) };
      },
    };
  }

  test('lets the certificate decide who the client is, whatever headers it sends', async () => {
    const directory = await folder();
    const { gateway } = await gatewayOf('nginx/gateway.yaml', directory);
    const { get, client } = await startNginx(gateway.port);
    const reporting = await client('O=Example, CN=reporting');
    expect(await get(reporting, { 'x-forwarded-for': '192.0.2.1', 'x-api-key': 'forged' })).toEqual({
      status: 200,
      body: expect.stringContaining('<submissionId>DEMO-2026-0001<'),
    });
    const namesake = await client('O=Example, CN=Reporting');
    expect((await get(namesake)).status).toBe(401);
    const stranger = await client('O=Example, CN=stranger');
    const headers = {
      'x-api-key': 'demo-reporting-key',
      authorization: 'Basic cmVwb3J0aW5nOmRlbW8tcmVwb3J0aW5nLWtleQ==',
    };
    expect(await get(stranger, headers)).toEqual({
      status: 401,
      body: expect.stringContaining('client-unknown'),
    });
    expect((await get(undefined, headers)).status).toBe(400);
    await gateway.close();
    const accesses = (await recordsIn(directory)).filter(({ kind }) => kind === 'access');
    expect(accesses.map(({ client: id, address }) => [id, address])).toEqual([
      ['reporting', '127.0.0.1'],
      ['', '127.0.0.1'],
      ['', '127.0.0.1'],
    ]);
  });

  test('refuses what pages of other origins make a browser send with the certificate', async () => {
    const { gateway } = await gatewayOf('nginx/gateway.yaml', await folder());
    const { get, client } = await startNginx(gateway.port);
    const reporting = await client('O=Example, CN=reporting');
    const host = 'localhost:8443';
    const statusOf = async (headers: Record<string, string>) =>
      (await get(reporting, { host, ...headers })).status;
    for (const headers of [
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
      { 'sec-fetch-site': 'cross-site', origin: `https://${host}` },
      { origin: 'https://evil.example' },
      { origin: 'null' },
      { origin: `http://${host}` },
      { 'sec-fetch-site': 'same-origin', origin: 'https://localhost' },
    ]) {
      expect([headers, await statusOf(headers)]).toEqual([headers, 403]);
    }
    for (const headers of [
      {},
      { 'sec-fetch-site': 'none' },
      { 'sec-fetch-site': 'same-origin', origin: `https://${host}` },
    ]) {
      expect([headers, await statusOf(headers)]).toEqual([headers, 200]);
    }
  });
});

test.each(['nginx', 'http-proxy'])('the configuration for %s has no issue', async (name) => {
  const file = join(repository, 'deploy/examples', name, 'gateway.yaml');
  expect((await gateway(['check', '--no-secrets', '--config', file])).status).toBe(0);
});

describe('http_proxy', () => {
  test.each([
    ['curl', 'curl', (url: string) => `curl -s '${url}'`],
    [
      'requests of Python',
      'python3-requests',
      (url: string) =>
        `/usr/bin/python3 -c "import requests,sys; print(requests.get(sys.argv[1]).text)" '${url}'`,
    ],
  ])('%s reaches the upstream by its own URL', async (_name, packageName, command) => {
    needPackages(packageName);
    const { gateway, simulator } = await gatewayOf('http-proxy/gateway.yaml', await folder());
    const { host } = new URL(simulator.deployments.submissions.origin);
    const line = (user: string): string =>
      `no_proxy= http_proxy=http://${user}@127.0.0.1:${gateway.port} ${command(`http://${host}${authors}`)}`;
    expect(await runCommand('sh', ['-c', line('reporting:demo-reporting-key')])).toEqual({
      status: 0,
      printed: expect.stringContaining('<submissionId>DEMO-2026-0001<'),
    });
    expect((await runCommand('sh', ['-c', line('reporting:wrong')])).printed).toContain('client-unknown');
  });
});

describe('a sidecar', () => {
  test('is made of objects that fit their schemas, and of a configuration without issues', async () => {
    const documents = parseAllDocuments(await example('sidecar/pod.yaml'));
    const objects = documents.map((document) => document.toJS() as KubernetesObject);
    for (const object of objects) expect(await schemaIssue(object)).toBeUndefined();
    expect(await typeIssues(objects)).toBe('');
    const [map, workload] = objects as unknown as [ConfigMap, { spec: { template: { spec: SidecarPod } } }];
    const config = parseConfig(map.data['gateway.yaml'] ?? '', 'gateway.yaml');
    const { initContainers, containers, volumes } = workload.spec.template.spec;
    const [sidecar] = initContainers;
    const probe = sidecar.livenessProbe.exec.command.at(-1);
    expect(probe).toContain(`http://${config.control.address}:${config.control.port}/livez`);
    const urls = config.listen.map(({ address, port }) => `http://${address}:${port}`);
    expect(urls).toEqual([containers[0].env[0].value]);
    const mounted = new Set(sidecar.volumeMounts.map(({ name }) => name));
    expect(new Set(volumes.map(({ name }) => name))).toEqual(mounted);
  });
});
