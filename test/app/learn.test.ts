import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { parse } from 'yaml';
import { explain } from '../../src/app/explanation.ts';
import { Learner } from '../../src/app/learn.ts';
import { type RecordedRequest, Replay } from '../../src/app/replay.ts';
import { recordedTarget } from '../../src/audit/record.ts';
import { rulesText } from '../../src/cli/policy-learn.ts';
import type { Config } from '../../src/config/schema.ts';
import { configSchema } from '../../src/config/section-issues.ts';

const BASE: object = parse(`
credentials:
  a: { username: { env: U }, password: { env: P } }
  b: { username: { env: U }, password: { env: P } }
deployments:
  plain:
    baseUrl: https://plain.example
    match: { pathPrefix: /plain }
    credential: a
    operations: { listed: { method: GET, path: "/plain/{id}" } }
  sites:
    baseUrl: https://sites.example
    match: { pathPrefix: /sites }
    siteParameter: site
    sites: { x: { credential: a }, y: { credential: a }, "on": { credential: a } }
    injectSite: true
    operations:
      authors: { method: GET, path: /sites/authors, parameters: { ids: quoted-list, site: site } }
      upload: { method: POST, path: /sites/upload }
`);
const schema = configSchema();
const TIME = '2026-11-01T12:00:00.000Z';
const BY_VALUE = ['ids', 'site', 'note'];

/** The configuration with these rules. The rest of its text is parsed once for all of them. */
function configWith(allow: unknown): Config {
  return schema.parse({ ...BASE, clients: [{ id: 'c', identify: { apiKeySha256: 'a'.repeat(64) }, allow }] });
}

const withRules = (rules: string): Config => configWith(parse(`[${rules}]`));

const NOTES = '{ deployment: plain, methods: [GET, HEAD], parameters: { note: { values: [x, "7"] } } }';
const GET_PLAIN = { method: 'GET', target: '/plain/1' };

interface Sent {
  readonly target: string;
  readonly method: string;
  readonly hasBody?: boolean;
}

/** The request as the log has it if the configuration serves it; undefined: it does not. */
function served(
  config: Config,
  { target, method, hasBody = false }: Sent,
  byValue: readonly string[] = BY_VALUE,
): RecordedRequest | undefined {
  const [client] = config.clients;
  if (client === undefined) throw new Error('there is a client');
  const headers = hasBody ? ['Content-Type', 'text/csv', 'Content-Length', '5'] : [];
  const told = explain(config, { client, method, target, host: 'gateway', headers, now: Date.parse(TIME) });
  if (!told.allowed) return undefined;
  const { path, parameters, cut } = recordedTarget(target, new Set(byValue));
  const { deployment, site, credential, credentialBy } = told;
  const credentialRule = credentialBy.match(/allow\[\d+\]/)?.[0];
  return {
    time: TIME,
    client: 'c',
    address: '192.0.2.7',
    deployment,
    site,
    method,
    path,
    parameters: Object.fromEntries(parameters),
    hasBody,
    ...(cut && { cut }),
    credential: { name: credential },
    ...(credentialRule !== undefined && { credentialRule }),
  };
}

/** What is learned from the requests, as the text of a configuration and as the rules in it. */
function learned(config: Config, requests: readonly RecordedRequest[]) {
  const learner = new Learner(config, new Replay(config), 'c');
  for (const request of requests) learner.add(request);
  const text = rulesText('c', learner.rules(), requests.length);
  const { allow } = parse(text) as { allow: unknown };
  return { text, allow, next: configWith(allow), unservable: learner.unservable };
}

function learnedFrom(rules: string, ...sent: string[]) {
  const config = withRules(rules);
  return learned(config, allServed(config, sent));
}

function allServed(config: Config, sent: readonly string[], byValue?: readonly string[]): RecordedRequest[] {
  const requests = sent.flatMap((line) => {
    const [method = '', target = ''] = line.split(' ');
    return served(config, { method, target }, byValue) ?? [];
  });
  expect(requests).toHaveLength(sent.length);
  return requests;
}

