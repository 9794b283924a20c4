import { describe, expect, test } from '@jest/globals';
import { parseConfig } from '../support/parsed-config.ts';
import { type Case, expectIssues, served } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS } from './texts.ts';

const withAudit = (section: string) => `${CREDENTIALS}\n${DEPLOYMENTS}\naudit: ${section}`;

describe('audit', () => {
  test('has every default', () => {
    expect(parseConfig(served(withAudit('{ directory: a, keyFile: k }')), '/srv/c.yaml').audit).toEqual({
      directory: '/srv/a',
      keyFile: '/srv/k',
      durability: 'write',
      onFailure: 'refuse',
      parameters: [],
      segment: { size: 2 ** 28, age: 86_400_000, keep: 365 * 86_400_000, keepUnsent: 10 * 2 ** 30 },
    });
  });

  test('keeps what is written', () => {
    const section =
      '{ directory: /a, keyFile: /k, replica: r-1, durability: fsync, onFailure: serve, parameters: [ids], pseudonyms: { keysDirectory: /p, fields: [address, parameters.ids], per: client }, segment: { size: 1MiB, age: 12h, keep: 2d, keepUnsent: 1GiB } }';
    expect(parseConfig(served(withAudit(section)), '/srv/c.yaml').audit).toEqual({
      directory: '/a',
      keyFile: '/k',
      replica: 'r-1',
      durability: 'fsync',
      onFailure: 'serve',
      parameters: ['ids'],
      pseudonyms: { keysDirectory: '/p', fields: ['address', 'parameters.ids'], per: 'client' },
      segment: { size: 2 ** 20, age: 43_200_000, keep: 172_800_000, keepUnsent: 2 ** 30 },
    });
  });
});

