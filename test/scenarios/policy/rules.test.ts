import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { explain } from '../../../src/app/explanation.ts';
import type { ExplanationView } from '../../../src/control/client-view.ts';
import { ANONYMOUS } from '../../../src/policy/rules.ts';
import { defaultSettings } from '../../../src/simulator/settings.ts';
import { type RunningGateway, setupFor, startGateway } from '../../support/gateway.ts';
import type { RawResponse } from '../../support/raw-client.ts';
import { startScene } from '../../support/scene.ts';
import { startSimulator } from '../../support/simulator.ts';
import { codeOf, connect, echoOf, useRunning, useWire } from '../../support/wire.ts';

/** Deployments with rules, in front of a simulator that echoes what it is asked. */
interface RulesScene {
  readonly gateway: RunningGateway;
  /** One request on a connection of its own; header lines without their ends. */
  ask(line: string, ...headers: string[]): Promise<RawResponse>;
  /** Output of `policy explain` for a GET. */
  explained(target: string): ExplanationView;
  /** How many requests the upstreams have seen. */
  arrived(): number;
}

const operations = {
  item: { method: 'GET', path: '/echo/strict/item', parameters: { ids: 'quoted-list', site_name: 'site' } },
  part: { method: 'GET', path: '/echo/strict/parts/{id}', parameters: {} },
};
const sites = { 'journal-a': { credential: 'strict' }, 'journal-b': { credential: 'strict' } };

/**
 * Three deployments share an upstream: `/echo/strict` serves its two operations only, `/echo/one` has one site and adds
 * it, `/echo` serves everything. A fourth, of another upstream, has the host `elsewhere.internal`.
 */
const SETTINGS = {
  strict: {
    match: { pathPrefix: '/echo/strict' },
    credential: undefined,
    siteParameter: 'site_name',
    sites,
    operations,
    unlistedOperations: 'deny',
  },
  one: {
    match: { pathPrefix: '/echo/one' },
    credential: undefined,
    siteParameter: 'site_name',
    sites: { 'Revue d’été': { credential: 'one' } },
    injectSite: true,
    operations: { item: { method: 'GET', path: '/echo/one/item', parameters: { ids: 'quoted-list' } } },
  },
  free: { match: { pathPrefix: '/echo' }, restricted: { fields: ['SOAPAction'] } },
  elsewhere: { match: { host: 'elsewhere.internal' } },
};

/** Starts it for the tests of a file. */
function useRules(): RulesScene {
  const running = useRunning(start);
  return {
    get gateway() {
      return running().gateway;
    },
    ask: async (line, ...headers) => {
      const host = headers.some((header) => /^host:/i.test(header)) ? [] : ['Host: gateway.internal'];
      const client = await connect(running().gateway.port);
      await client.send(`${[`${line} HTTP/1.1`, ...host, ...headers].join('\r\n')}\r\n\r\n`);
      return client.answer(line.slice(0, line.indexOf(' ')));
    },
    explained: (target) =>
      explain(running().config, {
        client: ANONYMOUS,
        method: 'GET',
        target,
        host: 'gateway.internal',
        now: Date.now(),
      }),
    arrived: () => running().arrived(),
  };
}

async function start() {
  const { deployments } = defaultSettings();
  const simulator = await startSimulator({
    deployments: {
      submissions: { ...deployments.submissions, testPaths: true },
      abstracts: { ...deployments.abstracts, testPaths: true },
    },
  });
  const { submissions, abstracts } = simulator.deployments;
  const described = Object.fromEntries(
    Object.entries(SETTINGS).map(([name, settings]) => {
      const { origin } = name === 'elsewhere' ? abstracts : submissions;
      return [name, { origin, ca: simulator.ca, settings }];
    }),
  );
  const setup = await setupFor(described);
  const gateway = await startGateway(described);
  return {
    gateway,
    config: setup.config,
    arrived: () => simulator.counts('submissions').requests + simulator.counts('abstracts').requests,
    close: async () => {
      await gateway.close();
      await simulator.close();
    },
  };
}

