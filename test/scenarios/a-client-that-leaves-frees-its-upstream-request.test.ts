import { expect, test } from '@jest/globals';
import type { Pair } from '../support/simulated-pair.ts';
import { authors, startPair } from '../support/simulated-pair.ts';

async function until(reached: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await reached())) await new Promise((resolve) => setImmediate(resolve));
}

async function leave({ get, simulator, gateway }: Pair, target: string): Promise<void> {
  const leaving = new AbortController();
  const asked = get(target, { signal: leaving.signal })
    .then((answer) => answer.text())
    .catch((error: Error) => error.name);
  await until(() => simulator.counts('submissions').accepted === 1);
  leaving.abort();
  expect(await asked).toBe('AbortError');
  await until(() => simulator.counts('submissions').aborted === 1);
  await until(async () => (await gateway.metric('digest_gateway_requests_in_flight')) === 0);
}

test('before the head: cancelled, counted as 499, no line in the log', async () => {
  const pair = await startPair({ faults: [{ kind: 'hang', when: 'authenticated', times: 1 }] });
  await leave(pair, authors);
  const gone = { status: '499', code: 'client-closed' };
  expect(await pair.gateway.metric('digest_gateway_requests_total', gone)).toBe(1);
  expect(pair.gateway.logged).toEqual([]);
  expect((await pair.get(authors)).status).toBe(200);
});

test('within the body: the same', async () => {
  const pair = await startPair({
    faults: [{ kind: 'slow-body', bytes: 100, everyMs: 5, when: 'authenticated', times: 1 }],
  });
  await leave(pair, '/bytes/1000000');
  const gone = { status: '499', code: 'client-closed' };
  expect(await pair.gateway.metric('digest_gateway_requests_total', gone)).toBe(1);
  expect(pair.gateway.logged).toEqual([]);
});
