import { describe, expect, test } from '@jest/globals';
import { type Case, expectIssues, issueLines } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS, withDeployment, withMore } from './texts.ts';

const RIGHT = `${CREDENTIALS}\n${DEPLOYMENTS}`;
const LISTEN_ADDRESS =
  'listen.address: must be an IP address to listen on, such as 127.0.0.1 or ::1, or localhost, or unix: and the absolute path of a socket, of at most 103 bytes, such as unix:/run/digest-gateway/data.sock';
const MATCH = 'match: { pathPrefix: /a/ }';
const ORIGIN =
  'deployments.d.baseUrl: must be an origin with nothing after it, such as https://submissions.example.org or https://submissions.example.org:8443; or a list of them';
const PREFIX =
  'deployments.d.match.pathPrefix: must be a path that starts with / and has no query, such as /api/manuscripts/';
const HOST =
  'deployments.d.match.host: must be a host name without scheme and port, such as submissions.gateway.internal';
const DURATION = 'is not a duration: write a whole number and its unit, such as 500ms, 30s, 5m, 1h or 1d';

const withBaseUrl = (baseUrl: string) => withDeployment(`baseUrl: ${baseUrl}`, MATCH, 'credential: a');
const withMatch = (match: string) =>
  withDeployment('baseUrl: https://a.example', `match: ${match}`, 'credential: a');

const listeners: Case[] = [
  [
    'a level of the log that does not exist',
    `${RIGHT}\nlog: { level: verbose }`,
    ['3:15 log.level: must be one of debug, info, warn, error'],
  ],
  [
    'lines of requests as text',
    `${RIGHT}\nlog: { requests: all }`,
    ['3:18 log.requests: must be true or false'],
  ],
  [
    'traces to forward as text',
    withMore('forwardTrace: all'),
    ['7:19 deployments.d.forwardTrace: must be true or false'],
  ],
  [
    'fields, types and names that no restricted client may send',
    withMore('restricted: { fields: [x_a, X-Original-URL, a], bodyTypes: [json], parameterNames: ["a[b"] }'),
    [
      '7:28 deployments.d.restricted.fields[0]: must be the name of a header field: letters, digits and "-" only, and none that names another method, path or host',
      '7:33 deployments.d.restricted.fields[1]: must be the name of a header field: letters, digits and "-" only, and none that names another method, path or host',
      '7:65 deployments.d.restricted.bodyTypes[0]: must be a content type without parameters, such as text/plain',
      '7:89 deployments.d.restricted.parameterNames[0]: must be the name of a parameter, in which brackets come in pairs, such as page[size]',
    ],
  ],
  [
    'a delay without unit, and no time to drain',
    `${RIGHT}\ndrain: { delay: 5, timeout: 0s }`,
    [
      `3:17 drain.delay: "5" ${DURATION}`,
      '3:29 drain.timeout: 0s is out of range: write a duration from 1ms to 24d',
    ],
  ],
  [
    'a delay that no timer measures',
    `${RIGHT}\ndrain: { delay: 30d }`,
    ['3:17 drain.delay: 30d is out of range: write a duration from 0s to 24d'],
  ],
  [
    'a port as text',
    `${RIGHT}\nlisten: { port: "80" }`,
    ['3:17 listen.port: must be a whole number from 0 to 65535'],
  ],
  [
    'a port too high',
    `${RIGHT}\ncontrol: { port: 65536 }`,
    ['3:18 control.port: must be a whole number from 0 to 65535, not 65536'],
  ],
  [
    'a fraction of a port',
    `${RIGHT}\nlisten: { port: 1.5 }`,
    ['3:17 listen.port: must be a whole number from 0 to 65535, not 1.5'],
  ],
  ['a host name to listen on', `${RIGHT}\nlisten: { address: example.org }`, [`3:20 ${LISTEN_ADDRESS}`]],
  [
    'a UNIX socket whose path is not whole',
    `${RIGHT}\nlisten: { address: unix:data.sock }`,
    [`3:20 ${LISTEN_ADDRESS}`],
  ],
  [
    'a UNIX socket whose path is too long for the system',
    `${RIGHT}\nlisten: { address: unix:/${'a'.repeat(103)} }`,
    [`3:20 ${LISTEN_ADDRESS}`],
  ],
  [
    'a mode without quotes',
    `${RIGHT}\nlisten: { socketMode: 0660 }`,
    ['3:23 listen.socketMode: must be permissions of a file in octal and quotes, such as "0660"'],
  ],
  [
    'an empty list of listeners',
    `${RIGHT}\nlisten: []`,
    ['3:9 listen: must be a mapping of keys to values, or a list of at least one such mapping'],
  ],
  [
    'a section without content',
    `listen:\n${RIGHT}`,
    ['1:1 listen: is empty: give a mapping of keys to values, or a list of at least one such mapping'],
  ],
  ['YAML 1.1 for true', `${RIGHT}\nanonymous: yes`, ['3:12 anonymous: must be true or false']],
  [
    'a token instead of its hash',
    `${RIGHT}\ncontrol: { tokenSha256: hunter2 }`,
    ['3:25 control.tokenSha256: must be the SHA-256 of the token, 64 hex digits'],
  ],
  ...[
    'javascript:alert(1)//{traceId}',
    'https://traces.example.org/',
    'https://{traceId}.example.org/',
    'https://user:secret@traces.example.org/{traceId}',
    'https://traces.example.org/{traceId}/{password}',
    'traces.example.org/{traceId}',
  ].map(
    (url): Case => [
      `${url} as the address of a trace`,
      `${RIGHT}\ncontrol: { traceUrl: "${url}" }`,
      [
        '3:22 control.traceUrl: must be an http:// or https:// URL with {traceId} behind its host; {requestId} and {time} are replaced, too, and any other brace is written %7B or %7D',
      ],
    ],
  ),
  [
    'the address of a trace',
    `${RIGHT}\ncontrol: { traceUrl: "https://traces.example.org/{traceId}?at={time}&r={requestId}" }`,
    [],
  ],
];