const scene = useRules();

describe('an encoded path', () => {
  test.each([
    '/echo/strict/parts/a%2fb',
    '/echo/strict/parts/a%2Fb',
    '/echo/strict/parts/a%252fb',
    '/echo/strict/parts/a%5cb',
    '/echo/strict/parts/a\\b',
    '/echo/strict/parts/a%00',
    '/echo/strict/parts/a;b',
    '/echo/strict/parts/a%3Bb',
    '/echo/strict/parts/%c0%af',
    '/echo/strict/parts/%e0%80%af',
    '/echo/strict/parts/%zz',
    '/echo/strict/%69tem',
    '/echo/strict/%2569tem',
    '/echo/strict//item',
    // Under another deployment, whose paths these only seem to be.
    '/echo/%73trict/item',
    '/echo/%2573trict/secret',
    '/echo/STRICT/secret',
    '/echo//strict/secret',
    '/echo/;x/strict/secret',
    '/echo/%2fstrict/secret',
    '/echo/\\strict/secret',
  ])('refuses %s with 400', async (path) => {
    const before = scene.arrived();
    const answer = await scene.ask(`GET ${path}?site_name=journal-a&ids='a'`);
    expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
    expect(scene.arrived()).toBe(before);
  });

  test.each(['/echo/%41%2f%5c%00;x//y', '/echo/x/%2e%2e/y', '/echo/strictly', '/echo/strict%20er'])(
    'passes %s, which breaks no rule',
    async (path) => expect(echoOf(await scene.ask(`GET ${path}`)).url).toBe(path),
  );
});

describe('dot segments', () => {
  test.each([
    '/echo/x/../strict/secret',
    '/echo/./strict/secret',
    '/echo/%2e/strict/secret',
    '/echo/x/%2e%2E/strict/secret',
    '/echo/x/%252e%252e/strict/secret',
    '/echo/x/..;/strict/secret',
    '/echo/x/..\\strict\\secret',
    '/echo/x/..%2fstrict%2fsecret',
    '/echo/x/%c0%ae%c0%ae/strict/secret',
    '/echo/../admin',
    '/echo/one/../two?site_name=Revue%20d%E2%80%99%C3%A9t%C3%A9',
    '/echo/strict/parts/..',
    '/echo/strict/parts/../../x',
  ])('refuses %s with 400', async (path) => {
    const before = scene.arrived();
    const answer = await scene.ask(`GET ${path}`);
    expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
    expect(scene.arrived()).toBe(before);
  });

  test('are refused in absolute form as well', async () => {
    const { sends } = allowed('/echo/x');
    const origin = sends.slice('GET https'.length, -'/echo/x'.length);
    const answer = await scene.ask(`GET http${origin}/echo/x/../strict/secret`);
    expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
  });

  test.each(['/echo/a/../b', '/echo/a/./b/..', '/echo/..x/...'])(
    'pass in %s, which stays where it is',
    async (path) => expect(echoOf(await scene.ask(`GET ${path}`)).url).toBe(path),
  );

  function allowed(target: string) {
    const explanation = scene.explained(target);
    if (!explanation.allowed) throw new Error(explanation.detail);
    return explanation;
  }
});

