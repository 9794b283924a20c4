import { describe, expect, test } from '@jest/globals';
import { parseTarget, Routes } from '../../src/gateway/routing.ts';

const routes = new Routes([
  {
    deployment: 'submissions',
    match: {
      pathPrefix: '/api/manuscripts/',
      host: 'submissions.internal',
      baseUrl: ['https://submissions.example.org'],
    },
  },
  { deployment: 'abstracts', match: { pathPrefix: '/api', baseUrl: ['https://abstracts.example.org:8443'] } },
  { deployment: 'reports', match: { host: 'reports.internal', baseUrl: ['https://reports.example.org'] } },
  { deployment: 'shared-v1', match: { pathPrefix: '/v1', baseUrl: ['https://shared.example.org'] } },
  { deployment: 'shared-v2', match: { pathPrefix: '/v2', baseUrl: ['https://shared.example.org'] } },
]);

function found(target: string, host = 'gateway.internal'): string {
  return routes.find(parseTarget(target, host));
}

describe('a path goes', () => {
  test.each([
    ['/api/manuscripts/v2', 'submissions'],
    ['/api/manuscripts/', 'submissions'],
    ['/api/manuscripts', 'abstracts'],
    ['/api/manuscriptsx/', 'abstracts'],
    ['/api', 'abstracts'],
    ['/api?x', 'abstracts'],
    ['/api/', 'abstracts'],
    ['/v1/x', 'shared-v1'],
  ])('from %s to %s: the longest prefix that ends where a segment does', (target, deployment) => {
    expect(found(target)).toBe(deployment);
  });
});

describe('a host goes', () => {
  test.each([
    ['reports.internal', 'reports'],
    ['reports.internal:8080', 'reports'],
    ['Reports.Internal', 'reports'],
    ['reports.internal.', 'reports'],
    ['reports.internal.:80', 'reports'],
    ['submissions.internal', 'submissions'],
  ])('from %s to %s before any prefix', (host, deployment) => {
    expect(found('/api/x', host)).toBe(deployment);
    expect(found(`http://${host}/api/x`, 'other')).toBe(deployment);
  });
});

describe('the name of an upstream in absolute form goes', () => {
  test.each([
    ['http://submissions.example.org/anything', 'submissions'],
    ['http://submissions.example.org', 'submissions'],
    ['https://submissions.example.org:443/api/x', 'submissions'],
    ['http://SUBMISSIONS.example.org:/', 'submissions'],
    ['http://abstracts.example.org:8443/', 'abstracts'],
    ['http://shared.example.org/v1/x', 'shared-v1'],
    ['https://shared.example.org/v2', 'shared-v2'],
    ['http://submissions.example.org./anything', 'submissions'],
  ])('from %s to %s', (target, deployment) => {
    expect(found(target)).toBe(deployment);
  });
});

describe('no deployment is there for', () => {
  test.each([
    ['/', 'gateway.internal'],
    ['/apis', 'gateway.internal'],
    ['/API/x', 'gateway.internal'],
    ['/v1%2Fx', 'gateway.internal'],
    ['http://unknown.example.org/api/x', 'reports.internal'],
    ['http://abstracts.example.org/api/x', 'gateway.internal'],
    ['http://submissions.example.org:8443/api/manuscripts/', 'gateway.internal'],
    ['http://shared.example.org/v3', 'gateway.internal'],
    ['http://submissions.example.org.evil.example/', 'gateway.internal'],
  ])('%s at %s', (target, host) => {
    expect(() => found(target, host)).toThrow(expect.objectContaining({ code: 'no-deployment' }));
  });
});
