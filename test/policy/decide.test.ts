import { describe, expect, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { decide, type Grant } from '../../src/policy/decide.ts';
import { type Client, isObserved, unrestricted } from '../../src/policy/rules.ts';
import { DECISIONS, type Row } from './decisions.ts';
import { AUTHORS, type ClientName, clientOf, type DeploymentName, REPORTS, rulesOf } from './world.ts';

const CREDENTIALS: Readonly<Record<string, string>> = {
  'journal-a': 'key-a',
  'journal-b': 'key-b',
  'Revue d’été': 'key-b',
};

function judge(
  client: ClientName | Client,
  deployment: DeploymentName,
  request: string,
  headers: readonly string[] = [],
  now = 0,
) {
  const space = request.indexOf(' ');
  const [method, target] = [request.slice(0, space), request.slice(space + 1)];
  const hasBody = headers.some((name) => name.toLowerCase() === 'content-length');
  return {
    target,
    grant: decide(
      rulesOf(deployment),
      typeof client === 'string' ? clientOf(client) : client,
      { method, target, headers, hasBody },
      now,
    ),
  };
}

function refusal(...args: Parameters<typeof judge>): GatewayError {
  try {
    judge(...args);
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
  throw new Error('not refused');
}

/** As the table writes it; `client` in place of the one in the row. */
function outcome(row: Row, client: ClientName | Client = row[0]): string {
  const [, deployment, request, , ...headers] = row;
  let judged: { target: string; grant: Grant };
  try {
    judged = judge(client, deployment, request, headers);
  } catch (error) {
    if (error instanceof GatewayError) return error.code;
    throw error;
  }
  const { target, grant } = judged;
  const mark = target.indexOf('?');
  const [path, query] = mark === -1 ? [target, ''] : [target.slice(0, mark), target.slice(mark + 1)];
  expect(grant.target.startsWith(path)).toBe(true);
  expect(grant.target.endsWith(query)).toBe(true);
  const added =
    grant.target === target ? '' : grant.target.slice(path.length, grant.target.length - query.length);
  return `${grant.operation || '-'} @${grant.site || '-'}${added === '' ? '' : ` ${added}`}`;
}

describe.each(Object.entries(DECISIONS))('%s', (_title, rows) => {
  test.each(rows.map((row) => [row[0], row[1], row[2], row.slice(4).join(': '), row[3], row] as const))(
    '%s → %s: %s %s → %s',
    (_client, _deployment, _request, _headers, wanted, row) => expect(outcome(row)).toBe(wanted),
  );
});

test('the table has no row twice', () => {
  const rows = Object.values(DECISIONS).flat();
  expect(new Set(rows.map((row) => JSON.stringify([...row.slice(0, 3), ...row.slice(4)]))).size).toBe(
    rows.length,
  );
  expect(rows.length).toBeGreaterThanOrEqual(150);
});

describe('a grant', () => {
  test('has the credential of the site and the rule that holds', () => {
    const query = "ids=%27S-1%27,'S+2'&site_name=journal-b&external_id=7&other=x";
    const { grant } = judge('mixed', 'open', `GET ${AUTHORS}?${query}`);
    expect(grant).toEqual({
      site: 'journal-b',
      credential: 'key-b',
      credentialRule: '',
      operation: 'authors',
      noTotalTimeout: false,
      target: `${AUTHORS}?${query}`,
      headers: [],
      rule: clientOf('mixed').allow[1],
    });
  });

  test.each(Object.entries(CREDENTIALS))('for %s has %s', (site, credential) => {
    const { grant } = judge('anonymous', 'open', `GET /api/x?site_name=${encodeURIComponent(site)}`);
    expect(grant.credential).toBe(credential);
  });

  test.each([
    [['key-account', 'allow[0]'], 'open', `GET ${AUTHORS}?ids='x'&site_name=journal-b`],
    [['key-b', ''], 'open', `GET ${REPORTS}/1?site_name=journal-b`],
    [['key-account', 'allow[2]'], 'bare', `GET /bare/?ids='1','2'`],
    [['key-bare', ''], 'bare', `GET /bare/?ids='1','2','3'`],
  ] as const)(
    'has the credential that the first rule names which allows it: %j',
    (wanted, deployment, request) => {
      const { credential, credentialRule } = judge('account', deployment, request).grant;
      expect([credential, credentialRule]).toEqual(wanted);
    },
  );

  test.each([
    ['open', `POST /api/x?site_name=journal-b`, ['X-HTTP-Method-Override', 'GET']],
    ['open', `GET /api/x?site_name=journal-b&_method=GET`, []],
    ['bare', `GET /bare/a%3Fids=1`, []],
    ['bare', `POST /bare/`, ['Content-Length', '1', 'Content-Type', 'application/x-www-form-urlencoded']],
  ] as const)('for no spelling has the credential of a later rule: %s %s', (deployment, request, headers) => {
    expect(refusal('account', deployment, request, headers).code).toBe('bad-request');
  });

  test('without sites has the credential of the deployment', () => {
    expect(judge('anonymous', 'bare', 'GET /bare/').grant.credential).toBe('key-bare');
  });
});

describe('the fields of a request', () => {
  const honest = [
    ...[
      'Accept',
      '*/*',
      'ACCEPT-ENCODING',
      'gzip',
      'User-Agent',
      'x',
      'Accept',
      'text/html',
      'Range',
      'bytes=0-1',
    ],
    ...[
      'If-None-Match',
      '"a"',
      'Traceparent',
      '00-1',
      'X-Request-Id',
      '1',
      'Referer',
      'http://x/',
      'Empty',
      '',
    ],
  ].slice(0, -2);
  const other = ['X-Tenant', 'b', 'Some_Name', '1', 'SOAPAction', 'x'];

  test('of a restricted client are those of the list, in their order', () => {
    const fields = [...other, ...honest, ...other];
    expect(judge('limited', 'bare', 'GET /bare/', fields).grant.headers).toEqual(honest);
    expect(
      judge('anonymous', 'strict', `GET ${REPORTS}/7?site_name=journal-a`, fields).grant.headers,
    ).toEqual(honest);
    expect(judge('anonymous', 'v1', 'GET /v1/x', fields).grant.headers).toEqual(honest);
  });

  test('of a client without restrictions are not looked at', () => {
    const fields = [...honest, ...other, 'X-Original-URL', '/x'];
    expect(judge('anonymous', 'bare', 'GET /bare/', fields).grant.headers).toBe(fields);
    expect(judge('anonymous', 'open', 'GET /api/x?site_name=journal-a', fields).grant.headers).toBe(fields);
  });

  test('of the configuration are allowed, and bodies of its types', () => {
    const body = ['Content-Length', '5', 'Content-Type', 'TEXT/plain; charset=utf-8'];
    const { grant } = judge('named', 'named', 'POST /api/x?site_name=journal-a', [...other, ...body]);
    expect(grant.headers).toEqual(['SOAPAction', 'x', ...body]);
  });
});

describe('a refusal says what to do', () => {
  const A = 'site_name=journal-a';
  test.each<[string, ClientName, DeploymentName, string]>([
    [
      "The parameter ids does not have the expected form: identifiers in single quotes, with commas between them: 'A-1' or 'A-1','A-2'.",
      'anonymous',
      'open',
      `GET ${AUTHORS}?ids=S-1&${A}`,
    ],
    [
      "The parameter ids is missing: give identifiers in single quotes, with commas between them: 'A-1' or 'A-1','A-2'.",
      'anonymous',
      'open',
      `GET ${AUTHORS}?${A}`,
    ],
    [
      'The parameter external_id does not have the expected form: digits only.',
      'anonymous',
      'open',
      `GET ${AUTHORS}?ids='x'&${A}&external_id=x`,
    ],
    [
      'The parameter ids has 3 items: this client may send at most 2 at once.',
      'limited',
      'bare',
      "GET /bare/?ids='a','b','c'",
    ],
    [
      'The client reporting may not use this site. The operator of this gateway can allow it: see allow in the configuration.',
      'reporting',
      'open',
      `GET ${AUTHORS}?ids='x'&site_name=journal-b`,
    ],
    ['The parameter site_name is missing: name a site.', 'anonymous', 'open', 'GET /api/x'],
    [
      'The parameter site_name is missing, and more than one site is possible: name one.',
      'anonymous',
      'inject',
      'GET /api/x',
    ],
    [
      'The parameter site_name names a site that is not configured.',
      'anonymous',
      'open',
      'GET /api/x?site_name=x',
    ],
    [
      'The deployment strict serves its listed operations only, and GET of this path is none of them. Compare the method and the path, byte by byte, with the description of the API.',
      'anonymous',
      'strict',
      'GET /api/x',
    ],
  ])('%s', (detail, client, deployment, request) => {
    expect(refusal(client, deployment, request).detail).toBe(detail);
  });
});

describe('a client whose rules are only observed', () => {
  const rows = Object.values(DECISIONS).flat();

  test('is judged without them as everyone would be', () => {
    for (const row of rows)
      expect(outcome(row, unrestricted(clientOf(row[0])))).toBe(outcome(row, 'anonymous'));
    // The table has requests that only rules refuse.
    expect(
      rows.filter((row) => outcome(row).length !== outcome(row, 'anonymous').length).length,
    ).toBeGreaterThan(30);
  });

  test('keeps its name, and has the credential of the site for what no rule allows', () => {
    const client = clientOf('account');
    expect(unrestricted(client).id).toBe('account');
    const request = `POST /api/x?site_name=journal-b`;
    const fields = ['X-HTTP-Method-Override', 'GET'];
    expect(refusal('account', 'open', request, fields).code).toBe('bad-request');
    const { credential, credentialRule, headers } = judge(
      unrestricted(client),
      'open',
      request,
      fields,
    ).grant;
    expect([credential, credentialRule, headers]).toEqual(['key-b', '', fields]);
  });

  test('is refused from the given time on', () => {
    const client = { ...clientOf('nobody'), mode: { until: 1_000 } };
    expect([999, 1_000, 1_001].map((now) => isObserved(client, now))).toEqual([true, false, false]);
    expect(isObserved(clientOf('nobody'), 0)).toBe(false);
  });
});