describe('a repeated parameter', () => {
  const ITEM = '/echo/strict/item';
  const A = 'site_name=journal-a';
  const ID = 'ids=%27a%27';

  test.each([
    `${A}&${A}&${ID}`,
    `${A}&site_name=journal-b&${ID}`,
    `${A}&${ID}&%73ite_name=journal-b`,
    `${A}&${ID}&%2573ite_name=journal-b`,
    `${A}&${ID}&site%5Fname=journal-b`,
    `${A}&${ID}&SITE_NAME=journal-b`,
    `${A}&${ID}&site_name[]=journal-b`,
    `${A}&${ID}&site_name%00=journal-b`,
    `${A}&${ID}&+site_name=journal-b`,
    `${A}&${ID}&site.name=journal-b`,
    `${A}&${ID};site_name=journal-b`,
    `x=1;site_name=journal-b&${A}&${ID}`,
    `${A}&${ID}&${ID}`,
    `${A}&${ID}&ids`,
    `${A}&${ID}&%69ds=x`,
  ])('refuses %s with 400', async (query) => {
    const before = scene.arrived();
    const answer = await scene.ask(`GET ${ITEM}?${query}`);
    expect([answer.status, codeOf(answer)]).toEqual([400, 'parameter-invalid']);
    expect(scene.arrived()).toBe(before);
  });

  test('passes if no rule reads it', async () => {
    const target = `${ITEM}?${A}&${ID}&x=1&x=2;x=3&X&=&&`;
    expect(echoOf(await scene.ask(`GET ${target}`)).url).toBe(target);
  });

  test('passes where no rule reads the query', async () => {
    const target = '/echo/x?site_name=a&site_name=b;%73ite_name=%ff&ids';
    expect(echoOf(await scene.ask(`GET ${target}`)).url).toBe(target);
  });
});

describe('a line break in the target', () => {
  test.each([
    ["/echo/strict/item?site_name=journal-a&ids='a'%0d%0aX-Injected:%20y", 'parameter-invalid'],
    ["/echo/strict/item?site_name=journal-a&ids='a%0aX-Injected:%20y'", 'parameter-invalid'],
    ["/echo/strict/item?site_name=journal-a%0d%0aX-Injected:%20y&ids='a'", 'parameter-invalid'],
    ["/echo/strict/item?site_name=journal-a%250d%250aX-Injected:%20y&ids='a'", 'site-unknown'],
    ['/echo/strict/parts/a%0d%0aX-Injected:%20y?site_name=journal-a', 'bad-request'],
  ])('refuses %s and sends nothing', async (target, code) => {
    const before = scene.arrived();
    expect(codeOf(await scene.ask(`GET ${target}`))).toBe(code);
    expect(scene.arrived()).toBe(before);
  });

  test('stays encoded where no rule reads it', async () => {
    const target = '/echo/x%0d%0aX-Injected:%20y?a=%0d%0aX-Injected:%20y';
    const { url, rawHeaders } = echoOf(await scene.ask(`GET ${target}`));
    expect(url).toBe(target);
    expect(rawHeaders.map((name) => name.toLowerCase())).not.toContain('x-injected');
  });
});

describe('a header that overrides the request line', () => {
  const PART = '/echo/strict/parts/1?site_name=journal-a';

  test.each([
    'X-HTTP-Method-Override: DELETE',
    'x-http-method: DELETE',
    'X-Method-Override: DELETE',
    'X_HTTP_Method_Override: DELETE',
    'X-Original-URL: /echo/strict/secret',
    'X-Rewrite-URL: /echo/strict/secret',
    'X-Original-URL:',
    'X-Original-Uri: /echo/strict/secret',
    'X-Forwarded-Uri: /echo/strict/secret',
    'X-Original-Method: DELETE',
    'X_Forwarded_Method: DELETE',
    '_method: DELETE',
    'SCRIPT_NAME: /echo',
    'X-Tunneled-Method: DELETE',
    'X-Envoy-Original-Dst-Host: 127.0.0.1:1',
    'Destination: /echo/strict/secret',
  ])('refuses %s with 400', async (header) => {
    const before = scene.arrived();
    const answer = await scene.ask(`GET ${PART}`, header);
    expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
    expect(scene.arrived()).toBe(before);
  });

  test.each(['X-Original-URL', 'X-Rewrite-URL', 'SCRIPT_NAME', 'Destination'])(
    'refuses %s between two deployments of one upstream',
    async (name) => {
      const before = scene.arrived();
      const answer = await scene.ask('MOVE /echo/x', `${name}: /echo/strict/secret`);
      expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
      expect(scene.arrived()).toBe(before);
    },
  );

  test('passes where no rule is broken by it', async () => {
    const override = 'X-HTTP-Method-Override: DELETE';
    const { rawHeaders } = echoOf(await scene.ask('GET /echo/x', 'Host: elsewhere.internal', override));
    expect(rawHeaders.map((name) => name.toLowerCase())).toContain('x-http-method-override');
  });
});

