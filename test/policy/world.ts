import {
  ANONYMOUS,
  type Client,
  compileRules,
  type DeploymentRules,
  type DeploymentSettings,
  type Rule,
} from '../../src/policy/rules.ts';

/** The paths of the operations that the table's deployments list. */
export const AUTHORS = '/api/v2/submissions/full/contributors/authors/submissionids';
export const REPORTS = '/api/v2/reports';

const listed = {
  baseUrl: ['https://submissions.example.org'],
  match: { pathPrefix: '/api/' },
  siteParameter: 'site_name',
  sites: {
    'journal-a': { credential: 'key-a' },
    'journal-b': { credential: 'key-b' },
    'Revue d’été': { credential: 'key-b' },
  },
  injectSite: false,
  operations: {
    authors: {
      method: 'GET',
      path: AUTHORS,
      parameters: { ids: 'quoted-list', site_name: 'site', external_id: 'digits?', note: 'text?' },
    },
    report: { method: 'GET', path: `${REPORTS}/{id}`, parameters: {} },
    summary: { method: 'GET', path: `${REPORTS}/summary`, parameters: {} },
    import: { method: 'POST', path: '/api/v2/import', parameters: { mode: 'text' } },
  },
  unlistedOperations: 'allow',
} as const satisfies DeploymentSettings;

const bare = { injectSite: false, operations: {}, unlistedOperations: 'allow' } as const;

/** The deployments of the table. */
export const deployments = {
  /** Lists operations and has sites; what is not listed passes. */
  open: listed,
  /** As open, but what is not listed is refused. */
  strict: { ...listed, unlistedOperations: 'deny', baseUrl: ['https://strict.example.org'] },
  /** As open, and adds the site where only one is possible. */
  inject: { ...listed, injectSite: true, baseUrl: ['https://inject.example.org'] },
  /** As open, with names of parameters that other deployments refuse. */
  named: {
    ...listed,
    baseUrl: ['https://named.example.org'],
    restricted: {
      fields: ['SOAPAction'],
      bodyTypes: ['Text/Plain'],
      parameterNames: ['page[size]', 'page[number]', 'sort.by', '$top'],
    },
  },
  /** Neither sites nor operations. */
  bare: {
    ...bare,
    baseUrl: ['https://bare.example.org'],
    match: { pathPrefix: '/bare/' },
    credential: 'key-bare',
  },
  /** Four that share an upstream. */
  v1: { ...bare, baseUrl: ['https://shared.example.org'], match: { pathPrefix: '/v1' }, credential: 'key-1' },
  v2: {
    ...bare,
    baseUrl: ['https://shared.example.org'],
    match: { pathPrefix: '/v1/v2' },
    credential: 'key-2',
  },
  dotted: {
    ...bare,
    baseUrl: ['https://shared.example.org'],
    match: { pathPrefix: '/v1.0' },
    credential: 'key-9',
  },
  latin: {
    ...bare,
    baseUrl: ['https://shared.example.org'],
    match: { pathPrefix: '/caf%E9%3f' },
    credential: 'key-10',
  },
  /** Three that share an upstream, the first with every path that is none of the others, the last under another name. */
  rest: {
    ...bare,
    baseUrl: ['https://rest.example.org'],
    match: { pathPrefix: '/' },
    operations: { list: { method: 'DELETE', path: '/list/{id}', parameters: {} } },
    credential: 'key-5',
  },
  abstracts: {
    ...bare,
    baseUrl: ['https://rest.example.org'],
    match: { pathPrefix: '/api/abstracts' },
    credential: 'key-6',
  },
  renamed: {
    ...bare,
    baseUrl: ['https://rest.example.org'],
    match: { pathPrefix: '/renamed' },
    rewrite: { stripPrefix: '/renamed' },
    credential: 'key-7',
  },
  /** All of an upstream, with a listed operation. */
  whole: {
    ...bare,
    baseUrl: ['https://whole.example.org'],
    match: { host: 'whole.internal' },
    operations: { item: { method: 'GET', path: '/items/{id}', parameters: { ids: 'quoted-list' } } },
    credential: 'key-8',
  },
  /** The same with a host in place of a prefix. */
  hosted: {
    ...bare,
    baseUrl: ['https://hosted.example.org'],
    match: { host: 'hosted.internal' },
    credential: 'key-3',
  },
  beside: {
    ...bare,
    baseUrl: ['https://hosted.example.org'],
    match: { pathPrefix: '/beside' },
    credential: 'key-4',
  },
} satisfies Record<string, DeploymentSettings>;

export type DeploymentName = keyof typeof deployments;

/** The rules of a deployment of the table. */
export function rulesOf(name: DeploymentName): DeploymentRules {
  return compileRules(name, deployments[name], deployments);
}

/** A rule that allows everything in a deployment, but for what is said. */
export function rule(deployment: DeploymentName, change: Partial<Rule> = {}): Rule {
  return { deployment, sites: '*', operations: '*', methods: '*', parameters: [], ...change };
}

const idsUpTo = (max: number) => [{ name: 'ids', max, values: undefined }];

/** The clients of the table. */
const allows = {
  /** One site, one operation, GET only, everywhere. */
  reporting: (['open', 'strict', 'inject'] as const).map((deployment) =>
    rule(deployment, {
      sites: new Set(['journal-a']),
      operations: new Set(['authors', 'report']),
      methods: new Set(['GET']),
    }),
  ),
  /** Everything, but few identifiers at once. */
  limited: [rule('open', { parameters: idsUpTo(2) }), rule('bare', { parameters: idsUpTo(2) })],
  /** Certain values only. */
  valued: [
    rule('open', {
      parameters: [{ name: 'external_id', max: undefined, values: new Set(['1', '2', 'a b']) }],
    }),
    rule('bare', { parameters: [{ name: 'ids', max: undefined, values: new Set(['A-1', 'A-2']) }] }),
  ],
  /** Two rules that must not be mixed. */
  mixed: [
    rule('open', { sites: new Set(['journal-a']), operations: new Set(['authors']), parameters: idsUpTo(3) }),
    rule('open', { sites: new Set(['journal-b']), methods: new Set(['GET', 'POST']) }),
    rule('inject', { sites: new Set(['journal-a']), operations: new Set(['authors']) }),
    rule('inject', { sites: new Set(['journal-b']), operations: new Set(['report']) }),
  ],
  /** All of two sites. */
  editor: [rule('inject', { sites: new Set(['journal-a', 'journal-b']) }), rule('v1')],
  /** GET without a limit, and everything else with one. */
  either: [
    rule('bare', { methods: new Set(['POST', 'GET']), parameters: idsUpTo(2) }),
    rule('bare', { methods: new Set(['GET']) }),
  ],
  /** One method of the one that allows more. */
  named: [rule('named', { methods: new Set(['POST']), sites: new Set(['journal-a']) })],
  /** GET of an operation with a credential of its own, and everything else with that of the site. */
  account: [
    rule('open', { operations: new Set(['authors']), methods: new Set(['GET']), credential: 'key-account' }),
    rule('open'),
    rule('bare', { parameters: idsUpTo(2), credential: 'key-account' }),
    rule('bare'),
  ],
  nobody: [],
} satisfies Record<string, readonly Rule[]>;

export type ClientName = keyof typeof allows | 'anonymous';

/** A client of the table. */
export function clientOf(name: ClientName): Client {
  return name === 'anonymous' ? ANONYMOUS : { id: name, allow: allows[name] };
}
