import { describe, expect, test } from '@jest/globals';
import { Validator } from '@seriousme/openapi-schema-validator';
import { loadConfig } from '../../src/config/load.ts';
import { describeApi, type OfferedDeployment } from '../../src/control/openapi.ts';
import { compileRules, type DeploymentSettings } from '../../src/policy/rules.ts';

function described(deployments: readonly OfferedDeployment[]) {
  const listen = [
    { address: '127.0.0.1', port: 8080, isSecure: false },
    { address: 'gateway.internal', port: 8443, isSecure: true },
  ];
  return describeApi({ version: '1.2.3', listen, deployments });
}

async function offered(file: string): Promise<OfferedDeployment[]> {
  const { deployments } = await loadConfig(file);
  return Object.entries(deployments).map(([name, settings]) => ({
    rules: compileRules(name, settings, deployments),
    host: undefined,
  }));
}

async function faults(description: Record<string, unknown>) {
  // It takes its input apart; the description has parts that several places share.
  const { valid, errors } = await new Validator().validate(structuredClone(description));
  return valid ? [] : (errors ?? ['no reason given']);
}

const plain: DeploymentSettings = {
  baseUrl: ['https://reports.example.org'],
  match: { host: 'reports.internal' },
  credential: 'a',
  siteParameter: 'site',
  sites: { x: { credential: 'a' }, 'y z': { credential: 'a' } },
  injectSite: true,
  operations: {
    report: { method: 'GET', path: '/r/{year}/{id}', parameters: { 'q.x': 'text?' } },
    remove: { method: 'DELETE', path: '/r/{year}/{id}', parameters: {} },
  },
  unlistedOperations: 'deny',
};
const hosted = { rules: compileRules('reports', plain, { reports: plain }), host: 'reports.internal' };

describe('the description of the API', () => {
  test.each(['config/example.yaml', 'config/demo.yaml', 'config/minimal.yaml'])(
    'of %s is OpenAPI 3.1 as the validator knows it',
    async (file) => expect(await faults(described(await offered(file)))).toEqual([]),
  );

  test('of templates, hosts and sites is, too', async () => {
    expect(await faults(described([hosted]))).toEqual([]);
  });

  test('would not be with a fault', async () => {
    expect(await faults({ ...described([hosted]), paths: { 'no-slash': {} } })).not.toEqual([]);
  });

  test('has both operations of the example, with their parameters', async () => {
    const { paths } = described(await offered('config/example.yaml')) as never as {
      paths: Record<string, { get: { operationId: string; parameters: Record<string, unknown>[] } }>;
    };
    const authors = paths['/api/manuscripts/v2/submissions/full/contributors/authors/submissionids']?.get;
    const abstracts = paths['/api/abstracts/v3/abstracts/full/abstractsbyid']?.get;
    expect([authors?.operationId, abstracts?.operationId]).toEqual([
      'submissions.authors-by-submission-id',
      'abstracts.abstracts-by-id',
    ]);
    expect(authors?.parameters).toMatchObject([
      { name: 'ids', in: 'query', required: true, schema: { pattern: "^'[^']+'(,'[^']+')*$" } },
      { name: 'site_name', in: 'query', required: false, schema: { enum: ['journal-a'] } },
      { name: 'external_id', in: 'query', required: false, schema: { pattern: '^[0-9]+$' } },
    ]);
  });

  test('has the server of each operation, where deployments share a path', async () => {
    const settings: DeploymentSettings = {
      ...plain,
      match: { pathPrefix: '/' },
      operations: { create: { method: 'POST', path: '/r/{year}/{id}', parameters: {} } },
    };
    const byPath = { rules: compileRules('by-path', settings, { 'by-path': settings }), host: undefined };
    for (const deployments of [
      [hosted, byPath],
      [byPath, hosted],
    ]) {
      const description = described(deployments);
      expect(await faults(description)).toEqual([]);
      const item = (description as never as { paths: Record<string, Record<string, object>> }).paths[
        '/r/{year}/{id}'
      ];
      const withServers = Object.entries(item ?? {}).filter(([, operation]) => 'servers' in operation);
      expect(withServers.map(([method]) => method).sort()).toEqual(['delete', 'get']);
    }
  });

  test('has URLs of IPv6 listeners', () => {
    const listen = [{ address: '::1', port: 8080, isSecure: false }];
    const { servers } = describeApi({ version: '1.2.3', listen, deployments: [] });
    expect(servers).toMatchObject([{ variables: { host: { default: '[::1]' } } }]);
  });

  test('names every problem with its status, and where to send requests', () => {
    const { paths, components, servers } = described([hosted]) as never as {
      paths: Record<
        string,
        Record<string, { parameters: unknown; responses: Record<string, unknown>; servers: unknown }>
      >;
      components: { responses: Record<string, { description: string }> };
      servers: unknown;
    };
    expect(servers).toEqual([
      {
        url: 'http://{host}:{port}',
        variables: { host: { default: '127.0.0.1' }, port: { default: '8080' } },
      },
      {
        url: 'https://{host}:{port}',
        variables: { host: { default: 'gateway.internal' }, port: { default: '8443' } },
      },
    ]);
    const item = paths['/r/{year}/{id}'];
    expect(item?.['get']?.servers).toMatchObject([
      { variables: { host: { default: 'reports.internal' }, port: { default: '8080' } } },
      { variables: { host: { default: 'reports.internal' }, port: { default: '8443' } } },
    ]);
    expect(item?.['delete']?.parameters).toMatchObject([
      { name: 'year', in: 'path', required: true },
      { name: 'id', in: 'path', required: true },
      { name: 'site', in: 'query', required: false, schema: { enum: ['x', 'y z'] } },
    ]);
    expect(item?.['get']?.responses).toMatchObject({
      '403': { $ref: '#/components/responses/Problem403' },
      default: { description: 'The response of the upstream, unchanged.' },
    });
    expect(components.responses['Problem403']?.description).toBe(
      '`client-forbidden`: Client forbidden; `site-unknown`: Site unknown; `operation-unlisted`: Operation unlisted; `cross-site`: Cross-site request.',
    );
  });
});