const with2 = (more: string) => `{ directory: a, keyFile: k, ${more} }`;
const issues: Case[] = [
  [
    'without what it needs',
    '{}',
    [
      '3:1 audit.directory: is missing: give the name of a file',
      '3:1 audit.keyFile: is missing: give the name of a file',
    ],
  ],
  [
    'with a durability that does not exist',
    with2('durability: disk'),
    ['3:48 audit.durability: must be one of write, fsync, async'],
  ],
  [
    'with another way to fail',
    with2('onFailure: stop'),
    ['3:47 audit.onFailure: must be one of refuse, serve'],
  ],
  [
    'with a replica that is no name of a folder',
    with2('replica: ../a'),
    [
      '3:45 audit.replica: must be letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first',
    ],
  ],
  [
    'with parameters that are no list',
    with2('parameters: ids'),
    ['3:48 audit.parameters: must be a list of names of query parameters'],
  ],
  [
    'with a pseudonym for what has none',
    with2('pseudonyms: { keysDirectory: p, fields: [path] }'),
    ['3:77 audit.pseudonyms.fields[0]: must be address, or parameters.NAME'],
  ],
  [
    'with pseudonyms of nothing',
    with2('pseudonyms: { keysDirectory: p, fields: [] }'),
    [
      '3:76 audit.pseudonyms.fields: must be a list of address and parameters.NAME, such as parameters.ids, with one at least',
    ],
  ],
  [
    'with a pseudonym of a parameter that is recorded by name only',
    with2('parameters: [ids], pseudonyms: { keysDirectory: p, fields: [parameters.ids, parameters.token] }'),
    [
      '3:112 audit.pseudonyms.fields[1]: is a parameter that is recorded by its name only: add token to audit.parameters, or leave it out here',
    ],
  ],
  [
    'with keys of pseudonyms in the log',
    with2('pseudonyms: { keysDirectory: a/keys }'),
    [
      '3:65 audit.pseudonyms.keysDirectory: is in audit.directory, so copies of the log would have the keys: name a directory elsewhere',
    ],
  ],
  [
    'with a period of nothing',
    with2('segment: { keep: 0d }'),
    ['3:53 audit.segment.keep: 0d is out of range: write a period of 1ms or more'],
  ],
  [
    'with a key that does not exist',
    with2('directoy: x'),
    ['3:36 audit.directoy: does not exist: the nearest key is directory'],
  ],
  [
    'with a stream, and no Redis for it',
    with2('sinks: [{ name: a, redis: {} }]'),
    ['3:62 audit.sinks[0].redis: needs a Redis: give redis at the top, or leave this sink out'],
  ],
  [
    'with a stream that keeps next to nothing',
    with2('sinks: [{ name: a, redis: { maxLength: 3 } }]'),
    [
      '3:62 audit.sinks[0].redis: needs a Redis: give redis at the top, or leave this sink out',
      '3:75 audit.sinks[0].redis.maxLength: must be a whole number from 1000 to 1000000000, not 3',
    ],
  ],
  [
    'with two streams',
    with2('sinks: [{ name: a, redis: {} }, { name: b, redis: {} }]'),
    [
      '3:62 audit.sinks[0].redis: needs a Redis: give redis at the top, or leave this sink out',
      '3:86 audit.sinks[1].redis: is a second one: there is one stream, of which this would send every record again',
      '3:86 audit.sinks[1].redis: needs a Redis: give redis at the top, or leave this sink out',
    ],
  ],
  [
    'with a sink without a receiver',
    with2('sinks: [{ name: a }]'),
    ['3:44 audit.sinks[0]: names no receiver: give exactly one of redis, syslog, s3, otlp'],
  ],
  [
    'with sinks of the same name',
    with2('sinks: [{ name: a, syslog: { host: h } }, { name: a, syslog: { host: h } }]'),
    ['3:86 audit.sinks[1].name: is that of another sink, too: give each its own'],
  ],
  [
    'with a sink that is named as the files are in metrics',
    with2('sinks: [{ name: file, syslog: { host: h } }]'),
    [
      '3:52 audit.sinks[0].name: must be letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first; not file, witness or timestamps',
    ],
  ],
  [
    'with a sink without a certificate for its key',
    with2('sinks: [{ name: a, syslog: { host: h, tls: { keyFile: k } } }]'),
    ['3:74 audit.sinks[0].syslog.tls.certFile: is missing: keyFile needs it'],
  ],
  [
    'with a sink without a key for its certificate',
    with2('sinks: [{ name: a, otlp: { endpoint: "https://c/v1/logs", tls: { certFile: c } } }]'),
    ['3:94 audit.sinks[0].otlp.tls.keyFile: is missing: certFile needs it'],
  ],
  [
    'with a bucket that does not say whether it locks',
    with2(
      'sinks: [{ name: a, s3: { bucket: abc, region: r, accessKeyId: { env: A }, secretAccessKey: { env: B } } }]',
    ),
    [
      '3:55 audit.sinks[0].s3.lock: is missing: give a mapping of keys to values, or false for objects without a lock',
    ],
  ],
  [
    'with a lock that is not complete',
    with2(
      'sinks: [{ name: a, s3: { bucket: abc, region: r, accessKeyId: { env: A }, secretAccessKey: { env: B }, lock: { mod: compliance, keep: 365 } } }]',
    ),
    [
      '3:139 audit.sinks[0].s3.lock.mode: is missing: give one of governance, compliance',
      '3:147 audit.sinks[0].s3.lock.mod: does not exist: the nearest key is mode',
      '3:170 audit.sinks[0].s3.lock.keep: "365" is not a duration: write a whole number and its unit, such as 500ms, 30s, 5m, 1h or 1d',
    ],
  ],
  [
    'with an endpoint that has a password, and a header field that the sink sets itself',
    with2(
      'sinks: [{ name: a, otlp: { endpoint: "https://u:p@c/v1/logs", headers: { Content-Type: { env: A } } } }]',
    ),
    [
      '3:73 audit.sinks[0].otlp.endpoint: must be the http:// or https:// address of OTLP logs, such as https://collector.internal:4318/v1/logs',
      '3:109 audit.sinks[0].otlp.headers.Content-Type: is not the name of a header field that can be set here',
    ],
  ],
  [
    'with a receiver that does not exist',
    with2('sinks: [{ name: a, kafka: {} }]'),
    [
      '3:44 audit.sinks[0]: names no receiver: give exactly one of redis, syslog, s3, otlp',
      '3:55 audit.sinks[0].kafka: does not exist: there are name, timeout, redis, syslog, s3, otlp',
    ],
  ],
];

test('a stream keeps a million records by default', () => {
  const redis = 'redis: { url: "redis://r:6379" }';
  const section = with2('sinks: [{ name: stream, redis: {} }]');
  const { audit } = parseConfig(served(`${redis}\n${withAudit(section)}`), '/srv/c.yaml');
  expect(audit?.sinks).toEqual([{ name: 'stream', redis: { maxLength: 1_000_000 } }]);
});

test('a syslog sink uses TLS on its port by default', () => {
  const section = with2('sinks: [{ name: siem, syslog: { host: h } }]');
  expect(parseConfig(served(withAudit(section)), '/srv/c.yaml').audit?.sinks).toEqual([
    { name: 'siem', syslog: { host: 'h', port: 6514, tls: {}, facility: 13, enterprise: 32_473 } },
  ]);
});

describe('audit', () => {
  test.each(issues)('reports a section %s', (_title, section, lines) => {
    expectIssues(withAudit(section), lines);
  });
});