describe('a restricted client', () => {
  const PART = '/echo/strict/parts/1?site_name=journal-a';
  const names = ({ rawHeaders }: { rawHeaders: readonly string[] }): string[] =>
    rawHeaders.filter((_, at) => at % 2 === 0).map((name) => name.toLowerCase());

  test('sends fields of a list, and the others are dropped and counted', async () => {
    const dropped = () => scene.gateway.metric('digest_gateway_request_fields_dropped_total', labels);
    const labels = { deployment: 'strict', client: 'anonymous' };
    const before = await dropped();
    const kept = [
      'Accept: a/b',
      'Traceparent: 00-1',
      'If-None-Match: "x"',
      'X-Request-Id: id-1',
      'Range: bytes=0-9',
    ];
    const answer = await scene.ask(`GET ${PART}`, ...kept, 'X-Tenant: b', 'Some_Name: 1', 'X-Tenant: c');
    const seen = names(echoOf(answer));
    expect(seen).toEqual(expect.arrayContaining(['accept', 'if-none-match', 'x-request-id', 'range', 'via']));
    expect(seen).not.toContain('x-tenant');
    expect(seen).not.toContain('some_name');
    expect((await dropped()) - before).toBe(3);
  });

  test('sends fields that the configuration names', async () => {
    expect(names(echoOf(await scene.ask('GET /echo/x', 'SOAPAction: x', 'X-Tenant: b')))).toContain(
      'soapaction',
    );
  });
});

describe('a body that can be a form', () => {
  const client = useWire({
    settings: { restricted: { bodyTypes: ['text/plain', 'application/vnd.api+json'] } },
    top: {
      anonymous: false,
      clients: [
        {
          id: 'limited',
          identify: { addresses: ['127.0.0.0/8'] },
          allow: [{ deployment: 'submissions', parameters: { ids: { max: 2 } } }],
        },
      ],
    },
  });
  const post = (...lines: string[]) =>
    client.ask(`${['POST /echo HTTP/1.1', 'Host: x', ...lines].join('\r\n')}\r\n\r\n`, 'ids=a');

  test.each([
    ['without a type', []],
    ['whose type Connection removes', ['Content-Type: text/csv', 'Connection: content-type']],
    ['of application/json', ['Content-Type: application/json']],
    ['of multipart/mixed', ['Content-Type: multipart/mixed; boundary=x']],
    ['of application/x-url-encoded', ['Content-Type: application/x-url-encoded']],
  ])('%s is refused', async (_what, lines) => {
    const { requests: before } = client.simulator.counts('submissions');
    const answer = await post('Content-Length: 5', ...lines);
    expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
    expect(client.simulator.counts('submissions').requests).toBe(before);
  });

  test('is refused in chunks, too', async () => {
    const head = 'POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';
    expect(codeOf(await client.ask(head, '5\r\nids=a\r\n0\r\n\r\n'))).toBe('bad-request');
  });

  test.each(['text/csv', 'text/plain', 'application/vnd.api+json'])('is none as %s', async (type) => {
    expect(echoOf(await post('Content-Length: 5', `Content-Type: ${type}`)).body.length).toBe(5);
  });
});

describe('where a rule reads the query', () => {
  const ITEM = '/echo/strict/item?site_name=journal-a&ids=%27a%27';

  test.each([
    `${ITEM}&site[name=journal-b`,
    `${ITEM}&site%5Bname=journal-b`,
    `${ITEM}&site%255Bname=journal-b`,
    `${ITEM}&a%00b=1`,
    `/echo/strict/item?${'a&'.repeat(1000)}site_name=journal-a&ids=%27a%27`,
    `/echo/one/x?${'a&'.repeat(1000)}`,
  ])('a query of which servers read something else is refused', async (target) => {
    const before = scene.arrived();
    const answer = await scene.ask(`GET ${target}`);
    expect([answer.status, codeOf(answer)]).toEqual([400, 'parameter-invalid']);
    expect(scene.arrived()).toBe(before);
  });

  test.each(['%3F', '%23', '%26', '%253F', '%252523'])('a path with %s is refused', async (hidden) => {
    const before = scene.arrived();
    const answer = await scene.ask(`GET /echo/one/x${hidden}site_name=y`);
    expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
    expect(scene.arrived()).toBe(before);
  });
});

