import { describe, expect, test } from '@jest/globals';
import { parseConfig } from '../../src/config/load.ts';
import { type Case, expectIssues, served } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS } from './texts.ts';

const withMetrics = (section: string) => `metrics: ${section}\n${CREDENTIALS}\n${DEPLOYMENTS}`;
const metricsOf = (section: string) => parseConfig(served(withMetrics(section)), '/srv/c.yaml').metrics;

const ADDRESS =
  'the http:// or https:// address of OTLP metrics, such as https://collector.internal:4318/v1/metrics';
const issues: Case[] = [
  ['without an endpoint', '{ otlp: {} }', [`1:12 metrics.otlp.endpoint: is missing: give ${ADDRESS}`]],
  [
    'with an endpoint that has a password, a field that the gateway sets itself, and no interval',
    '{ otlp: { endpoint: "https://u:p@c/m", headers: { Host: { env: A } }, interval: 0s, instance: "a b" } }',
    [
      `1:30 metrics.otlp.endpoint: must be ${ADDRESS}`,
      '1:60 metrics.otlp.headers.Host: is not the name of a header field that can be set here',
      '1:90 metrics.otlp.interval: 0s is out of range: write a duration from 1ms to 24d',
      '1:104 metrics.otlp.instance: must be letters, digits, "-", "_", "." and ":" only, 255 at most',
    ],
  ],
  [
    'with a certificate without its key',
    '{ otlp: { endpoint: "https://c/m", tls: { certFile: c } } }',
    ['1:45 metrics.otlp.tls.keyFile: is missing: certFile needs it'],
  ],
];

describe('metrics', () => {
  test('are sent nowhere by default', () => {
    expect(parseConfig(served(`${CREDENTIALS}\n${DEPLOYMENTS}`), 'c.yaml').metrics).toEqual({});
  });

  test('are sent every minute by default', () => {
    expect(metricsOf('{ otlp: { endpoint: "https://c:4318/v1/metrics" } }')).toEqual({
      otlp: {
        endpoint: 'https://c:4318/v1/metrics',
        headers: {},
        tls: {},
        interval: 60_000,
        timeout: 10_000,
      },
    });
  });

  test('are sent as the section says', () => {
    const section =
      '{ otlp: { endpoint: "http://c/m", headers: { x-key: { env: K } }, tls: { caFile: ca.pem }, interval: 15s, timeout: 2s, instance: "gw-1:8081" } }';
    expect(metricsOf(section)).toEqual({
      otlp: {
        endpoint: 'http://c/m',
        headers: { 'x-key': { env: 'K' } },
        tls: { caFile: '/srv/ca.pem' },
        interval: 15_000,
        timeout: 2_000,
        instance: 'gw-1:8081',
      },
    });
  });

  test.each(issues)('are refused %s', (_title, section, lines) => expectIssues(withMetrics(section), lines));
});
