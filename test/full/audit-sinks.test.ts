import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { AUDIT_KEY, useFolders } from '../support/audit-log.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { linesIn, startOtlp } from '../support/otlp-receiver.ts';
import { freePort } from '../support/server-process.ts';
import { startSimulator } from '../support/simulator.ts';
import { linesOf, SINK } from '../support/sink-scene.ts';
import { receivedIn, startSyslog } from '../support/syslog-server.ts';
import { until } from '../support/until.ts';

const newFolder = useFolders();
const MEBIBYTE = 2 ** 20;
const REPLICA = 'gw';

interface Scene {
  readonly folder: string;
  /** Starts `serve` with the sink, on the same audit directory each time. */
  start(workers?: number): Promise<GatewayProcess>;
  /** Sends so many requests, some at a time. Each makes two records. */
  send(gateway: GatewayProcess, count: number): Promise<void>;
  /** Every record in the folders of all processes. */
  lines(): Promise<string[]>;
}

async function scene(sink: object): Promise<Scene> {
  const folder = await newFolder();
  const simulator = await closedAtEnd(startSimulator({ deployments: defaultSettings().deployments }));
  const directory = join(folder, 'audit');
  await writeFile(join(folder, 'key'), AUDIT_KEY, { mode: 0o600 });
  const audit = {
    directory,
    replica: REPLICA,
    keyFile: join(folder, 'key'),
    sinks: [{ name: SINK, ...sink }],
  };
  return {
    folder,
    async start(workers = 1) {
      const upstream = { origin: simulator.deployments.submissions.origin, ca: simulator.ca };
      const drain = { delay: '0s', timeout: '20s' };
      const gateway = await startGatewayProcess({ submissions: upstream }, { audit, workers, drain });
      closing.push(() => gateway.close());
      return gateway;
    },
    async send({ origin }, count) {
      let left = count;
      const work = async (): Promise<void> => {
        while (left > 0) {
          left -= 1;
          await (await fetch(`${origin}/?n=${left}`)).arrayBuffer();
        }
      };
      await Promise.all(Array.from({ length: 16 }, work));
    },
    async lines() {
      const logs = await readdir(directory);
      return (await Promise.all(logs.map((log) => linesOf(directory, log)))).flat();
    },
  };
}

async function textsIn(file: string): Promise<string[]> {
  return (await receivedIn(file)).map(({ text }) => text);
}

test('a receiver over TLS gets the records of all workers, of those that were killed, and the last ones', async () => {
  const authority = await createTestAuthority();
  const port = await freePort();
  const tls = { pair: await authority.server(), ca: authority.ca };
  const caFile = join(await newFolder(), 'ca.pem');
  await writeFile(caFile, authority.ca);
  const { start, send, lines, folder } = await scene({
    syslog: { host: 'localhost', port, tls: { caFile } },
  });
  const file = join(folder, 'received');
  await closedAtEnd(startSyslog({ port, tls, file }));
  const gateway = await start(2);
  await send(gateway, 100);
  const [worker = 0] = await gateway.workers();
  process.kill(worker, 'SIGKILL');
  await until(async () => (await gateway.metric('digest_gateway_worker_exits_total')) === 1);
  await send(gateway, 100);
  // The worker that was killed may not have written every outcome.
  const sent = (): Promise<number> =>
    gateway.metric('digest_gateway_audit_sink_records_total', { sink: SINK });
  await until(async () => (await sent()) >= (await lines()).length);
  await gateway.drain();
  const all = await lines();
  expect(all.filter((line) => line.includes('"kind":"access"'))).toHaveLength(200);
  expect(all.filter((line) => line.includes('"event":"stop"')).length).toBeGreaterThanOrEqual(2);
  expect((await textsIn(file)).toSorted()).toEqual(all.toSorted());
  expect(gateway.logged.filter(({ sink }) => sink !== undefined)).toEqual([]);
});

