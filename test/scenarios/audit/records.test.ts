import { expect, test } from '@jest/globals';
import { auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { RawClient } from '../../support/raw-client.ts';
import { authors, startScene } from '../../support/scene.ts';

const folder = useFolders();

test.each(['write', 'fsync', 'async'] as const)(
  'records the response and its outcome, with durability %s',
  async (durability) => {
    const directory = await folder();
    const pair = await startScene({ audit: auditOptions(directory, { durability }) });
    const response = await pair.get(`${authors}&key=hunter2`, { headers: { 'x-request-id': 'mine' } });
    expect([response.status, (await response.text()).includes('Lindqvist')]).toEqual([200, true]);
    await pair.gateway.app.close();
    const records = await recordsIn(directory);
    expect(records.map(({ kind, event }) => event ?? kind)).toEqual(['start', 'access', 'outcome', 'stop']);
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
    });
    expect(records[2]).toMatchObject({ requestId: 'mine', access: 2, status: 200, bytes: { in: 0 } });
    const text = JSON.stringify(records);
    for (const secret of ['hunter2', 'demo-api-key', 'demo-user', 'nonce', 'Digest'])
      expect(text).not.toContain(secret);
  },
);

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
    { status: 400, code: 'bad-request', path: '', address: '127.0.0.1' },
    { status: 502, code: 'upstream-credential-refused', upstream: { status: 0, attempts: 2 } },
  ]);
  expect(records.find(({ event }) => event === 'credential-refused')).toMatchObject({
    deployment: 'submissions',
  });
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
  expect((await client.answer()).status).toBe(400);
  expect((await client.end()).toString()).toBe('');
  client.close();
  expect(pair.simulator.counts('submissions').requests).toBe(requests);
});
