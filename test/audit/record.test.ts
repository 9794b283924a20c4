import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { recordedTarget } from '../../src/audit/record.ts';
import { openTestAudit, recordAccess, recordsIn, useFolders } from '../support/audit-log.ts';

const folder = useFolders();

test('has the fields in order, and values only of the chosen parameters', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  expect(await recordAccess(audit, { key: 'Berlin "office"' })).toBe(true);
  audit.outcome({
    access: 1,
    requestId: 'q1',
    status: 200,
    code: '',
    outcome: 'throttled',
    bytes: { in: 0, out: 5 },
    durationMs: 2.34,
  });
  audit.admin('reload', { changed: ['anonymous'] });
  await audit.close();
  const [access, outcome, admin] = await recordsIn(directory);
  const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  expect(access).toEqual({
    seq: 1,
    time,
    kind: 'access',
    requestId: 'q1',
    replica: 'r1',
    client: 'reporting',
    address: '192.0.2.7',
    deployment: 'submissions',
    site: 'journal-a',
    operation: 'authors',
    method: 'GET',
    path: '/api/x',
    parameters: { ids: "'A'", token: null },
    status: 200,
    code: '',
    upstream: { status: 200, attempts: 1, challenged: false, durationMs: 1.3, address: 'a.example' },
    credential: { name: 'journal-a', version: '1' },
    key: 'Berlin "office"',
  });
  expect(Object.keys(access ?? {}).join()).toBe(
    'seq,time,kind,requestId,replica,client,address,deployment,site,operation,method,path,parameters,status,code,upstream,credential,key',
  );
  expect(outcome).toEqual({
    seq: 2,
    time,
    kind: 'outcome',
    requestId: 'q1',
    replica: 'r1',
    access: 1,
    status: 200,
    code: '',
    outcome: 'throttled',
    bytes: { in: 0, out: 5 },
    durationMs: 2.3,
  });
  expect(admin).toEqual({
    seq: 3,
    time,
    kind: 'admin',
    replica: 'r1',
    event: 'reload',
    changed: ['anonymous'],
  });
});

test('names the local address of an upstream that has several', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  const upstream = { status: 200, attempts: 1, challenged: false, durationMs: 1, address: 'a.example' };
  const waits = { queueMs: 0, connectMs: 0, earlierMs: 0 };
  await recordAccess(audit, { upstream: { ...upstream, ...waits, egress: '203.0.113.8' } });
  await audit.close();
  const [access] = await recordsIn(directory);
  expect(access?.['upstream']).toEqual({ ...upstream, egress: '203.0.113.8' });
});

test('has the parts of the time at the upstream that took at least a tenth of a millisecond', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  const upstream = { status: 200, attempts: 2, challenged: true, durationMs: 9, address: 'a.example' };
  await recordAccess(audit, {
    upstream: { ...upstream, queueMs: 0.04, connectMs: 2.06, earlierMs: 3, egress: '' },
  });
  await audit.close();
  const [access] = await recordsIn(directory);
  expect(access?.['upstream']).toEqual({ ...upstream, connectMs: 2.1, earlierMs: 3 });
});

test('has what the rules of a client would refuse, and the rule that names the credential, only if there is one', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  await recordAccess(audit, { wouldRefuse: 'client-forbidden' });
  await recordAccess(audit, { credentialRule: 'allow[0]' });
  await audit.close();
  const records = await recordsIn(directory);
  expect(records.map(({ credentialRule, wouldRefuse }) => [credentialRule, wouldRefuse])).toEqual([
    [undefined, 'client-forbidden'],
    ['allow[0]', undefined],
  ]);
});

test('has the end of a response that is whole at its head', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  const end = { outcome: '', bytes: { in: 3, out: 5 }, durationMs: 2.34 };
  await recordAccess(audit, { end });
  await recordAccess(audit, { end: { ...end, outcome: 'throttled' } });
  await audit.close();
  const [plain, named] = await recordsIn(directory);
  expect(plain).toMatchObject({ kind: 'access', bytes: { in: 3, out: 5 }, durationMs: 2.3 });
  expect(plain).not.toHaveProperty('outcome');
  expect(named).toMatchObject({ kind: 'access', outcome: 'throttled', credential: { version: '1' } });
});