const deployments: Case[] = [
  [
    'an empty file',
    '',
    ['1:1 deployments: is missing: give a mapping of at least one name to its upstream service'],
  ],
  ['a list as the whole', '- a', ['1:1 (file): must be a mapping of keys to values']],
  ['a word as the whole', 'hello', ['1:1 (file): must be a mapping of keys to values']],
  [
    'deployments without one',
    'deployments: {}',
    ['1:14 deployments: has no deployment: describe at least one upstream service'],
  ],
  [
    'a deployment that says nothing',
    `${CREDENTIALS}\ndeployments:\n  d: {}`,
    [
      '3:3 deployments.d.baseUrl: is missing: give an origin with nothing after it, such as https://submissions.example.org or https://submissions.example.org:8443; or a list of them',
      '3:3 deployments.d.match: is missing: give a mapping of keys to values',
      '3:3 deployments.d.credential: is missing: give credential, or sites that each name one',
    ],
  ],
  ['a path after the origin', withBaseUrl('https://a.example/api'), [`4:14 ${ORIGIN}`]],
  ['a slash after the origin', withBaseUrl('https://a.example/'), [`4:14 ${ORIGIN}`]],
  ['a query after the origin', withBaseUrl('https://a.example?x'), [`4:14 ${ORIGIN}`]],
  ['user info in the origin', withBaseUrl('https://user:hunter2@a.example'), [`4:14 ${ORIGIN}`]],
  ['another scheme', withBaseUrl('ftp://a.example'), [`4:14 ${ORIGIN}`]],
  ['no scheme', withBaseUrl('a.example:443'), [`4:14 ${ORIGIN}`]],
  ['port 0 of an origin', withBaseUrl('https://a.example:0'), [`4:14 ${ORIGIN}`]],
  ['a port of an origin too high', withBaseUrl('https://a.example:65536'), [`4:14 ${ORIGIN}`]],
  ['brackets around no IPv6 address', withBaseUrl('"https://[a]"'), [`4:14 ${ORIGIN}`]],
  ['a name that is not ASCII', withBaseUrl('https://münchen.example'), [`4:14 ${ORIGIN}`]],
  ['a line break after the origin', withBaseUrl('"https://a.example\\n"'), [`4:14 ${ORIGIN}`]],
  ['an empty list of addresses', withBaseUrl('[]'), [`4:14 ${ORIGIN}`]],
  [
    'a list with a path',
    withBaseUrl('[https://a.example, https://b.example/api]'),
    [
      '4:34 deployments.d.baseUrl[1]: must be an origin with nothing after it, such as https://submissions.example.org or https://submissions.example.org:8443',
    ],
  ],
  [
    'an address twice',
    withBaseUrl('[https://a.example, https://a.example]'),
    ['4:14 deployments.d.baseUrl: names an address twice: name each once'],
  ],
  [
    'one address without TLS',
    withBaseUrl('[https://a.example, http://b.example]'),
    [
      '4:14 deployments.d.baseUrl: is not encrypted: write https://, or set tls.allowPlaintext to true for a test',
    ],
  ],
  ['a prefix without slash', withMatch('{ pathPrefix: api }'), [`5:26 ${PREFIX}`]],
  ['a prefix with a query', withMatch('{ pathPrefix: "/a?b" }'), [`5:26 ${PREFIX}`]],
  ['a host with a port', withMatch('{ host: "a.example:80" }'), [`5:20 ${HOST}`]],
  ['a host with a scheme', withMatch('{ host: "https://a.example" }'), [`5:20 ${HOST}`]],
  [
    'nothing to match',
    withMatch('{}'),
    [
      '5:12 deployments.d.match: has neither pathPrefix nor host: give at least one, or no request comes here',
    ],
  ],
];