describe('learned rules', () => {
  test('name what was used together, with its counts', () => {
    const { text } = learnedFrom(
      '{ deployment: sites }, { deployment: plain }',
      'GET /sites/authors?ids=%27A%27&site=x',
      'GET /sites/authors?ids=%27A%27&site=x',
      'GET /sites/authors?ids=%27A%27&site=on',
      'HEAD /sites/authors?ids=%27A%27&site=on',
      'POST /sites/upload?site=x',
      'GET /plain/1',
    );
    expect(text).toBe(
      [
        '# 6 requests of c',
        'allow:',
        '  - deployment: sites # 3 requests',
        '    sites: ["on", x] # on 1, x 2',
        '    operations: [authors]',
        '    methods: [GET]',
        '  - deployment: sites # 1 request',
        '    sites: ["on"]',
        '    operations: [authors]',
        '    methods: [HEAD]',
        '  - deployment: sites # 1 request',
        '    sites: [x]',
        '    operations: [upload]',
        '    methods: [POST]',
        '  - deployment: plain # 1 request',
        '    operations: [listed]',
        '    methods: [GET]',
        '',
      ].join('\n'),
    );
  });

  test('allow unlisted operations where those were used, and put listed ones under the same rule', () => {
    const { allow } = learnedFrom('{ deployment: plain }', 'GET /plain/1', 'GET /plain/1/2', 'HEAD /plain/1');
    expect(allow).toEqual([
      { deployment: 'plain', operations: ['listed'], methods: ['HEAD'] },
      { deployment: 'plain', methods: ['GET'] },
    ]);
  });

  test('have the limits of parameters that present rules limit, and no others', () => {
    const rules =
      '{ deployment: sites, sites: [x], parameters: { ids: { max: 50, values: [A, B, C] }, note: { max: 9 } } }';
    const { allow } = learnedFrom(
      rules,
      'GET /sites/authors?ids=%27A%27,%27B%27&site=x&other=1',
      'GET /sites/authors?ids=%27B%27',
    );
    expect(allow).toEqual([
      {
        deployment: 'sites',
        sites: ['x'],
        operations: ['authors'],
        methods: ['GET'],
        parameters: { ids: { max: 2, values: ['A', 'B'] }, note: { max: 1 } },
      },
    ]);
  });

  test('have no restriction that would refuse what was served', () => {
    const { allow } = learnedFrom('{ deployment: plain }', 'GET /plain/1', 'GET /plain/1?_method=delete');
    expect(allow).toEqual([{ deployment: 'plain' }]);
  });

  test('have the credentials and ends of the present rules that allow their requests', () => {
    const { allow } = learnedFrom(
      [
        '{ deployment: sites, sites: [x], credential: b, ends: 2099-03-01 }',
        '{ deployment: plain, methods: [GET], ends: 2026-12-01T08:00:00Z }',
        '{ deployment: sites, operations: [upload], credential: a }',
        '{ deployment: sites, sites: [x, y], ends: 2099-03-01 }',
      ].join(', '),
      'POST /sites/upload?site=y',
      'GET /sites/authors?ids=%27A%27&site=y',
      'GET /plain/1',
      'GET /sites/authors?ids=%27A%27&site=x',
    );
    const authors = { deployment: 'sites', operations: ['authors'], methods: ['GET'] };
    expect(allow).toEqual([
      { ...authors, sites: ['x'], credential: 'b', ends: '2099-03-01' },
      { deployment: 'sites', sites: ['y'], operations: ['upload'], methods: ['POST'], credential: 'a' },
      { ...authors, sites: ['y'], ends: '2099-03-01' },
      { deployment: 'plain', operations: ['listed'], methods: ['GET'], ends: '2026-12-01T08:00:00Z' },
    ]);
  });

  test('end as late as the last present rule that allows the same with the same credential', () => {
    const allowedBy = (...rules: string[]): unknown =>
      learnedFrom(rules.map((each) => `{ deployment: plain, ${each} }`).join(', '), 'GET /plain/1').allow;
    const learnt = { deployment: 'plain', operations: ['listed'], methods: ['GET'] };
    expect(allowedBy('ends: 2099-01-01', 'ends: 2099-02-01')).toEqual([{ ...learnt, ends: '2099-02-01' }]);
    expect(allowedBy('ends: 2099-02-01', 'ends: 2099-01-01')).toEqual([{ ...learnt, ends: '2099-02-01' }]);
    expect(allowedBy('ends: 2099-01-01', 'methods: [GET]')).toEqual([learnt]);
    expect(allowedBy('ends: 2099-01-01', 'credential: b')).toEqual([{ ...learnt, ends: '2099-01-01' }]);
  });

  const LISTED = '{ deployment: plain, operations: [listed], parameters: { ids: { max: 2 } } }';
  const WITH_B = '{ deployment: plain, methods: [GET], credential: b }';

  test.each([
    ['a parameter that did not come', [LISTED, WITH_B], [], ['GET /plain/1?', 'GET /plain/1?ids=x']],
    [
      'a value that is not recorded',
      [LISTED, WITH_B],
      [],
      ['GET /plain/1?ids=%27A%27', 'GET /plain/1?ids=x'],
    ],
    [
      'a value that another rule limits as a list',
      ['{ deployment: plain, parameters: { ids: { values: [A] } } }', WITH_B, LISTED],
      ['ids'],
      ['GET /plain/1?ids=A', 'GET /plain/1'],
    ],
    [
      'rules of one credential that limit different parameters',
      [NOTES, LISTED, WITH_B],
      BY_VALUE,
      ['GET /plain?note=x', 'GET /plain/1', 'GET /plain?note=y'],
    ],
    [
      'rules of one credential with another between them',
      [LISTED, WITH_B, '{ deployment: plain }'],
      BY_VALUE,
      ['GET /plain/1', 'GET /plain/1?ids=x', 'HEAD /plain/1?ids=x', 'POST /plain/1/2'],
    ],
  ])('give each request the credential that it had: %s', (_, rules, byValue, sent) => {
    const config = withRules(rules.join(', '));
    const before = allServed(config, sent, byValue);
    const { next } = learned(config, before);
    const after = allServed(next, sent, byValue);
    expect(after.map(({ credential }) => credential)).toEqual(before.map(({ credential }) => credential));
  });

  test('have the credential that a rule named which is gone, if it is still configured', () => {
    const request = served(withRules('{ deployment: plain, credential: b }'), GET_PLAIN);
    if (request === undefined) throw new Error('it is served');
    const now = withRules('{ deployment: plain, methods: [POST] }');
    const learnt = { deployment: 'plain', operations: ['listed'], methods: ['GET'] };
    expect(learned(now, [request]).allow).toEqual([{ ...learnt, credential: 'b' }]);
    const gone = { ...request, credential: { name: 'gone' } };
    expect(learned(now, [gone]).allow).toEqual([learnt]);
  });

  test('cannot serve what the configuration has no longer', () => {
    const config = withRules('{ deployment: sites }');
    const request = served(config, { method: 'GET', target: '/sites/authors?ids=%27A%27&site=x' });
    if (request === undefined) throw new Error('it is served');
    const gone = { ...request, site: 'gone', parameters: { ...request.parameters, site: 'gone' } };
    const { allow, unservable } = learned(config, [request, gone, gone]);
    expect(allow).toHaveLength(1);
    expect(unservable).toEqual([{ deployment: 'sites', code: 'site-unknown', requests: 2 }]);
  });
});

