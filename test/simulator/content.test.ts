import { describe, expect, test } from '@jest/globals';
import { submissions } from '../../src/simulator/content.ts';
import { toJson, toXml } from '../../src/simulator/documents.ts';
import { readIds } from '../../src/simulator/operations.ts';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import { authors, authorsPath, openSession, type Seen, user } from './session.ts';

/** Answers in one go to a request for the authors with this query. */
async function authorsOf(query: string, behaviour: BehaviourChange = {}): Promise<Seen> {
  const { challenge, answered } = await openSession(behaviour);
  return answered(await challenge(), { target: `${authorsPath}?${query}` });
}

/** The element names in order, with their depth; throws when an element is not closed. */
function outline(xml: string): string[] {
  const open: string[] = [];
  const names: string[] = [];
  for (const [, closing, name = ''] of xml.matchAll(/<(\/?)(\w+)>/g)) {
    if (closing === '') {
      names.push(`${'.'.repeat(open.length)}${name}`);
      open.push(name);
    } else if (open.pop() !== name) throw new Error(`${name} is closed, but is not the open element.`);
  }
  if (open.length > 0) throw new Error(`${open.join()} stay open.`);
  return names;
}

describe('authors by submission identifier', () => {
  test('are XML with every author and the external identifier', async () => {
    const seen = await authorsOf('ids=%27DEMO-2026-0001%27&site_name=demo&external_id=123');
    const text = seen.body.toString();
    expect(seen.status).toBe(200);
    expect(seen.headers['content-type']).toBe('application/xml');
    expect(seen.headers['content-length']).toBe(String(seen.body.length));
    expect(text).toMatch(/^<\?xml version="1.0" encoding="UTF-8"\?>\n<response><status>SUCCESS<\/status>/);
    expect(text).toContain('<externalId>123</externalId>');
    expect(text).toContain('<submissionTitle>Salt &amp; light: how tide pools remember</submissionTitle>');
    expect(outline(text).filter((name) => name.endsWith('.author'))).toHaveLength(3);
  });

  test('several identifiers keep their order; unknown ones have no record', async () => {
    const seen = await authorsOf('site_name=demo&ids=%27DEMO-2026-0003%27,%27NONE%27,%27DEMO-2026-0001%27');
    const found = [...seen.body.toString().matchAll(/<submissionId>([^<]*)</g)].map(([, id]) => id);
    expect(seen.status).toBe(200);
    expect(found).toEqual(['DEMO-2026-0003', 'DEMO-2026-0001']);
    expect(seen.body.toString()).not.toContain('externalId');
  });

  test('JSON where the setting says so', async () => {
    const query = 'ids=%27DEMO-2026-0002%27&site_name=demo';
    const seen = await authorsOf(`${query}&_type=json`);
    expect(seen.headers['content-type']).toBe('application/json;charset=UTF-8');
    expect(JSON.parse(seen.body.toString())).toMatchObject({
      response: { status: 'SUCCESS', result: [{ submissionId: 'DEMO-2026-0002' }] },
    });
    const json = { parameter: 'format', value: 'JSON' };
    expect((await authorsOf(`${query}&format=JSON`, { json })).headers['content-type']).toMatch('json');
    expect((await authorsOf(`${query}&_type=json`, { json: null })).headers['content-type']).toMatch('xml');
  });

  test('HEAD is GET without the body', async () => {
    const { challenge, answered } = await openSession();
    const target = `${authorsPath}?ids=%27DEMO-2026-0001%27&site_name=demo`;
    const get = await answered(await challenge(), { target });
    const head = await answered(await challenge(), { target, method: 'HEAD' }, { method: 'HEAD' });
    expect(head.status).toBe(200);
    expect(head.headers['content-length']).toBe(get.headers['content-length']);
    expect(head.body).toHaveLength(0);
  });

  test.each([
    ['no ids', 'site_name=demo'],
    ['ids without quotes', 'site_name=demo&ids=DEMO-2026-0001'],
    ['one quote', 'site_name=demo&ids=%27DEMO-2026-0001'],
    ['external_id that is no number', 'site_name=demo&ids=%27A%27&external_id=12a'],
  ])('400 for %s', async (_, query) => {
    const seen = await authorsOf(query);
    expect(seen.status).toBe(400);
    expect(seen.headers['content-type']).toBe('application/xml;charset=UTF-8');
    expect(outline(seen.body.toString())).toContain('..errorCode');
  });

  test('other methods are refused', async () => {
    const { challenge, answered } = await openSession();
    const seen = await answered(await challenge(), { method: 'DELETE' }, { method: 'DELETE' });
    expect([seen.status, seen.headers['allow']]).toEqual([405, 'GET, HEAD']);
  });
});

test('abstracts by identifier have the Content-Type of their own', async () => {
  const { challenge, answered, simulator, ask } = await openSession({ kind: 'abstracts' });
  expect(simulator.deployments.abstracts.family).toBe('abstracts');
  const target = '/api/manuscripts/v3/abstracts/full/abstractsbyid?site_name=demo&ids=%27A-1001%27';
  const seen = await answered(await challenge(), { target });
  expect(seen.status).toBe(200);
  expect(seen.headers['content-type']).toBe('application/xml;charset=UTF-8');
  expect(seen.body.toString()).toContain('we read &lt;sixty&gt; of them');
  expect((await ask(target)).status).toBe(401);
});