test('an OTLP receiver over TLS gets the records of all workers, and what it refused for good is counted', async () => {
  const authority = await createTestAuthority();
  const receiver = await closedAtEnd(startOtlp({ pair: await authority.server() }));
  receiver.replies.push('break', { body: '{"partialSuccess":{"rejectedLogRecords":"1"}}' });
  const folder = await newFolder();
  const caFile = join(folder, 'ca.pem');
  const token = join(folder, 'token');
  await writeFile(caFile, authority.ca);
  await writeFile(token, 'Bearer marked-secret\n', { mode: 0o600 });
  const { endpoint } = receiver;
  const { start, send, lines } = await scene({
    otlp: { endpoint, headers: { authorization: { file: token } }, tls: { caFile } },
  });
  const gateway = await start(2);
  await send(gateway, 100);
  await until(
    async () => (await gateway.metric('digest_gateway_audit_sink_lag_records', { sink: SINK })) === 0,
  );
  const skipped = 'digest_gateway_audit_sink_skipped_records_total';
  await until(async () => (await gateway.metric(skipped, { sink: SINK })) === 1);
  await gateway.drain();
  const all = await lines();
  expect(all.filter((line) => line.includes('"kind":"access"'))).toHaveLength(100);
  expect(linesIn(receiver.confirmed).toSorted()).toEqual(all.toSorted());
  expect(new Set(receiver.requests.map(({ headers }) => headers.authorization))).toEqual(
    new Set(['Bearer marked-secret']),
  );
  expect(JSON.stringify(gateway.logged)).not.toContain('marked-secret');
});

test('nothing is lost when the gateway is killed after a delivery, before or after its position is stored', async () => {
  const port = await freePort();
  const { start, send, lines, folder } = await scene({ syslog: { host: '127.0.0.1', port, tls: false } });
  const file = join(folder, 'received');
  await closedAtEnd(startSyslog({ port, file }));
  for (let round = 0; round < 3; round += 1) {
    const gateway = await start();
    const before = (await textsIn(file)).length;
    await send(gateway, 50);
    await until(async () => (await textsIn(file)).length > before);
    await gateway.kill();
  }
  const last = await start();
  await until(async () => (await last.metric('digest_gateway_audit_sink_lag_records', { sink: SINK })) === 0);
  await last.drain();
  expect(new Set(await textsIn(file))).toEqual(new Set(await lines()));
});

test('a receiver that takes nothing costs neither memory nor responses, and is told and measured', async () => {
  const port = await freePort();
  const { start, send, lines, folder } = await scene({
    timeout: '2s',
    syslog: { host: '127.0.0.1', port, tls: false },
  });
  const file = join(folder, 'received');
  const server = await closedAtEnd(startSyslog({ port, file }));
  const gateway = await start();
  const pid = await server.process.pid();
  await send(gateway, 500);
  const { now: before } = await gateway.memory();
  process.kill(pid, 'SIGSTOP');
  const lag = (unit: string): Promise<number> =>
    gateway.metric(`digest_gateway_audit_sink_lag_${unit}`, { sink: SINK });
  const failures = (): Promise<number> => gateway.metric('digest_gateway_audit_sink_failures_total');
  // The buffers of the kernel take megabytes on each connection.
  const isBehind = async (): Promise<boolean> => (await failures()) > 1 && (await lag('records')) >= 5_000;
  for (let rounds = 0; !(await isBehind()) && rounds < 100; rounds += 1) await send(gateway, 1_000);
  const { now: after } = await gateway.memory();
  // Each record is delivered or behind. The last ones come after their responses, and the thread tells its numbers every
  // second.
  const sent = (): Promise<number> =>
    gateway.metric('digest_gateway_audit_sink_records_total', { sink: SINK });
  await until(async () => (await lag('records')) + (await sent()) === (await lines()).length);
  expect(await lag('records')).toBeGreaterThanOrEqual(5_000);
  expect(await lag('seconds')).toBeGreaterThan(2);
  // 10,000 records and more have 5 MB; kept as strings and objects in several places they would take far more.
  expect(after - before).toBeLessThan(80 * MEBIBYTE);
  const ready = await fetch(`${gateway.control}/readyz`);
  expect(ready.status).toBe(200);
  expect(await ready.json()).toMatchObject({
    status: 'degraded',
    checks: expect.arrayContaining([
      expect.objectContaining({
        name: `audit-sink-${SINK}`,
        ok: false,
        detail: expect.stringContaining('2000'),
      }),
    ]),
  });
  process.kill(pid, 'SIGCONT');
  await until(async () => (await lag('records')) === 0);
  expect(await lag('seconds')).toBe(0);
  await gateway.drain();
  expect(new Set(await textsIn(file))).toEqual(new Set(await lines()));
});