const value = fc.constantFrom(
  '%27A%27',
  "'A','B'",
  "'A','B','C'",
  'A',
  '',
  'x',
  'y',
  'on',
  'delete',
  '7',
  'a%2Bb',
  '%ff',
);
const target = fc
  .tuple(
    fc.constantFrom(
      '/plain',
      '/plain/1',
      '/plain/1/2',
      '/sites/authors',
      '/sites/upload',
      '/sites/Authors',
      '/sites/%2e',
    ),
    fc.array(fc.tuple(fc.constantFrom('ids', 'site', 'note', 'method', '_method', 'Site', 'a[b'), value), {
      maxLength: 3,
    }),
  )
  .map(([path, pairs]) => `${path}?${pairs.map((pair) => pair.join('=')).join('&')}`);
const GET = { method: 'GET', hasBody: false };
const rule = fc.constantFrom(
  '{ deployment: plain }',
  NOTES,
  '{ deployment: plain, operations: [listed], parameters: { ids: { max: 2 } } }',
  '{ deployment: sites }',
  '{ deployment: sites, sites: [x] }',
  '{ deployment: sites, sites: [x], operations: [authors], parameters: { ids: { max: 2, values: [A, B] } } }',
  '{ deployment: sites, sites: [y, "on"], methods: [POST] }',
  '{ deployment: sites, sites: [y], credential: b, ends: 2099-01-01 }',
  '{ deployment: plain, methods: [GET], credential: b }',
);

