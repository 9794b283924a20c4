import { describe, test } from '@jest/globals';
import { type Case, expectIssues } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS, withDeployment, withMore } from './texts.ts';

const withSites = (...lines: string[]) =>
  withDeployment(
    'baseUrl: https://a.example',
    'match: { pathPrefix: /a/ }',
    'siteParameter: s',
    'sites: { x: { credential: a }, y: { credential: a } }',
    ...lines,
  );
const withOperation = (operation: string, parameters = '') =>
  withMore(`operations: { o: { ${operation}${parameters} } }`);

const PATH =
  'must be a path as clients send it, such as /api/reports/{id}: a segment in braces stands for any one segment, and nothing in it can be read in two ways';
const METHOD = 'must be an HTTP method in capitals, such as GET';
const CHECKED = 'is not a name that can be checked: letters, digits, "-", "_", "." and "~" only';

const odd = ['a', '/a?b', '/a/../b', '/a//b', '/a;b', '/a%2fb', '/%61', '/a/x{id}', '/{i d}', '/a/%', '/é'];

const operations: Case[] = [
  ...odd.map(
    (path): Case => [
      `the path ${path}`,
      withOperation(`method: GET, path: ${JSON.stringify(path)}`),
      [`7:43 deployments.d.operations.o.path: ${PATH}`],
    ],
  ),
  ...['/', '/a/', '/a%20b', '/a.b', '/{id}/{other-id}', "/it's,(a)@b"].map(
    (path): Case => [
      `the path ${path} is right`,
      withOperation(`method: GET, path: ${JSON.stringify(path)}`),
      [],
    ],
  ),
  ...['get', 'CONNECT', 'FETCH', '*'].map(
    (method): Case => [
      `the method ${method}`,
      withOperation(`path: /a, method: "${method}"`),
      [`7:42 deployments.d.operations.o.method: ${METHOD}`],
    ],
  ),
  [
    'the method HEAD, which no request would match',
    withOperation('path: /a, method: HEAD'),
    ['7:42 deployments.d.operations.o.method: matches nothing, since GET covers HEAD: write GET'],
  ],
  [
    'no method and no path',
    withOperation(''),
    [
      '7:19 deployments.d.operations.o.method: is missing: give an HTTP method in capitals, such as GET',
      `7:19 deployments.d.operations.o.path: ${PATH.replace('must be', 'is missing: give')}`,
    ],
  ],
  [
    'a form that does not exist',
    withOperation('method: GET, path: /a', ', parameters: { ids: list }'),
    [
      '7:66 deployments.d.operations.o.parameters.ids: must be one of quoted-list, quoted-list?, digits, digits?, site, site?, text, text?',
    ],
  ],
  [
    'the name of a parameter that would have to be encoded',
    withOperation('method: GET, path: /a', ', parameters: { "a b": text }'),
    [`7:61 deployments.d.operations.o.parameters["a b"]: ${CHECKED}`],
  ],
  ...['{ total: off }', '{ total: "off" }', '{ total: false }', '{}'].map(
    (timeouts): Case => [
      `the time limits ${timeouts} of an operation are right`,
      withOperation('method: GET, path: /a', `, timeouts: ${timeouts}`),
      [],
    ],
  ),
  ...['10m', 'true', 'on', '0'].map(
    (total): Case => [
      `the total time limit ${total} of an operation`,
      withOperation('method: GET, path: /a', `, timeouts: { total: ${total} }`),
      ['7:66 deployments.d.operations.o.timeouts.total: must be off, the only value here'],
    ],
  ),
  [
    'a time limit that an operation cannot have',
    withOperation('method: GET, path: /a', ', timeouts: { idle: off }'),
    ['7:59 deployments.d.operations.o.timeouts.idle: does not exist: the only key here is total'],
  ],
  [
    'the name of an operation',
    withMore('operations: { "a b": { method: GET, path: /a } }'),
    [
      '7:19 deployments.d.operations["a b"]: is not a name that can be used here: letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first',
    ],
  ],
  [
    'the same request twice',
    withMore(
      'operations:',
      '  o: { method: GET, path: "/a/{x}" }',
      '  p: { method: GET, path: "/a/{y}" }',
      '  q: { method: PUT, path: "/a/{y}" }',
    ),
    ['9:31 deployments.d.operations.p.path: is that of o, too: describe it once'],
  ],
  [
    'nothing listed, and nothing else allowed',
    withMore('unlistedOperations: deny'),
    [
      '7:25 deployments.d.unlistedOperations: denies everything: list the allowed requests under operations, or write allow',
    ],
  ],
];

