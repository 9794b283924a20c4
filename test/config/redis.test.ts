import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { type Case, expectIssues, served } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS } from './texts.ts';

const withRedis = (section: string) => `${CREDENTIALS}\n${DEPLOYMENTS}\nredis: ${section}`;
const redisOf = (section: string) => parseConfig(served(withRedis(section)), '/srv/c.yaml').redis;

const defaults = { keyPrefix: 'digest-gateway', timeout: 100 };
const at = (host: string, port: number) => ({ host, port });
const single = (host: string, port: number, database = 0) => ({
  kind: 'single',
  address: at(host, port),
  database,
});

describe('redis', () => {
  test.each([
    ['redis://a', { ...defaults, servers: single('a', 6379), tls: undefined }],
    ['redis://10.0.0.1:7000/', { ...defaults, servers: single('10.0.0.1', 7000), tls: undefined }],
    [
      'rediss://redis-1.internal:7000/15',
      { ...defaults, servers: single('redis-1.internal', 7000, 15), tls: {} },
    ],
    ['redis://[::1]:7000/2', { ...defaults, servers: single('::1', 7000, 2), tls: undefined }],
    ['redis://[::1]', { ...defaults, servers: single('::1', 6379), tls: undefined }],
  ])('is one server: %s', (url, expected) => {
    expect(redisOf(`{ url: "${url}" }`)).toEqual(expected);
  });

  test('is found through Sentinels', () => {
    expect(redisOf('{ sentinels: ["a:26379", "[::1]:1"], name: mymaster, tls: {} }')).toEqual({
      ...defaults,
      servers: { kind: 'sentinel', sentinels: [at('a', 26379), at('::1', 1)], name: 'mymaster' },
      tls: {},
    });
  });

  test('has a user and a password for the Sentinels, beside those for Redis', () => {
    const section =
      '{ sentinels: ["a:1"], name: m, sentinelUsername: s, sentinelPassword: { env: S }, password: { env: P } }';
    expect(redisOf(section)).toMatchObject({
      sentinelUsername: 's',
      sentinelPassword: { env: 'S' },
      password: { env: 'P' },
    });
  });

  test('is a Cluster, with user, password, prefix and authority', () => {
    const section =
      '{ cluster: ["a:1", "b:2"], username: u, password: { value: p }, keyPrefix: "a:b", timeout: 1s, keyFile: keys, tls: { caFile: ca.pem } }';
    expect(redisOf(section)).toEqual({
      keyPrefix: 'a:b',
      timeout: 1_000,
      keyFile: '/srv/keys',
      servers: { kind: 'cluster', nodes: [at('a', 1), at('b', 2)] },
      username: 'u',
      password: { value: expect.any(Secret) },
      tls: { caFile: '/srv/ca.pem' },
    });
  });
});

const URL_SHAPE =
  'redis.url: must be redis://host:port, or rediss://host:port for TLS, with /number after it for another database than 0';
const ADDRESS = 'must be a host and its port, such as redis-1.internal:6379';
const ADDRESSES = 'must be a list of at least one of a host and its port, such as redis-1.internal:6379';
const ONE_KIND = 'give exactly one of url, sentinels and cluster';

const issues: Case[] = [
  ['without content', '{}', [`3:8 redis: names no server: ${ONE_KIND}`]],
  [
    'with two kinds',
    '{ url: "redis://a", cluster: ["a:1"] }',
    [`3:8 redis: names servers of several kinds: ${ONE_KIND}`],
  ],
  ...['http://a', 'redis://', 'redis://a:0', 'redis://a:65536', 'redis://a/x', 'redis://a?b', 'a:6379'].map(
    (url): Case => [`with the url ${url}`, `{ url: "${url}" }`, [`3:15 ${URL_SHAPE}`]],
  ),
  [
    'with a password in the url',
    '{ url: "rediss://:p@ss/w@a:6379" }',
    ['3:15 redis.url: contains a user or a password: write them under username and password instead'],
  ],
  [
    'with TLS that the url does not have',
    '{ url: "redis://a", tls: {} }',
    ['3:33 redis.tls: needs a url with TLS: write rediss:// there, or leave tls out'],
  ],
  ['with Sentinels without one', '{ sentinels: [], name: m }', [`3:21 redis.sentinels: ${ADDRESSES}`]],
  [
    'with a Sentinel without port',
    '{ sentinels: ["a:1", "b"], name: m }',
    [`3:29 redis.sentinels[1]: ${ADDRESS}`],
  ],
  [
    'with Sentinels without name',
    '{ sentinels: ["a:1"] }',
    ['3:1 redis.name: is missing: give the name that the Sentinels have for the master, such as mymaster'],
  ],
  [
    'with a name without Sentinels',
    '{ cluster: ["a:1"], name: m }',
    ['3:34 redis.name: is for sentinels only: leave it out, or give sentinels'],
  ],
  ['with a node that is no text', '{ cluster: [6379] }', [`3:20 redis.cluster[0]: ${ADDRESS}`]],
  [
    'with a user without password',
    '{ url: "redis://a", username: u }',
    ['3:1 redis.password: is missing: a user needs one; give its source'],
  ],
  [
    'with a user for the Sentinels without password',
    '{ sentinels: ["a:1"], name: m, sentinelUsername: s }',
    ['3:1 redis.sentinelPassword: is missing: a user needs one; give its source'],
  ],
  [
    'with a password for Sentinels without them',
    '{ url: "redis://a", sentinelUsername: s, sentinelPassword: { env: S } }',
    ['sentinelUsername', 'sentinelPassword'].map(
      (key, at) => `3:${[46, 67][at]} redis.${key}: is for sentinels only: leave it out, or give sentinels`,
    ),
  ],
  [
    'with a password without source',
    '{ url: "redis://a", password: p }',
    [
      '3:38 redis.password: must be a mapping: { env: NAME }, { file: NAME }, { sealed: NAME } or { value: TEXT }',
    ],
  ],
  [
    'with a prefix that would change what belongs together in a Cluster',
    '{ url: "redis://a", keyPrefix: "a{b}" }',
    ['3:39 redis.keyPrefix: must be letters, digits, "-", "_", "." and ":" only, 64 at most'],
  ],
  [
    'with a key that does not exist',
    '{ url: "redis://a", prefix: b }',
    ['3:28 redis: a key here does not exist: the nearest key is keyPrefix'],
  ],
];

describe('redis', () => {
  test.each(issues)('reports a section %s', (_title, section, lines) => {
    expectIssues(withRedis(section), lines);
  });
});
