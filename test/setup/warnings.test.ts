import { expect, test } from '@jest/globals';
import { formatPath } from '../../src/config/issues.ts';
import { configWarnings } from '../../src/setup/warnings.ts';
import { CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { parseConfig } from '../support/parsed-config.ts';

const text = `${CREDENTIALS}
${DEPLOYMENTS}
clients:
  - id: c
    identify:
      apiKeySha256: ${'aa'.repeat(32)}
      apiKeys: [{ sha256: ${'ab'.repeat(32)} }, { sha256: ${'cd'.repeat(32)}, expires: 2027-03-01 }]
    allow: [{ deployment: d, methods: [GET] }, { deployment: d, ends: 2027-03-11 }]
`;

/** The warnings of a time, each with its path. */
const warned = (time: string) =>
  configWarnings(parseConfig(text, 'c.yaml'), Date.parse(time)).map(
    ({ path, message }) => `${formatPath(path)}: ${message}`,
  );

const KEY = 'clients[0].identify.apiKeys[1]';
const RULE = 'clients[0].allow[1]';

test.each([
  ['2027-01-29T23:59:59.999Z', []],
  [
    '2027-01-30T00:00:00Z',
    [
      `${KEY}: ends 2027-03-01, so give c another one in time (digest-gateway client rotate c), or write a later expires`,
    ],
  ],
  [
    '2027-03-01T00:00:00Z',
    [
      `${KEY}: ended 2027-03-01, so it gets 401 client-key-expired: remove it, or write a later expires`,
      `${RULE}: ends 2027-03-11, and allows nothing from then on: write a later ends if it is to stay`,
    ],
  ],
  [
    '2027-03-11T00:00:00Z',
    [
      `${KEY}: ended 2027-03-01, so it gets 401 client-key-expired: remove it, or write a later expires`,
      `${RULE}: ended 2027-03-11, so it allows nothing: remove it, or write a later ends`,
    ],
  ],
])('from 30 days before the end of a key or rule on there is a warning: %s', (time, warnings) => {
  expect(warned(time)).toEqual(warnings);
});

const listeners = (...tls: string[]) => `listen:
${tls.map((more, index) => `  - { port: ${8443 + index}, tls: { certFile: c.pem, keyFile: k.pem, ${more} } }\n`).join('')}`;

/** The paths of the warnings of clients known by certificate, at these listeners. */
const warnedAt = (...tls: string[]) => {
  const clients = `clients:
  - { id: named, identify: { certificate: { subject: CN=named } }, allow: [{ deployment: d }] }
  - { id: pinned, identify: { certificate: { fingerprint256: ${'ab'.repeat(32)}, san: dns:pinned } }, allow: [{ deployment: d }] }
`;
  const config = parseConfig(`${CREDENTIALS}\n${DEPLOYMENTS}\n${listeners(...tls)}${clients}`, 'c.yaml');
  return configWarnings(config, Date.now()).map(({ path }) => formatPath(path));
};

test('a name that the authorities of several listeners can sign is a warning', () => {
  expect(warnedAt('clientCaFile: a.pem', 'clientCaFile: b.pem')).toEqual(['clients[0].identify.certificate']);
  expect(warnedAt('clientCaFile: a.pem', 'clientCaFile: a.pem')).toEqual([]);
});

test('a listener without the revocation lists that another one has for the same authority is a warning', () => {
  expect(warnedAt('clientCaFile: a.pem, crlFile: a.crl', 'clientCaFile: a.pem')).toEqual(['listen[1].tls']);
  const both = 'clientCaFile: a.pem, crlFile: a.crl';
  expect(warnedAt(both, both)).toEqual([]);
});

/** Paths and messages of the warnings of a deployment with these keys, and a client with these rules. */
const policyWarned = (rules: string, keys = '') => {
  const text = `${CREDENTIALS}
deployments:
  d:
    baseUrl: https://a.example
    match: { pathPrefix: /d/api/ }
    credential: a
    operations:
      list: { method: GET, path: /d/api/list, parameters: { ids: quoted-list, page: "digits?" } }
      put: { method: PUT, path: "/d/{version}/items" }
    ${keys}
  e: { baseUrl: https://b.example, match: { pathPrefix: /e/ }, credential: a }
  f:
    baseUrl: https://c.example
    match: { pathPrefix: /f/ }
    siteParameter: site
    sites: { one: { credential: a }, two: { credential: a } }
clients: [{ id: c, identify: { apiKeySha256: ${'ab'.repeat(32)} }, allow: [${rules}] }]
`;
  return configWarnings(parseConfig(text, 'c.yaml'), Date.parse('2026-01-01T00:00:00Z')).map(
    ({ path, message }) => `${formatPath(path)}: ${message}`,
  );
};

test.each([
  ['one for everything', '{ deployment: d }', '{ deployment: d, operations: [list], credential: a }'],
  ['the same one', '{ deployment: d, methods: [GET, PUT] }', '{ deployment: d, methods: [PUT, GET] }'],
  [
    'one with wider limits',
    '{ deployment: d, parameters: { ids: { max: 5 }, page: { values: ["1", "2"] } } }',
    '{ deployment: d, parameters: { page: { values: ["2"] }, ids: { max: 5 }, other: { max: 1 } } }',
  ],
  ['one that ends later', '{ deployment: d, ends: 2027-02-01 }', '{ deployment: d, ends: 2027-01-01 }'],
])('a rule behind %s is a warning', (_, earlier, rule) => {
  const message =
    'is never used: allow[1] before it allows all of its requests; put this one first, or remove it';
  const found = policyWarned(`{ deployment: e }, ${earlier}, ${rule}`);
  expect(found).toContain(`clients[0].allow[2]: ${message}`);
  expect(found.filter((line) => line.includes('never used'))).toHaveLength(1);
});

test.each([
  ['for another deployment', '{ deployment: d }', '{ deployment: e }'],
  ['with fewer operations', '{ deployment: d, operations: [list] }', '{ deployment: d }'],
  ['with other methods', '{ deployment: d, methods: [GET] }', '{ deployment: d, methods: [GET, PUT] }'],
  [
    'with a limit',
    '{ deployment: d, parameters: { ids: { max: 5 } } }',
    '{ deployment: d, operations: [list] }',
  ],
  [
    'with a smaller limit',
    '{ deployment: d, parameters: { ids: { max: 5 } } }',
    '{ deployment: d, parameters: { ids: { max: 6 } } }',
  ],
  [
    'with fewer values',
    '{ deployment: d, parameters: { ids: { values: ["1"] } } }',
    '{ deployment: d, parameters: { ids: { max: 1 } } }',
  ],
  [
    'with other values',
    '{ deployment: d, parameters: { ids: { values: ["1"] } } }',
    '{ deployment: d, parameters: { ids: { values: ["2"] } } }',
  ],
  [
    'with a maximum',
    '{ deployment: d, parameters: { ids: { max: 5 } } }',
    '{ deployment: d, parameters: { ids: { values: ["1"] } } }',
  ],
  [
    'with a limit on another parameter',
    '{ deployment: d, parameters: { ids: { max: 5 } } }',
    '{ deployment: d, parameters: { other: { max: 5 } } }',
  ],
  ['with fewer sites', '{ deployment: f, sites: [one] }', '{ deployment: f }'],
  ['that ends', '{ deployment: d, ends: 2027-01-01 }', '{ deployment: d }'],
])('a rule behind one %s is none', (_, earlier, rule) => {
  expect(policyWarned(`${earlier}, ${rule}`)).toEqual([]);
});

test('a rule that has ended is not called one behind another that has', () => {
  const found = policyWarned('{ deployment: d, ends: 2025-02-01 }, { deployment: d, ends: 2025-01-01 }');
  expect(found.filter((line) => !line.includes('so it allows nothing'))).toEqual([]);
  expect(found).toHaveLength(2);
});

test('a rule whose operations have none of its methods is a warning', () => {
  const message = 'clients[0].allow[0]: allows nothing: none of its operations has one of its methods';
  expect(policyWarned('{ deployment: d, operations: [list], methods: [PUT, POST] }')).toEqual([message]);
  expect(policyWarned('{ deployment: d, operations: [put], methods: [HEAD] }')).toEqual([message]);
  expect(policyWarned('{ deployment: d, operations: [list, put], methods: [PUT] }')).toEqual([]);
  expect(policyWarned('{ deployment: d, operations: [list], methods: [HEAD] }')).toEqual([]);
  expect(policyWarned('{ deployment: d, methods: [DELETE] }')).toEqual([]);
});

test('a maximum of items for a parameter that an operation takes as digits is a warning', () => {
  const limited = 'parameters: { page: { max: 2 } }';
  const message =
    'clients[0].allow[0].parameters.page.max: is for a quoted list, and the operation list takes digits: this rule allows none of its requests with page; leave max out, or list the operations of this rule';
  expect(policyWarned(`{ deployment: d, ${limited} }`)).toEqual([message]);
  expect(policyWarned(`{ deployment: d, operations: [put], ${limited} }`)).toEqual([]);
  expect(policyWarned(`{ deployment: d, methods: [PUT], ${limited} }`)).toEqual([]);
  expect(policyWarned(`{ deployment: d, methods: [HEAD], ${limited} }`)).toEqual([message]);
  expect(policyWarned('{ deployment: d, parameters: { ids: { max: 2 }, page: { values: ["1"] } } }')).toEqual(
    [],
  );
});

test('an operation that no path of its deployment can be is a warning', () => {
  const at = (operation: string) =>
    `deployments.d.operations.${operation}.path: is outside of /api/, with which the paths of match.pathPrefix without rewrite.stripPrefix begin: at most requests in absolute form, such as GET http://…, can be this operation; correct the path`;
  expect(policyWarned('{ deployment: d }', 'rewrite: { stripPrefix: /d }')).toEqual([at('list'), at('put')]);
});