describe('the checks come in their order', () => {
  const wrongSite = `${authorsPath}?ids=%27DEMO-2026-0001%27&site_name=other`;

  test('a wrong site is 500, after Digest', async () => {
    const { challenge, answered, simulator } = await openSession();
    const seen = await answered(await challenge(), { target: wrongSite });
    expect(seen.status).toBe(500);
    expect(seen.headers).toMatchObject({
      'content-type': 'application/xml;charset=UTF-8',
      'x-frame-options': 'DENY',
      'content-length': String(seen.body.length),
      server: 'Simulator',
    });
    expect(seen.headers['date']).toBeDefined();
    expect((await answered(await challenge(), { target: wrongSite, password: 'guess' })).status).toBe(401);
    expect(simulator.counts('submissions')).toMatchObject({ refusedBySite: 1, accepted: 1 });
  });

  test('no site is a wrong site, and an account has its own', async () => {
    expect((await authorsOf('ids=%27DEMO-2026-0001%27')).status).toBe(500);
    const accounts = [
      { ...user, sites: ['demo'] },
      { username: 'two', password: 'pw', sites: ['a', 'b'] },
    ];
    const { challenge, answered } = await openSession({ accounts });
    const two = { username: 'two', password: 'pw' };
    for (const [site, status] of Object.entries({ a: 200, b: 200, demo: 500 })) {
      const target = `${authorsPath}?ids=%27DEMO-2026-0001%27&site_name=${site}`;
      expect((await answered(await challenge(), { ...two, target })).status).toBe(status);
    }
  });

  test('while a password is changed both are right, for each algorithm', async () => {
    const accounts = [{ ...user, otherPasswords: ['new'], sites: ['demo'] }];
    for (const algorithm of ['MD5', 'SHA-256-sess'] as const) {
      const { challenge, answered, simulator } = await openSession({
        accounts,
        qop: 'auth',
        algorithms: [algorithm],
      });
      const statusWith = async (password: string) =>
        (await answered(await challenge(), { password, target: authors })).status;
      expect([await statusWith(user.password), await statusWith('new'), await statusWith('other')]).toEqual([
        200, 200, 401,
      ]);
      simulator.set('submissions', { accounts: [{ ...user, password: 'new', sites: ['demo'] }] });
      expect([await statusWith(user.password), await statusWith('new')]).toEqual([401, 200]);
    }
  });

  test('an unregistered address is refused after Digest and before the site', async () => {
    const { challenge, answered, simulator, ask } = await openSession({
      allowedAddresses: ['10.0.0.0/8', '::1'],
    });
    expect((await ask(wrongSite)).status).toBe(401);
    expect((await answered(await challenge(), { target: wrongSite })).status).toBe(403);
    simulator.set('submissions', { addressRefusalStatus: 404 });
    expect((await answered(await challenge())).status).toBe(404);
    expect(simulator.counts('submissions')).toMatchObject({
      refusedByAddress: 2,
      refusedBySite: 0,
      accepted: 2,
    });
    simulator.set('submissions', { allowedAddresses: ['127.0.0.0/30'] });
    expect((await answered(await challenge())).status).toBe(200);
  });

  test('another path is 404, after Digest', async () => {
    const { challenge, answered, ask } = await openSession({ testPaths: false });
    expect((await ask('/echo')).status).toBe(401);
    const seen = await answered(await challenge(), { target: '/echo' });
    expect([seen.status, seen.headers['content-type']]).toEqual([404, 'application/xml;charset=UTF-8']);
  });
});

describe('an ids value', () => {
  const quoted = { quoted: true, separator: ',', max: 3 };
  test.each([
    ["'a'", ['a']],
    ["'a','b'", ['a', 'b']],
    ["'a,b','c'", ['a,b', 'c']],
    ["'a','b','c','d'", undefined],
    ["'a',", undefined],
    ["'a''b'", undefined],
    ["'a' ,'b'", undefined],
    ["''", undefined],
    ["'", undefined],
    ['a', undefined],
    ['', undefined],
  ])('%j quoted', (value, ids) => expect(readIds(value, quoted)).toEqual(ids));

  test.each([
    ['a', ['a']],
    ['a|b', ['a', 'b']],
    ['a|', undefined],
    ['', undefined],
  ])('%j bare, with another separator', (value, ids) => {
    expect(readIds(value, { quoted: false, separator: '|', max: 3 })).toEqual(ids);
  });
});

describe('documents', () => {
  test('XML escapes everything that it must', () => {
    const xml = toXml('r', { a: `<b>&"'` }).toString();
    expect(xml).toContain('<r><a>&lt;b&gt;&amp;&quot;&apos;</a></r>');
  });

  test('every invented record is well-formed and the same in JSON', () => {
    for (const record of submissions.values()) {
      expect(outline(toXml('r', record).toString())).toContain('..author');
      expect(JSON.parse(toJson('r', record).toString())).toEqual({ r: record });
    }
  });
});