test('escapes client input, so that it cannot end a line or a field', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  const hostile = '\n{"seq":99}\r\u2028\u0000"\\\ud800';
  await recordAccess(audit, {
    requestId: hostile,
    client: hostile,
    address: hostile,
    method: hostile,
    target: `/${hostile}?ids=${hostile}&__proto__=1&${hostile}=2&seq=3&ids=%00%0a%22`,
  });
  await audit.close();
  const records = await recordsIn(directory);
  expect(records).toHaveLength(1);
  const [record] = records;
  expect([record?.['seq'], record?.['client']]).toEqual([1, hostile]);
  expect(record?.['parameters']).toHaveProperty('ids', [hostile, '\u0000\n"']);
  expect(Object.keys(record?.['parameters'] as object)).toEqual(['ids', '__proto__', hostile, 'seq']);
});

describe('records a target', () => {
  const byValue = new Set(['ids', 'id'.repeat(12)]);
  const shown = (target: string) => {
    const { path, parameters, cut } = recordedTarget(target, byValue);
    return [path, [...parameters], cut];
  };

  test.each([
    ['/a', ['/a', [], false]],
    ['/a?', ['/a', [], false]],
    ['/a?&', ['/a', [['', null]], false]],
    ['/a?ids', ['/a', [['ids', '']], false]],
    ['/a?ids=%ff&%69ds=b=c', ['/a', [['ids', ['%ff', 'b=c']]], false]],
    ['/a?ids=%27%44-1%27%2C%27%FF%27', ['/a', [['ids', "'D-1','%FF'"]], false]],
    ['/a?ids=%27%44-1%27,%&ids=%4&ids=%zz%41', ['/a', [['ids', ["'D-1',%", '%4', '%zzA']]], false]],
    [
      '/a?ids=%E2%27%C3%A9%27%ED%A0%80%C0%A7%F0%9F%98%80',
      ['/a', [['ids', "%E2'é'%ED%A0%80%C0%A7😀"]], false],
    ],
    [`/a?ids=%27${'x'.repeat(507)}%27`, ['/a', [['ids', `'${'x'.repeat(507)}%2`]], true]],
    ['/%0a?x=secret&x=other', ['/%0a', [['x', null]], false]],
    [`/?${'%69%64'.repeat(12)}=A`, ['/', [['id'.repeat(12), 'A']], false]],
    [
      `/?${'x&'.repeat(40)}ids=A-1&y=1&ids=A-2`,
      [
        '/',
        [
          ['x', null],
          ['ids', ['A-1', 'A-2']],
        ],
        true,
      ],
    ],
  ])('as it was sent: %s', (target, expected) => expect(shown(target)).toEqual(expected));

  test('decoded, also beside a broken escape', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 40 }), (value) => {
        const { parameters } = recordedTarget(`/?ids=${encodeURIComponent(value)}%`, byValue);
        expect(parameters.get('ids')).toBe(`${value}%`);
      }),
    );
  });

  test('with the last value, if a parameter comes more often than is recorded', () => {
    const { parameters, cut } = recordedTarget(`/?${'ids=A-1&'.repeat(40)}ids=A-2`, byValue);
    expect([parameters.get('ids')?.length, parameters.get('ids')?.at(-1), cut]).toEqual([32, 'A-2', true]);
  });

  test('within bounds, and says if a part was cut', () => {
    const long = 'x'.repeat(65_536);
    for (const target of [`/${long}`, `/?${long}=1`, `/?ids=${long}`, `/?${'a=1&'.repeat(40)}`]) {
      const { path, parameters, cut } = recordedTarget(target, byValue);
      const text = path + JSON.stringify([...parameters]);
      expect([cut, text.length < 4096]).toEqual([true, true]);
    }
  });
});