describe('the host', () => {
  const SECRET = '/echo/strict/secret';

  /** `http://HOST:PORT` of the upstream that three deployments share, as to a forward proxy. */
  function upstream(): string {
    const explanation = scene.explained('/echo/x');
    if (!explanation.allowed) throw new Error(explanation.detail);
    return `http${explanation.sends.slice('GET https'.length, -'/echo/x'.length)}`;
  }

  async function expectUnlisted(line: string, ...headers: string[]): Promise<void> {
    const before = scene.arrived();
    const answer = await scene.ask(line, ...headers);
    expect([answer.status, codeOf(answer)]).toEqual([403, 'operation-unlisted']);
    expect(scene.arrived()).toBe(before);
  }

  test('gets the rules of the path prefix', () => expectUnlisted(`GET ${SECRET}`));

  test('in an absolute target decides, whatever Host says', async () => {
    await expectUnlisted(`GET ${upstream()}${SECRET}`, 'Host: elsewhere.internal');
    await expectUnlisted(`GET ${upstream().toUpperCase()}${SECRET}`, 'Host: elsewhere.internal');
  });

  test('of another deployment leads to the upstream of that alone', async () => {
    // The abstracts service, which echoes as well: it is not the one that the rules of /echo/strict guard.
    const answer = await scene.ask(`GET ${SECRET}`, 'Host: elsewhere.internal');
    const { url, rawHeaders } = echoOf(answer);
    expect(url).toBe(SECRET);
    expect(upstream()).not.toBe(`http://${rawHeaders[rawHeaders.indexOf('host') + 1]}`);
  });

  test.each([
    'X-Forwarded-Host: elsewhere.internal',
    'Forwarded: host=elsewhere.internal',
    'X-Host: elsewhere.internal',
  ])('is not changed by %s', (header) => expectUnlisted(`GET ${SECRET}`, header));

  test('is refused if Host is given twice', async () => {
    const before = scene.arrived();
    const answer = await scene.ask(`GET ${SECRET}`, 'Host: gateway.internal', 'Host: elsewhere.internal');
    expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
    expect(scene.arrived()).toBe(before);
  });
});

describe('an injected site', () => {
  const SITE = 'site_name=Revue%20d%E2%80%99%C3%A9t%C3%A9';

  test.each([
    ['/echo/one/x', `/echo/one/x?${SITE}`],
    ['/echo/one/x?', `/echo/one/x?${SITE}`],
    ['/echo/one/x?a=1', `/echo/one/x?${SITE}&a=1`],
    ['/echo/one/x?a=1&', `/echo/one/x?${SITE}&a=1&`],
    ["/echo/one/x//y?ids='a',%27b%27&&=;=?", `/echo/one/x//y?${SITE}&ids='a',%27b%27&&=;=?`],
    [`/echo/one/x?${SITE}`, `/echo/one/x?${SITE}`],
  ])('is added to %s at the start of the query: %s', async (target, sent) => {
    expect(echoOf(await scene.ask(`GET ${target}`)).url).toBe(sent);
  });

  test.each([
    ['/echo/one/x?site_name=', 'site-required'],
    ['/echo/one/x?Site_Name=y', 'parameter-invalid'],
    ['/echo/one/x?site_name=y', 'site-unknown'],
    ['/echo/strict/parts/1', 'site-required'],
  ])('is not added to %s: %s', async (target, code) => {
    const before = scene.arrived();
    expect(codeOf(await scene.ask(`GET ${target}`))).toBe(code);
    expect(scene.arrived()).toBe(before);
  });
});

