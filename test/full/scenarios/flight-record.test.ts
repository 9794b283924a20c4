import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { useFolders } from '../../support/audit-log.ts';
import { READ_TOKEN, TOKEN_HASHES } from '../../support/operator.ts';
import { authors, startScene, startSceneWith } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const folder = useFolders();

const control = { port: 0, ...TOKEN_HASHES };

async function recordOf(origin: string, token = READ_TOKEN) {
  const headers = { authorization: `Bearer ${token}` };
  const response = await fetch(`${origin}/api/flight-record`, { headers });
  return { status: response.status, type: response.headers.get('content-type'), text: await response.text() };
}

test.each([1, 2])('the last events of %d workers are shown to a program with a token', async (workers) => {
  const { gateway, get } = await startSceneWith(workers, { top: { control } });
  for (let count = 0; count < 3; count += 1) expect((await get(authors)).status).toBe(200);
  const { status, type, text } = await recordOf(gateway.control);
  expect([status, type]).toEqual([200, 'application/x-ndjson; charset=utf-8']);
  const events = text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(events.filter(({ format }) => format === 2)).toHaveLength(workers);
  const requests = events.filter(({ kind }) => kind === 'request');
  expect(requests.map(({ result }) => result)).toEqual([200, 200, 200]);
  const accepted = events.filter(
    ({ kind, nonce, result }) => kind === 'exchange' && nonce !== '' && result === 200,
  );
  expect(accepted).toHaveLength(3);
  expect(text).not.toContain('demo-user');
  expect(text).not.toContain('submissionids');
  expect((await recordOf(gateway.control, 'a wrong one')).status).toBe(401);
});

test('a credential that is refused leaves a file that only its user can read, without secrets', async () => {
  const flightRecords = join(await folder(), 'records');
  const password = 'a-wrong-password';
  const { get } = await startScene({ password, top: { log: { flightRecords } } });
  expect((await get(authors)).status).toBe(502);
  let names: string[] = [];
  await until(async () => {
    names = await readdir(flightRecords).catch(() => []);
    const [name] = names;
    return name !== undefined && (await readFile(join(flightRecords, name), 'utf8')).endsWith('\n');
  });
  const [name = ''] = names;
  expect(names).toHaveLength(1);
  expect(name).toMatch(/^flight-\d{8}T\d{9}Z-[\da-f]{8}-credential-refused\.jsonl$/);
  const file = join(flightRecords, name);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  const text = await readFile(file, 'utf8');
  expect(text).toContain('"kind":"refused"');
  for (const secret of [password, 'demo-user', 'submissionids', '127.0.0.1"'])
    expect(text).not.toContain(secret);
});
