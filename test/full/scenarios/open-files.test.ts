import { connect, type Socket } from 'node:net';
import { expect, test } from '@jest/globals';
import { closing } from '../../support/closing.ts';
import { startGatewayProcess } from '../../support/gateway-process.ts';
import { runCommand } from '../../support/program.ts';
import { startRawUpstream } from '../../support/scripted-upstream.ts';
import { needPackages } from '../../support/system-packages.ts';
import { until } from '../../support/until.ts';

const FILES = 400;
const CONNECTIONS = 450;
/** Three quarters of the files. */
const ADMITTED = 300;

test('clients cannot take all files that the process may open', async () => {
  needPackages('util-linux');
  const upstream = await startRawUpstream(() => 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
  closing.push(() => upstream.close());
  const gateway = await startGatewayProcess(
    { upstream: { origin: upstream.origin, settings: { tls: { allowPlaintext: true } } } },
    { listen: { port: 0, limits: { headersTimeout: '5m' } } },
    { runner: ['prlimit', `--nofile=${FILES}:${FILES}`] },
  );
  closing.push(() => gateway.close());
  expect(gateway.logged).toContainEqual(expect.objectContaining({ files: FILES, connections: ADMITTED }));

  const port = Number(new URL(gateway.origin).port);
  const sockets = Array.from({ length: CONNECTIONS }, (_, at) => {
    // Of three addresses: one may have half of the connections.
    const socket = connect({ port, host: '127.0.0.1', localAddress: `127.0.0.${1 + (at % 3)}` });
    return socket.on('error', () => undefined);
  });
  closing.push(() => {
    for (const socket of sockets) socket.destroy();
  });
  const open = (): Socket[] => sockets.filter(({ destroyed }) => !destroyed);
  await until(() => open().length === ADMITTED);
  expect((await fetch(`${gateway.control}/readyz`)).status).toBe(200);
  expect(await gateway.metric('digest_gateway_connections_refused_total', { limit: 'total' })).toBe(
    CONNECTIONS - ADMITTED,
  );
  expect(await gateway.metric('digest_gateway_open_files_ratio', {})).toBeGreaterThan(0.75);
  open()[0]?.destroy();
  await until(() =>
    fetch(gateway.origin).then(
      ({ status }) => status === 200,
      () => false,
    ),
  );
});

test.each([1, 2])(
  'readiness is told when no further file can be opened, with workers: %d',
  async (workers) => {
    needPackages('util-linux');
    const upstream = { origin: 'https://127.0.0.1:1' };
    const gateway = await startGatewayProcess({ upstream }, { workers });
    closing.push(() => gateway.close());
    const readiness = () => fetch(`${gateway.control}/readyz`);
    await (await readiness()).text();
    for (const pid of [gateway.pid, ...(await gateway.workers())]) {
      await runCommand('prlimit', ['--pid', String(pid), '--nofile=4:400']);
    }
    // Over the connection that is open.
    expect((await readiness()).status).toBe(200);
    expect(gateway.logged.filter(({ level }) => level === 'error')).toEqual([]);
  },
);