const limits: Case[] = [
  [
    'a duration without unit',
    withMore('timeouts: { connect: 30 }'),
    [`7:26 deployments.d.timeouts.connect: "30" ${DURATION}`],
  ],
  [
    'a unit that does not exist',
    withMore('timeouts: { idle: 2w }'),
    [`7:23 deployments.d.timeouts.idle: "2w" ${DURATION}`],
  ],
  [
    'a duration of nothing',
    withMore('timeouts: { total: 0s }'),
    ['7:24 deployments.d.timeouts.total: 0s is out of range: write a duration from 1ms to 24d'],
  ],
  [
    'a duration longer than a timer can be',
    withMore('timeouts: { total: 25d }'),
    ['7:24 deployments.d.timeouts.total: 25d is out of range: write a duration from 1ms to 24d'],
  ],
  [
    'a list as duration',
    withMore('timeouts: { response: [1s] }'),
    ['7:27 deployments.d.timeouts.response: must be a duration, such as 500ms, 30s or 5m'],
  ],
  [
    'an empty duration',
    withMore('timeouts:', '  idle:'),
    ['8:7 deployments.d.timeouts.idle: is empty: give a duration, such as 500ms, 30s or 5m'],
  ],
  [
    'a negative size',
    withMore('body: { replayUpTo: -1 }'),
    [
      '7:25 deployments.d.body.replayUpTo: "-1" is not a size: write a whole number and its unit, such as 512, 512B, 64KiB, 1MiB or 2GiB',
    ],
  ],
  [
    'more to replay than a body may have',
    withMore('body: { replayUpTo: 2MiB, max: 1MiB }'),
    [
      '7:25 deployments.d.body.replayUpTo: is more than body.max: no body of that size is let through; lower it, or raise body.max',
    ],
  ],
  [
    'the default of replayUpTo above max',
    withMore('body: { max: 1KiB }'),
    [
      '7:5 deployments.d.body.replayUpTo: is more than body.max: no body of that size is let through; lower it, or raise body.max',
    ],
  ],
  [
    'no connections',
    withMore('connections: 0'),
    ['7:18 deployments.d.connections: must be a whole number from 1 to 65535, not 0'],
  ],
  [
    'no attempts with a refused credential',
    withMore('digest: { attemptsWhenRefused: 0 }'),
    ['7:36 deployments.d.digest.attemptsWhenRefused: must be a whole number from 1 to 60, not 0'],
  ],
  ...['50', '0%', '101%', '1.5%', '50 %'].map(
    (share): Case => [
      `a share of ${share}`,
      withMore(`circuit: { failures: "${share}" }`),
      ['7:26 deployments.d.circuit.failures: must be a share from 1% to 100%, such as 50%'],
    ],
  ),
  [
    'a share without quotes and sign',
    withMore('retry: { budget: 10 }'),
    ['7:22 deployments.d.retry.budget: must be a share from 1% to 100%, such as 50%'],
  ],
  [
    'more retries of a request than can help',
    withMore('retry: { attempts: 6 }'),
    ['7:24 deployments.d.retry.attempts: must be a whole number from 0 to 5, not 6'],
  ],
  [
    'a status that is no failure',
    withMore('circuit: { statuses: [404] }'),
    ['7:27 deployments.d.circuit.statuses[0]: must be a whole number from 500 to 599, not 404'],
  ],
  [
    'an interval of another word',
    withMore('health: { interval: never }'),
    ['7:25 deployments.d.health.interval: must be a duration, such as 10s, or off'],
  ],
  [
    'a rate with a time',
    withMore('body: { minRate: 1KiB/s }'),
    ['7:22 deployments.d.body.minRate: must be a size, such as 512B or 64KiB, or off'],
  ],
  [
    'a path of a check without slash',
    withMore('health: { path: status }'),
    ['7:21 deployments.d.health.path: must be a path that starts with /'],
  ],
  [
    'a readiness that does not exist',
    `${RIGHT}\nreadiness: upstreams`,
    ['3:12 readiness: must be one of gateway, any-upstream, all-upstreams'],
  ],
  [
    'an algorithm that does not exist',
    withMore('digest: { algorithms: [MD5, MD4] }'),
    ['7:33 deployments.d.digest.algorithms[1]: must be one of SHA-512-256, SHA-256, MD5'],
  ],
  [
    'no algorithm',
    withMore('digest: { algorithms: [] }'),
    ['7:27 deployments.d.digest.algorithms: must be a list of at least one of SHA-512-256, SHA-256, MD5'],
  ],
  [
    'an algorithm twice',
    withMore('digest: { algorithms: [MD5, MD5] }'),
    ['7:27 deployments.d.digest.algorithms: names an algorithm twice: name each once'],
  ],
  [
    'one algorithm without list',
    withMore('digest: { algorithms: MD5 }'),
    ['7:27 deployments.d.digest.algorithms: must be a list of algorithms'],
  ],
  [
    'a TLS version that is too old',
    withMore('tls: { minVersion: TLSv1.1 }'),
    ['7:24 deployments.d.tls.minVersion: must be one of TLSv1.2, TLSv1.3'],
  ],
  [
    'a file without name',
    withMore('tls: { caFile: "" }'),
    ['7:20 deployments.d.tls.caFile: must be the name of a file'],
  ],
];

describe('values', () => {
  test.each([...listeners, ...deployments, ...limits])('%s', (_title, text, lines) => {
    expectIssues(text, lines);
  });

  test('locates a value that is an alias at the alias', () => {
    const text = withMore('timeouts: { connect: &t 0s, idle: *t }');
    expect(issueLines(text)).toEqual([
      'c.yaml:7:29 deployments.d.timeouts.connect: 0s is out of range: write a duration from 1ms to 24d',
      'c.yaml:7:39 deployments.d.timeouts.idle: 0s is out of range: write a duration from 1ms to 24d',
    ]);
  });

  test('locates a value inside of what an alias repeats where it is written', () => {
    const text = `${RIGHT}\nlisten: &l { port: x }\ncontrol: *l`;
    expect(issueLines(text)).toEqual([
      'c.yaml:3:20 listen.port: must be a whole number from 0 to 65535',
      'c.yaml:3:20 control.port: must be a whole number from 0 to 65535',
    ]);
  });
});