test('what is learned from any log refuses nothing in it, and nothing of it can be left out', () => {
  const sent = fc.record({
    target,
    method: fc.constantFrom('GET', 'POST', 'HEAD', 'DELETE'),
    hasBody: fc.boolean(),
  });
  const logs = fc.tuple(
    fc.array(rule, { minLength: 1, maxLength: 3 }),
    fc.array(sent, { maxLength: 30 }),
    fc.subarray(BY_VALUE),
  );
  fc.assert(
    fc.property(logs, ([rules, all, byValue]) => {
      const config = withRules(rules.join(', '));
      const requests = all.flatMap((each) => served(config, each, byValue) ?? []);
      const { next, unservable, text } = learned(config, requests);
      expect(unservable).toEqual([]);
      const replay = new Replay(next);
      for (const request of requests) {
        expect([text, request, replay.judge(request)]).not.toMatchObject([
          text,
          request,
          { verdict: 'refused' },
        ]);
        const judgement = replay.judge(request);
        if (judgement.verdict === 'allowed') {
          expect([text, request, judgement.grant.credential]).toEqual([
            text,
            request,
            request.credential?.name,
          ]);
        }
      }
      const allow = next.clients[0]?.allow ?? [];
      for (const [index, without] of allow.entries()) {
        // Where credentials differ, a rule is within a present one: a wider one behind it can serve the same.
        const own = config.clients[0]?.allow.filter(({ deployment }) => deployment === without.deployment);
        const isMixed = new Set(own?.map(({ credential }) => credential)).size > 1;
        const fewer = { id: 'c', allow: isMixed ? allow.slice(0, index) : allow.toSpliced(index, 1) };
        const isServed = (each: RecordedRequest): boolean =>
          replay.judgeFor({ id: 'c', allow: [without] }, each).verdict !== 'refused';
        const isServedAlike = (each: RecordedRequest): boolean => {
          const judgement = replay.judgeFor(fewer, each);
          return judgement.verdict === 'allowed' && judgement.grant.credential === each.credential?.name;
        };
        expect(requests.filter(isServed).every(isServedAlike)).toBe(false);
      }
    }),
    {
      numRuns: 500,
      examples: [
        [
          [
            [
              '{ deployment: plain, operations: [listed], parameters: { ids: { max: 2 } } }',
              '{ deployment: plain, methods: [GET], credential: b }',
            ],
            [
              { target: '/plain?', ...GET },
              { target: '/plain/1?', ...GET },
            ],
            [],
          ],
        ],
        [
          [
            [
              '{ deployment: plain, methods: [GET], credential: b }',
              '{ deployment: plain, operations: [listed], parameters: { ids: { max: 2 } } }',
              '{ deployment: plain }',
            ],
            [
              { target: '/plain/1?', method: 'HEAD', hasBody: false },
              { target: '/plain?', method: 'HEAD', hasBody: false },
            ],
            [],
          ],
        ],
        [[['{ deployment: plain }', NOTES], [{ target: '/plain?note=', ...GET }], ['note']]],
        [
          [
            [
              '{ deployment: plain, operations: [listed], parameters: { ids: { max: 2 } } }',
              '{ deployment: plain }',
            ],
            [
              { target: '/plain?a[b=x', ...GET },
              { target: '/plain?ids=%27A%27', ...GET },
            ],
            ['ids'],
          ],
        ],
      ],
    },
  );
});
