import { expect, test } from '@jest/globals';
import { endsProcess } from '../../../src/audit/segments/admin-records.ts';
import { auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { closedAtEnd } from '../../support/closing.ts';
import { type RunningGateway, startGateway } from '../../support/gateway.ts';
import { RawClient, valuesOf } from '../../support/raw-client.ts';
import { authors, startScene } from '../../support/scene.ts';
import { startRawUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';

const folder = useFolders();

test.each(['write', 'fsync', 'async'] as const)(
  'records a response that is whole at its head once, with durability %s',
  async (durability) => {
    const directory = await folder();
    const pair = await startScene({ audit: auditOptions(directory, { durability }) });
    const response = await pair.get(`${authors}&key=hunter2`, { headers: { 'x-request-id': 'mine' } });
    expect([response.status, (await response.text()).includes('Lindqvist')]).toEqual([200, true]);
    await pair.gateway.app.close();
    const records = await recordsIn(directory);
    expect(records.map(({ kind, event }) => event ?? kind)).toEqual(['start', 'access', 'stop']);
    expect(records[1]).toMatchObject({
      requestId: 'mine',
      address: '127.0.0.1',
      deployment: 'submissions',
      method: 'GET',
      path: authors.split('?')[0],
      parameters: { ids: "'DEMO-2026-0001'", site_name: 'demo', external_id: null, key: null },
      status: 200,
      code: '',
      upstream: { status: 200, attempts: 2, challenged: true },
      credential: { name: 'submissions', version: '1' },
      bytes: { in: 0, out: Number(response.headers.get('content-length')) },
      durationMs: expect.any(Number),
    });
    const text = JSON.stringify(records);
    for (const secret of ['hunter2', 'demo-api-key', 'demo-user', 'nonce', 'Digest'])
      expect(text).not.toContain(secret);
  },
);

test('records a start that fails, whose log is not taken for a log that grew without records', async () => {
  const directory = await folder();
  const { gateway, deployment } = await startScene();
  const listen = [{ address: '127.0.0.1', port: gateway.port }];
  const starting = startGateway({ submissions: deployment }, { listen }, { audit: auditOptions(directory) });
  await expect(starting).rejects.toThrow('listens on port');
  const records = await recordsIn(directory);
  expect(records.map(({ event }) => event)).toEqual(['start-failed']);
  expect(records.map((record) => endsProcess(JSON.stringify(record)))).toEqual([true]);
});

test('records a refused credential and a malformed request', async () => {
  const directory = await folder();
  const pair = await startScene({ audit: auditOptions(directory), password: 'wrong' });
  const client = await RawClient.open(pair.gateway.port);
  await client.send('GET nonsense HTTP/1.1\r\nHost: a\r\n\r\n');
  expect((await client.answer()).status).toBe(400);
  client.close();
  expect((await pair.get(authors)).status).toBe(502);
  await pair.gateway.app.close();
  const records = await recordsIn(directory);
  expect(records.filter(({ kind }) => kind === 'access')).toMatchObject([
    { status: 400, code: 'bad-request', path: '', address: '127.0.0.1', bytes: { in: 0, out: 0 } },
    {
      status: 502,
      code: 'upstream-credential-refused',
      upstream: { status: 0, attempts: 2 },
      bytes: { in: 0, out: 0 },
    },
  ]);
  expect(records.filter(({ kind }) => kind === 'outcome')).toEqual([]);
  expect(records.find(({ event }) => event === 'credential-refused')).toMatchObject({
    deployment: 'submissions',
  });
});

test.each([
  ['an unknown method', 'PROPFOO /a/b?c=d HTTP/1.1\r\nHost: a\r\n', 'PROPFOO', 'not-implemented'],
  [
    'a length and chunks',
    'POST /a/b?c=d HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n',
    'POST',
    'bad-request',
  ],
  ['no host', 'GET http://user:pass@a/a/b?c=d HTTP/1.1\r\n', 'GET', 'bad-request'],
])('records what was asked for by a request that is refused for %s', async (_title, head, method, code) => {
  const directory = await folder();
  const { gateway } = await startScene({ audit: auditOptions(directory) });
  const client = await RawClient.open(gateway.port);
  await client.send(`${head}X-Request-Id: mine\r\n\r\n`);
  expect(valuesOf(await client.answer(), 'connection')).toEqual(['close']);
  client.close();
  await gateway.app.close();
  const records = await recordsIn(directory);
  expect(records.filter(({ kind }) => kind !== 'admin')).toMatchObject([
    { requestId: 'mine', client: '', method, path: '/a/b', code },
  ]);
});

test('holds back a large body for its record only', async () => {
  const directory = await folder();
  const pair = await startScene({ audit: auditOptions(directory, { durability: 'fsync' }) });
  const response = await pair.get('/bytes/3000000');
  expect([response.status, (await response.arrayBuffer()).byteLength]).toEqual([200, 3_000_000]);
  await pair.gateway.app.close();
  expect((await recordsIn(directory)).find(({ kind }) => kind === 'outcome')).toMatchObject({
    bytes: { out: 3_000_000 },
  });
});

test('reads nothing behind a refused request while the record of the refusal is being written', async () => {
  const pair = await startScene({ audit: auditOptions(await folder(), { durability: 'fsync' }) });
  expect((await pair.get(authors)).status).toBe(200);
  const { requests } = pair.simulator.counts('submissions');
  const client = await RawClient.open(pair.gateway.port);
  const hidden = `GET ${authors} HTTP/1.1\r\nHost: a\r\n\r\n`;
  await client.send(
    `POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n${hidden}`,
  );
  expect((await client.answer()).status).toBe(501);
  expect((await client.end()).toString()).toBe('');
  client.close();
  expect(pair.simulator.counts('submissions').requests).toBe(requests);
});

/** A gateway with an audit log before an upstream that responds like this. */
async function startBefore(
  directory: string,
  answerTo: Parameters<typeof startRawUpstream>[0],
  settings: Record<string, unknown> = {},
): Promise<RunningGateway> {
  const upstream = await closedAtEnd(startRawUpstream(answerTo));
  const up = { origin: upstream.origin, settings: { tls: { allowPlaintext: true }, ...settings } };
  return closedAtEnd(startGateway({ up }, {}, { audit: auditOptions(directory) }));
}

test.each([
  ['a small GET', 'GET', '200 OK', 'Content-Length: 5\r\n', 'hello', 5],
  ['a small GET in chunks', 'GET', '200 OK', 'Transfer-Encoding: chunked\r\n', '5\r\nhello\r\n0\r\n\r\n', 5],
  ['a HEAD', 'HEAD', '200 OK', 'Content-Length: 5\r\n', '', 0],
  ['a 204', 'DELETE', '204 No Content', '', '', 0],
  ['a 304', 'GET', '304 Not Modified', 'ETag: "a"\r\n', '', 0],
])('writes one record for %s', async (_title, method, status, fields, body, out) => {
  const directory = await folder();
  const gateway = await startBefore(directory, () => `HTTP/1.1 ${status}\r\n${fields}\r\n${body}`);
  const response = await fetch(`${gateway.origin}/`, { method });
  await response.arrayBuffer();
  await gateway.close();
  const records = (await recordsIn(directory)).filter(({ kind }) => kind !== 'admin');
  expect(records).toMatchObject([
    {
      kind: 'access',
      method,
      status: response.status,
      bytes: { in: 0, out },
      durationMs: expect.any(Number),
    },
  ]);
});

test('writes two records for a response that breaks off, none of them with an end that did not come', async () => {
  const directory = await folder();
  const gateway = await startBefore(directory, () => ({
    text: 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello',
    end: true,
  }));
  // What the client sees depends on whether its head has left by then.
  await fetch(`${gateway.origin}/`)
    .then((response) => response.text())
    .catch(() => '');
  await gateway.close();
  const [access, outcome] = (await recordsIn(directory)).filter(({ kind }) => kind !== 'admin');
  expect(access).toMatchObject({ kind: 'access', status: 200, code: '' });
  expect(access).not.toHaveProperty('bytes');
  expect(outcome).toMatchObject({ kind: 'outcome', access: access?.['seq'], code: 'upstream-unreachable' });
});

test('says afterwards that a client did not take a response that was whole', async () => {
  const directory = await folder();
  const body = 'x'.repeat(16_000);
  const gateway = await startBefore(
    directory,
    () => `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    { timeouts: { idle: '300ms' } },
  );
  const client = await RawClient.open(gateway.port);
  client.socket.pause();
  // More than the buffers of both sockets take.
  const count = 2_000;
  await client.send('GET /x HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(count));
  await until(
    async () => (await gateway.metric('digest_gateway_requests_total', { code: 'client-timeout' })) === 1,
  );
  client.close();
  await gateway.close();
  const records = (await recordsIn(directory)).filter(({ kind }) => kind !== 'admin');
  const accesses = records.filter(({ kind }) => kind === 'access');
  expect(accesses.length).toBeLessThan(count);
  const outcomes = records.filter(({ kind }) => kind === 'outcome');
  const last = accesses.at(-1);
  expect(last).toMatchObject({ status: 200, code: '', bytes: { out: body.length } });
  expect(outcomes.at(-1)).toMatchObject({ access: last?.['seq'], status: 499, code: 'client-timeout' });
  expect(outcomes.filter(({ access }) => accesses.find(({ seq }) => seq === access)?.['bytes'])).toHaveLength(
    1,
  );
});
