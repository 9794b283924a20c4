import { expect, test } from '@jest/globals';
import { closing } from '../../support/closing.ts';
import { startGatewayProcess } from '../../support/gateway-process.ts';
import { until } from '../../support/until.ts';

/** Each is a line of some 15,000 bytes in the log. */
const REQUESTS = 150;

test('a log that nobody reads stops no request, and goes on when somebody does', async () => {
  const gateway = await startGatewayProcess(
    { upstream: { origin: 'https://127.0.0.1:1', settings: { match: { pathPrefix: '/api/' } } } },
    { log: { requests: true } },
  );
  closing.push(() => gateway.kill());
  const get = async (path: string): Promise<number> =>
    (await fetch(`${gateway.origin}/${path}`, { signal: AbortSignal.timeout(20_000) })).status;

  gateway.pauseLog();
  const statuses = new Set<number>();
  for (let at = 0; at < REQUESTS; at += 1) statuses.add(await get('a'.repeat(15_000)));
  expect([...statuses]).toEqual([404]);
  expect((await fetch(`${gateway.control}/livez`)).status).toBe(200);

  gateway.readLog();
  await until(async () => {
    await get('read-again');
    return gateway.logged.some(({ path }) => path === '/read-again');
  });
  gateway.pauseLog();
  for (let at = 0; at < REQUESTS; at += 1) await get('a'.repeat(15_000));
  await gateway.close();
});

test('a log on a socket that nobody reads stops no request after workers were replaced', async () => {
  const gateway = await startGatewayProcess(
    { upstream: { origin: 'https://127.0.0.1:1', settings: { match: { pathPrefix: '/api/' } } } },
    { log: { requests: true }, workers: 2 },
  );
  closing.push(() => gateway.kill());
  // A worker that ends leaves the socket as it found it, and every process has the same.
  process.kill(gateway.pid, 'SIGUSR2');
  await until(() => gateway.logged.some(({ msg }) => msg === 'upgrade: the old workers have ended'));
  gateway.pauseLog();
  const statuses = new Set<number>();
  for (let at = 0; at < REQUESTS; at += 1) {
    const signal = AbortSignal.timeout(20_000);
    statuses.add((await fetch(`${gateway.origin}/${'a'.repeat(15_000)}`, { signal })).status);
  }
  expect([...statuses]).toEqual([404]);
  expect((await fetch(`${gateway.control}/livez`)).status).toBe(200);
  gateway.readLog();
  await gateway.close();
});