describe('a stripped prefix', () => {
  const settings = {
    match: { pathPrefix: '/gateway/submissions' },
    rewrite: { stripPrefix: '/gateway/submissions' },
    operations: { listed: { method: 'GET', path: '/echo/listed' } },
  };

  async function echoed(answer: Response): Promise<string> {
    expect(answer.status).toBe(200);
    return ((await answer.json()) as { url: string }).url;
  }

  test('leaves the rest of the target byte for byte, signed as it is sent', async () => {
    const { get, simulator } = await startScene({ settings });
    for (const rest of ['/echo/%27a%27/b?ids=%27x%27&y=%2F', '/echo/listed?a=1', '/echo//x']) {
      expect(await echoed(await get(`/gateway/submissions${rest}`))).toBe(rest);
    }
    expect(simulator.counts('submissions').refused.uri).toBe(0);
  });

  test('is removed before the rules are applied', async () => {
    const { get, gateway } = await startScene({ settings: { ...settings, unlistedOperations: 'deny' } });
    expect(await echoed(await get('/gateway/submissions/echo/listed'))).toBe('/echo/listed');
    expect((await get('/gateway/submissions/echo/other')).status).toBe(403);
    expect((await get('/gateway/submissions/gateway/submissions/echo/listed')).status).toBe(403);
    const labels = { operation: 'listed', status: '200' };
    expect(await gateway.metric('digest_gateway_requests_total', labels)).toBe(1);
    const { paths } = (await (await fetch(`${gateway.control}/openapi.json`)).json()) as { paths: object };
    expect(Object.keys(paths)).toEqual(['/gateway/submissions/echo/listed']);
  });

  test('ends where a path segment ends', async () => {
    const { get } = await startScene({ settings });
    expect((await get('/gateway/submissionsx/echo/a')).status).toBe(404);
  });
});

describe('the control plane', () => {
  // The other groups change the counts of theirs.
  const scene = useRules();
  const count = (labels: Record<string, string>) =>
    scene.gateway.metric('digest_gateway_requests_total', labels);

  test('counts requests by operation and client, never by what a client sent', async () => {
    const site = 'site_name=journal-a';
    await scene.ask(`GET /echo/strict/item?${site}&ids='a'`);
    await scene.ask(`GET /echo/strict/parts/1?${site}`);
    await scene.ask(`GET /echo/strict/parts/2?${site}`);
    await scene.ask(`GET /echo/strict/hunter2?${site}`);
    await scene.ask('GET /echo/hunter2');
    await scene.ask('GET /hunter2');
    const served = { client: 'anonymous', status: '200', code: '' };
    expect(await count({ ...served, deployment: 'strict', operation: 'item' })).toBe(1);
    expect(await count({ ...served, deployment: 'strict', operation: 'part' })).toBe(2);
    expect(await count({ ...served, deployment: 'free', operation: '' })).toBe(1);
    const refused = { client: 'anonymous', operation: '' };
    expect(await count({ ...refused, deployment: 'strict', status: '403', code: 'operation-unlisted' })).toBe(
      1,
    );
    expect(await count({ ...refused, deployment: '', status: '404', code: 'no-deployment' })).toBe(1);
    const durations = 'digest_gateway_request_duration_seconds_count';
    expect(await scene.gateway.metric(durations, { deployment: 'strict', operation: 'part' })).toBe(2);
    expect(await (await fetch(`${scene.gateway.control}/metrics`)).text()).not.toContain('hunter2');
  });

  test('describes the operations at the address of the gateway', async () => {
    const description = (await (await fetch(`${scene.gateway.control}/openapi.json`)).json()) as {
      servers: { variables: { port: { default: string } } }[];
      paths: Record<string, unknown>;
    };
    expect(description.servers[0]?.variables.port.default).toBe(String(scene.gateway.port));
    expect(Object.keys(description.paths)).toEqual([
      '/echo/strict/item',
      '/echo/strict/parts/{id}',
      '/echo/one/item',
    ]);
  });
});

