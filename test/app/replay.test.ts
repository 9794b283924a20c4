import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { explain } from '../../src/app/explanation.ts';
import { type RecordedRequest, Replay } from '../../src/app/replay.ts';
import { recordedTarget } from '../../src/audit/record.ts';
import { fuzzRuns } from '../support/fuzz.ts';
import { parseConfig } from '../support/parsed-config.ts';

const BASE = `
credentials: { a: &login { username: { env: U }, password: { env: P } }, b: *login }
deployments:
  plain: { baseUrl: "https://plain.example", match: { pathPrefix: /plain }, credential: a }
  hosted: { baseUrl: "https://hosted.example", match: { host: hosted.internal }, credential: a }
  listed:
    baseUrl: https://listed.example
    match: { pathPrefix: /listed }
    siteParameter: site
    sites: { x: { credential: a }, y: { credential: a } }
    injectSite: true
    unlistedOperations: deny
    operations:
      authors: { method: GET, path: /listed/authors, parameters: { ids: quoted-list, site: site, note: "text?" } }
      upload: { method: POST, path: /listed/upload, parameters: {} }
clients:
`;

/** The configuration with a client `c` that has these rules. */
function withRules(rules: string, identify = `apiKeySha256: [${'a'.repeat(64)}]`, base = BASE) {
  return parseConfig(`${base}  - { id: c, identify: { ${identify} }, allow: [${rules}] }\n`, 'gateway.yaml');
}

const config = withRules(
  '{ deployment: plain, methods: [GET] }, { deployment: hosted }, { deployment: listed, sites: [x], parameters: { ids: { max: 2 } } }',
);

const BY_VALUE = new Set(['ids', 'site']);
const BY_NOTE = new Set([...BY_VALUE, 'note']);

/** A request as the log has it. */
function recorded(
  target: string,
  change: Partial<RecordedRequest> = {},
  byValue: ReadonlySet<string> = BY_VALUE,
): RecordedRequest {
  const { path, parameters, cut } = recordedTarget(target, byValue);
  const [, deployment = ''] = path.split('/');
  return {
    time: '2026-11-01T12:00:00.000Z',
    client: 'c',
    address: '192.0.2.7',
    deployment,
    site: '',
    method: 'GET',
    path,
    parameters: Object.fromEntries(parameters),
    hasBody: false,
    ...(cut && { cut }),
    ...change,
  };
}

function judged(request: RecordedRequest, by = config, log = by): string {
  const judgement = new Replay(by, log).judge(request);
  switch (judgement.verdict) {
    case 'allowed':
      return `allowed ${judgement.deployment}`;
    case 'refused':
      return judgement.code;
    default:
      return `unknown ${judgement.reason}`;
  }
}

test.each([
  ['2026-11-30T23:59:59.999Z', 'allowed plain'],
  ['2026-12-01T00:00:00.000Z', 'client-forbidden'],
])('a request of %s is judged by the rules that had not ended then', (time, outcome) => {
  const by = withRules('{ deployment: plain, ends: 2026-12-01 }');
  expect(judged(recorded('/plain/x', { time }), by)).toBe(outcome);
});