const sites: Case[] = [
  [
    'a site to add where there is none',
    withMore('injectSite: true'),
    ['7:17 deployments.d.injectSite: has no site to add: describe sites, or leave it out'],
  ],
  ['a site to add', withSites('injectSite: true'), []],
  [
    'a site among the parameters where there is none',
    withOperation('method: GET, path: /a', ', parameters: { s: site }'),
    [
      '7:64 deployments.d.operations.o.parameters.s: is a site, and this deployment has none: describe sites, or write text',
    ],
  ],
  [
    'a site under another name',
    withSites('operations: { o: { method: GET, path: /a, parameters: { t: site? } } }'),
    [
      '8:64 deployments.d.operations.o.parameters.t: is not the parameter that names the site: siteParameter is s',
    ],
  ],
  [
    'the site parameter as something else',
    withSites('operations: { o: { method: GET, path: /a, parameters: { s: text } } }'),
    ['8:64 deployments.d.operations.o.parameters.s: names the site: write site'],
  ],
];

const withRule = (rule: string) =>
  `${withSites('operations: { o: { method: GET, path: /a } }')}\nclients:\n  - id: c\n    allow:\n      - { deployment: d, ${rule} }\n    identify: { addresses: [10.0.0.1] }`;

const clients: Case[] = [
  ['everything by its name', withRule('sites: [x, y], operations: [o], methods: [GET, PURGE]'), []],
  ['everything', withRule('sites: ["*"], operations: ["*"], methods: ["*"], parameters: {}'), []],
  [
    'a deployment that does not exist',
    `${CREDENTIALS}\n${DEPLOYMENTS}\nclients: [{ id: c, allow: [{ deployment: e }], identify: { addresses: [10.0.0.1] } }]`,
    ['3:42 clients[0].allow[0].deployment: names a deployment that does not exist: deployments has d'],
  ],
  [
    'a site that does not exist',
    withRule('sites: [x, z]'),
    ['12:37 clients[0].allow[0].sites[1]: names a site that does not exist: the deployment d has x, y'],
  ],
  [
    'a site that does not exist behind one that is named twice',
    withRule('sites: [x, x, z]'),
    ['12:40 clients[0].allow[0].sites[2]: names a site that does not exist: the deployment d has x, y'],
  ],
  [
    'an operation that does not exist',
    withRule('operations: [p]'),
    [
      '12:39 clients[0].allow[0].operations[0]: names an operation that does not exist: the deployment d has o',
    ],
  ],
  [
    'a site where there are none',
    `${CREDENTIALS}\n${DEPLOYMENTS}\nclients: [{ id: c, allow: [{ deployment: d, sites: [x] }], identify: { addresses: [10.0.0.1] } }]`,
    ['3:53 clients[0].allow[0].sites[0]: names a site, and the deployment d describes none: write "*"'],
  ],
  [
    '"*" beside names',
    withRule('sites: ["*", x]'),
    ['12:33 clients[0].allow[0].sites: has "*" beside names: keep "*", which is everything, or the names'],
  ],
  [
    'an empty list',
    withRule('methods: []'),
    ['12:35 clients[0].allow[0].methods: must be a list of at least one name, or ["*"]'],
  ],
  [
    'a name without list',
    withRule('sites: x'),
    ['12:33 clients[0].allow[0].sites: must be a list of names, or ["*"]'],
  ],
  [
    'a method in lower case',
    withRule('methods: [get]'),
    ['12:36 clients[0].allow[0].methods[0]: must be an HTTP method in capitals, or "*"'],
  ],
  [
    'a limit of nothing',
    withRule('parameters: { ids: { max: 0 } }'),
    ['12:52 clients[0].allow[0].parameters.ids.max: must be a whole number from 1 to 10000, not 0'],
  ],
  [
    'a value that is a number',
    withRule('parameters: { n: { values: [1] } }'),
    ['12:54 clients[0].allow[0].parameters.n.values[0]: must be text in quotes'],
  ],
  [
    'no value',
    withRule('parameters: { n: { values: [] } }'),
    ['12:53 clients[0].allow[0].parameters.n.values: must be a list of at least one value'],
  ],
  [
    'a limit of a parameter that would have to be encoded',
    withRule('parameters: { "a[]": { max: 1 } }'),
    [`12:40 clients[0].allow[0].parameters["a[]"]: ${CHECKED}`],
  ],
  [
    'a client twice',
    `${CREDENTIALS}\n${DEPLOYMENTS}\nclients: [{ id: c, identify: { addresses: [10.0.0.1] } }, { id: c, identify: { addresses: [10.0.0.2] } }]`,
    ['3:65 clients[1].id: is the id of clients[0], too: give each its own (first at c.yaml:3:17)'],
  ],
  [
    'a client without rules as a list',
    `${CREDENTIALS}\n${DEPLOYMENTS}\nclients: [{ id: c, allow: d, identify: { addresses: [10.0.0.1] } }]`,
    ['3:27 clients[0].allow: must be a list of rules'],
  ],
];

describe('operations, sites and clients', () => {
  test.each([...operations, ...sites, ...clients])('%s', (_title, text, lines) => {
    expectIssues(text, lines);
  });
});
