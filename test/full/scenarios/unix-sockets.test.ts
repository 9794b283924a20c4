import { once } from 'node:events';
import { access, rename, stat, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, test } from '@jest/globals';
import { useFolders } from '../../support/audit-log.ts';
import { authors, type SceneOptions, startScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const folderOf = useFolders();

/** Sends a request over a UNIX socket. */
async function over(socketPath: string, path: string, headers: Record<string, string> = {}) {
  const sent = request({ socketPath, path, headers }).end();
  const [response] = await once(sent, 'response');
  return { status: response.statusCode as number, body: await text(response) };
}

const exists = (file: string) =>
  access(file).then(
    () => true,
    () => false,
  );

/** Leaves the file of a socket on which nobody listens. */
async function leaveStale(path: string): Promise<void> {
  const server = createServer().listen(path);
  await once(server, 'listening');
  await rename(path, `${path}-kept`);
  await new Promise((resolve) => server.close(resolve));
  await rename(`${path}-kept`, path);
}

const start = (path: string, change: SceneOptions['top'] = {}) =>
  startScene({ top: { listen: { address: `unix:${path}` }, control: { port: 0 }, ...change } });

test('both planes serve on UNIX sockets with the permissions of the configuration, and remove them', async () => {
  const folder = await folderOf();
  const [data, control] = [join(folder, 'data.sock'), join(folder, 'control.sock')];
  const { gateway } = await start(data, { control: { address: `unix:${control}`, socketMode: '0600' } });
  expect((await over(data, authors)).status).toBe(200);
  expect((await over(control, '/readyz')).status).toBe(200);
  expect((await over(control, '/metrics', { host: 'localhost' })).body).toContain(
    'digest_gateway_requests_total{',
  );
  const { servers } = JSON.parse((await over(control, '/openapi.json', { host: 'localhost' })).body);
  expect(servers).toEqual([{ url: 'http://localhost', description: `Over the UNIX socket ${data}.` }]);
  const modes = await Promise.all([data, control].map(async (file) => (await stat(file)).mode & 0o777));
  expect(modes).toEqual([0o660, 0o600]);
  await gateway.close();
  expect([await exists(data), await exists(control)]).toEqual([false, false]);
});

test('a client of a UNIX socket has no address, and is identified by its key', async () => {
  const data = join(await folderOf(), 'data.sock');
  const allow = [{ deployment: 'submissions' }];
  const clients = [
    { id: 'by-address', identify: { addresses: ['127.0.0.0/8', '::1'] }, allow },
    // SHA-256 of `secret-key`.
    {
      id: 'by-key',
      identify: { apiKeySha256: '85dbe15d75ef9308c7ae0f33c7a324cc6f4bf519a2ed2f3027bd33c140a4f9aa' },
      allow,
    },
  ];
  const { gateway } = await start(data, { anonymous: false, clients, log: { requests: true } });
  const refused = await over(data, authors);
  expect(refused.status).toBe(401);
  expect(refused.body).toContain('no address (it came over a UNIX socket)');
  expect((await over(data, authors, { 'x-api-key': 'secret-key' })).status).toBe(200);
  await until(() => gateway.logged.some(({ client, address }) => client === 'by-key' && address === ''));
});

test('one client of a UNIX socket does not take the connections of others', async () => {
  const data = join(await folderOf(), 'data.sock');
  const listen = { address: `unix:${data}`, limits: { connectionsPerAddress: 1 } };
  await start(data, { listen });
  const all = await Promise.all([over(data, authors), over(data, authors), over(data, authors)]);
  expect(all.map(({ status }) => status)).toEqual([200, 200, 200]);
});

test('the file that an ended process left is replaced', async () => {
  const data = join(await folderOf(), 'data.sock');
  await leaveStale(data);
  await start(data);
  expect((await over(data, authors)).status).toBe(200);
});

test('a socket on which another program listens is not taken, nor a file that is no socket', async () => {
  const data = join(await folderOf(), 'data.sock');
  await start(data);
  await expect(start(data)).rejects.toThrow(`listen.address: another program listens on ${data}`);
  expect((await over(data, authors)).status).toBe(200);
  const file = join(await folderOf(), 'file');
  await writeFile(file, 'kept');
  await expect(start(file)).rejects.toThrow(`listen.address: ${file} is a file, and not a socket`);
  expect(await exists(file)).toBe(true);
});

test('a folder that does not exist is named', async () => {
  const data = join(await folderOf(), 'gone', 'data.sock');
  await expect(start(data)).rejects.toThrow(`listen.address: the socket ${data} cannot be made`);
});

test('workers share a UNIX socket, and keep it over a reload and an upgrade', async () => {
  const data = join(await folderOf(), 'data.sock');
  await leaveStale(data);
  const { gateway } = await startScene({ workers: 2, top: { listen: { address: `unix:${data}` } } });
  const ask = async () => (await over(data, authors)).status;
  expect(await ask()).toBe(200);
  process.kill(gateway.pid, 'SIGHUP');
  await until(() => gateway.logged.some(({ msg }) => msg === 'configuration reloaded'));
  process.kill(gateway.pid, 'SIGUSR2');
  await until(async () => {
    expect(await ask()).toBe(200);
    return gateway.logged.some(({ msg }) => msg === 'upgrade: the old workers have ended');
  });
  expect(await ask()).toBe(200);
  expect((await stat(data)).mode & 0o777).toBe(0o660);
  await gateway.drain();
  expect(await exists(data)).toBe(false);
});