describe('any target', () => {
  const piece = fc.constantFrom(
    ...['/', '/', '/', 'echo', 'strict', 'one', 'item', 'parts', 'x', '.', '..', 'ITEM', '%41', '%69tem'],
    ...[
      '%2f',
      '%2F',
      '%2e%2e',
      '%252e%252e',
      '%5c',
      '\\',
      ';',
      ';x',
      '//',
      '%00',
      '%c0%ae',
      '%',
      '%zz',
      '%u002e',
    ],
  );
  const path = fc
    .tuple(
      fc.constantFrom('/echo', '/echo/strict', '/echo/strict/item', '/echo/strict/parts/', '/echo/one/item'),
      fc.array(piece, { maxLength: 6 }),
    )
    .map(([start, pieces]) => start + pieces.join(''));
  const parameter = fc.oneof(
    {
      weight: 3,
      arbitrary: fc.constantFrom('site_name=journal-a', "ids='a'", 'ids=%27a%27,%27b%27', 'x=%zz', ''),
    },
    fc.constantFrom(
      ...['site_name=journal-b', 'site_name=Revue%20d%E2%80%99%C3%A9t%C3%A9', 'site_name=x', 'site_name='],
      ...[
        '%73ite_name=journal-b',
        'Site_Name=journal-a',
        'site_name[]=x',
        'ids=a',
        "ids='a'%0d%0aX:%20y",
        "ids='a",
      ],
    ),
  );
  const query = fc
    .array(fc.tuple(parameter, fc.constantFrom('&', '&', '&', '&', ';', '?')), { maxLength: 4 })
    .map((pairs) => pairs.map(([text, separator]) => text + separator).join(''));
  const almost = fc
    .tuple(fc.constantFrom('/echo/strict/item', '/echo/strict/parts/x'), query)
    .map(([left, right]) => `${left}?site_name=journal-a&ids='a'&${right}`);
  const anyTarget = fc
    .tuple(path, fc.option(query, { nil: undefined }))
    .map(([left, right]) => (right === undefined ? left : `${left}?${right}`));

  const target = fc.oneof(anyTarget, almost);

  /** One of each outcome, so that no run goes without. */
  const EXAMPLES = [
    "/echo/strict/item?site_name=journal-a&ids='a'",
    '/echo/strict/parts/x?site_name=journal-b',
    '/echo/strict/other?site_name=journal-b',
    "/echo/one/item?ids='a'",
    '/echo/one/item?ids=a',
    '/echo/x',
    '/echo/x/../strict',
  ];

  test('is refused as explained, or sent exactly as it was judged', async () => {
    const outcomes = new Set<string>();
    await scene.ask('GET /echo');
    await fc.assert(
      fc.asyncProperty(target, async (asked) => {
        const before = scene.arrived();
        const explanation = scene.explained(asked);
        const answer = await scene.ask(`GET ${asked}`);
        outcomes.add(explanation.allowed ? explanation.deployment : explanation.code);
        if (!explanation.allowed) {
          expect([answer.status, codeOf(answer)]).toEqual([explanation.status, explanation.code]);
          expect(scene.arrived()).toBe(before);
          return;
        }
        const { url } = echoOf(answer);
        expect(explanation.sends).toMatch(/^GET https:\/\/127\.0\.0\.1:\d+\//);
        expect(explanation.sends.endsWith(url)).toBe(true);
        const [path = '', rest = ''] = asked.split(/\?(.*)/s);
        const isAsked = url.startsWith(`${path}?site_name=`) && url.endsWith(rest);
        expect(explanation.siteAdded ? isAsked : url === asked).toBe(true);
      }),
      { numRuns: 600, examples: EXAMPLES.map((each) => [each]) },
    );
    // The targets are not all refused, nor for the same reason.
    const met = ['strict', 'one', 'free', 'bad-request', 'operation-unlisted', 'parameter-invalid'];
    expect([...outcomes]).toEqual(expect.arrayContaining(met));
  });
});