describe('a recorded request', () => {
  const authors = '/listed/authors?ids=%27A%27';
  const longList = Array(100).fill('%27A-1%27').join(',');
  test.each<[string, RecordedRequest, string]>([
    ['is allowed', recorded('/plain/x?whatever=1'), 'allowed plain'],
    ['is refused for its method', recorded('/plain/x', { method: 'POST' }), 'client-forbidden'],
    ['is refused for its operation', recorded('/listed/other'), 'operation-unlisted'],
    ['is allowed with its site', recorded(`${authors}&site=x`, { site: 'x' }), 'allowed listed'],
    ['gets its only site', recorded(authors, { site: 'x' }), 'allowed listed'],
    ['is refused for its site', recorded(`${authors}&site=y`, { site: 'y' }), 'client-forbidden'],
    ['is refused for its list', recorded('/listed/authors?ids=%27A%27,%27B%27,%27C%27'), 'parameter-invalid'],
    ['is of a client that is gone', recorded('/plain/x', { client: 'gone' }), 'client-unknown'],
    ['leads nowhere', recorded('/nowhere', { deployment: '' }), 'no-deployment'],
    ['was for a deployment that is gone', recorded('/gone/x'), 'no-deployment'],
    ['came by host', recorded('/x', { deployment: 'hosted' }), 'allowed hosted'],
    ['had no deployment although its path has one', recorded('/plain/x', { deployment: '' }), 'unknown host'],
    ['came by path or host', recorded('/moved/x', { deployment: 'plain' }), 'unknown host'],
    ['has a list by name only', recorded(authors, { site: 'x' }, new Set()), 'unknown parameter'],
    [
      'has its site by name only',
      recorded(`${authors}&site=x`, { site: 'x' }, new Set(['ids'])),
      'allowed listed',
    ],
    [
      'has another site by name only',
      recorded(`${authors}&site=y`, { site: 'y' }, new Set(['ids'])),
      'client-forbidden',
    ],
    [
      'has an unknown site by name only',
      recorded(`${authors}&site=y`, {}, new Set(['ids'])),
      'unknown parameter',
    ],
    [
      'is refused whatever its list is',
      recorded(authors, { method: 'POST' }, new Set()),
      'operation-unlisted',
    ],
    ['has a name that nothing looks at', recorded('/plain/x?secret=1', {}, new Set()), 'allowed plain'],
    ['may name a method', recorded('/plain/x?method=delete', {}, new Set()), 'unknown parameter'],
    ['may name a method with a +', recorded('/plain/x?x+method=delete', {}, new Set()), 'unknown spelling'],
    [
      'may name a method with a +, by value',
      recorded('/plain/x?_method+=1', {}, new Set(['_method+'])),
      'unknown spelling',
    ],
    ['has a + in a name that nothing looks at', recorded('/plain/x?a+b=1', {}, new Set()), 'allowed plain'],
    ['names a method', recorded('/plain/x?_method=1', {}, new Set()), 'bad-request'],
    ['has another spelling of a name', recorded(`${authors}&Site=x`), 'parameter-invalid'],
    ['has a ; in a name', recorded(`${authors}&site=x&z;y=1`, { site: 'x' }), 'unknown spelling'],
    ['has its site behind a ;', recorded(`${authors}&z;site=y`, { site: '' }), 'parameter-invalid'],
    ['has a ; in a name that nothing looks at', recorded('/plain/x?z;y=1'), 'allowed plain'],
    [
      'has a ; in a value',
      recorded(`${authors}&site=x&note=a;b`, { site: 'x' }, BY_NOTE),
      'unknown spelling',
    ],
    ['has a ; in its list', recorded("/listed/authors?ids='A;B'&site=x", { site: 'x' }), 'unknown spelling'],
    ['has a + in a name', recorded(`${authors}&site=x&n+o=1`, { site: 'x' }), 'parameter-invalid'],
    ['has a ; in a value that nothing looks at', recorded('/plain/x?note=a;b', {}, BY_NOTE), 'allowed plain'],
    ['has a plus in its site', recorded(`${authors}&site=x%2By`), 'site-unknown'],
    ['has a list that is cut', recorded(`/listed/authors?ids=${longList}`, { site: 'x' }), 'unknown cut'],
    [
      'is cut, and refused whatever it is',
      recorded(`/listed/authors?ids=${longList}`, { method: 'PUT' }),
      'operation-unlisted',
    ],
    [
      'has a body',
      recorded('/listed/upload?site=x', { site: 'x', method: 'POST', hasBody: true }),
      'unknown body',
    ],
    ['has no body', recorded('/listed/upload?site=x', { site: 'x', method: 'POST' }), 'allowed listed'],
  ])('%s', (_title, request, expected) => expect(judged(request)).toBe(expected));

  test('is not known to be allowed where its values decide which credential it gets', () => {
    const by = withRules(
      '{ deployment: plain, parameters: { ids: { max: 2 } } }, { deployment: plain, credential: b }',
    );
    expect(judged(recorded('/plain/x?ids=%27A%27', {}, new Set()), by)).toBe('unknown parameter');
    expect(judged(recorded('/plain/x?ids=%27A%27'), by)).toBe('allowed plain');
  });

  test('with a + or % is judged in both spellings', () => {
    const by = withRules('{ deployment: plain, parameters: { ids: { values: ["a+b"] } } }');
    expect(judged(recorded('/plain?ids=a%2Bb'), by)).toBe('unknown spelling');
    expect(judged(recorded('/plain?ids=a%2Bc'), by)).toMatch(/^(client-forbidden|parameter-invalid)$/);
  });

  test('that had no deployment is not known to have none where a host is new', () => {
    const none = recorded('/x', { deployment: '' });
    const others = withRules(
      '{ deployment: plain }',
      undefined,
      BASE.replace('hosted.internal', 'old.internal'),
    );
    expect(judged(none, config, config)).toBe('no-deployment');
    expect(judged(none, config, others)).toBe('unknown host');
    const moved = BASE.replace('pathPrefix: /plain', 'pathPrefix: /new');
    const by = withRules('{ deployment: plain }', undefined, moved);
    expect(judged(recorded('/new/x', { deployment: '' }), by, config)).toBe('allowed plain');
  });

  test('is judged by its path if that led to its deployment in the configuration of the log', () => {
    const moved = withRules(
      '{ deployment: plain }',
      undefined,
      BASE.replace('pathPrefix: /plain', 'pathPrefix: /new'),
    );
    expect(judged(recorded('/plain/x'), moved)).toBe('unknown host');
    expect(judged(recorded('/plain/x'), moved, config)).toBe('no-deployment');
    expect(judged(recorded('/upstream/x', { deployment: 'plain' }), moved, config)).toBe('allowed plain');
  });

  test('is refused from an address that the client no longer has', () => {
    const request = recorded('/plain/x');
    const by = (networks: string) => withRules('{ deployment: plain }', `addresses: [${networks}]`);
    expect(judged(request, by('192.0.2.0/24'))).toBe('allowed plain');
    expect(judged(request, by('10.0.0.0/8'))).toBe('client-unknown');
    const other = `${BASE}  - { id: other, identify: { addresses: [192.0.2.7] } }\n`;
    const taken = withRules('{ deployment: plain }', 'addresses: [10.0.0.0/8]', other);
    expect(judged(request, taken)).toBe('unknown address');
    const hashed = recorded('/plain/x', { address: `hmac:${'a'.repeat(22)}` });
    expect(judged(hashed, by('10.0.0.0/8'))).toBe('allowed plain');
    expect(judged(hashed, by('10.0.0.0/8'), by('192.0.2.0/24'))).toBe('unknown address');
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
  'z',
  'delete',
  '7',
  'a%2Bb',
);
const target = fc
  .tuple(
    fc.constantFrom('/plain', '/plain/x', '/listed/authors', '/listed/upload', '/listed/Authors', '/other'),
    fc.array(
      fc.tuple(fc.constantFrom('ids', 'site', 'n%6Fte', 'method', 'x+method', 'Site', 'a[b', 'a%5Bb'), value),
      {
        maxLength: 4,
      },
    ),
  )
  .map(([path, pairs]) => `${path}?${pairs.map((pair) => pair.join('=')).join('&')}`);
const rule = fc.constantFrom(
  '{ deployment: plain }',
  '{ deployment: plain, methods: [GET], parameters: { note: { values: [x] } } }',
  '{ deployment: listed }',
  '{ deployment: listed, sites: [x] }',
  '{ deployment: listed, sites: [y], operations: [authors], parameters: { ids: { max: 1 } } }',
  '{ deployment: listed, methods: [POST] }',
);

test('what a record decides is what the gateway decides for the request itself', () => {
  const byValue = fc.subarray(['ids', 'site', 'note', 'method']);
  fc.assert(
    fc.property(
      fc.array(rule, { maxLength: 3 }),
      target,
      fc.constantFrom('GET', 'POST', 'HEAD'),
      byValue,
      (rules, asked, method, names) => {
        const by = withRules(rules.join(', '));
        const [client] = by.clients;
        if (client === undefined) throw new Error('there is a client');
        const told = explain(by, { client, method, target: asked, host: 'gateway', now: Date.now() });
        const { deployment } = told;
        const site = told.allowed ? told.site : '';
        const request = recorded(asked, { method, deployment, site }, new Set(names));
        const judgement = new Replay(by).judge(request);
        if (judgement.verdict !== 'unknown') {
          expect([judgement.verdict, asked]).toEqual([told.allowed ? 'allowed' : 'refused', asked]);
        }
        // Nothing is left open if every value is recorded, apart from that of a spelling.
        if (names.length === 4 && !/Site|\+|%2B|a\[b|a%5Bb/.test(asked))
          expect(judgement.verdict).not.toBe('unknown');
      },
    ),
    { numRuns: fuzzRuns(400) },
  );
});
