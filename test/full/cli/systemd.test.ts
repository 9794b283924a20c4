import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test } from '@jest/globals';
import { closing } from '../../support/closing.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import { until } from '../../support/until.ts';

/** Binds a datagram socket of Unix, which Node.js cannot, and prints each message in hex. */
const RECEIVER = `
  use Socket;
  $| = 1;
  socket(my $socket, PF_UNIX, SOCK_DGRAM, 0) or die;
  bind($socket, sockaddr_un($ARGV[0])) or die;
  print "\\n";
  while (defined recv($socket, my $message, 65536, 0)) { print unpack("H*", $message), "\\n" }
`;

/** The socket on which systemd hears of a service. */
interface NotifySocket {
  readonly path: string;
  /** The messages so far, each with its assignments. */
  readonly messages: Readonly<Record<string, string>>[];
  close(): Promise<void>;
}

async function openNotifySocket(): Promise<NotifySocket> {
  const folder = await mkdtemp(join(tmpdir(), 'notify-'));
  const path = join(folder, 'socket');
  const child = spawn('perl', ['-e', RECEIVER, path], { stdio: ['ignore', 'pipe', 'inherit'] });
  const messages: Record<string, string>[] = [];
  const lines = createInterface(child.stdout);
  const opened = once(lines, 'line');
  lines.on('line', (line) => {
    const text = Buffer.from(line, 'hex').toString();
    // systemd-notify waits with it until its message was read.
    if (text === '' || text.startsWith('BARRIER=1')) return;
    const assignments = text
      .trimEnd()
      .split('\n')
      .map((each) => each.split(/=(.*)/s, 2));
    messages.push(Object.fromEntries(assignments));
  });
  await opened;
  return {
    path,
    messages,
    async close() {
      child.kill();
      await once(child, 'close');
      await rm(folder, { recursive: true });
    },
  };
}

/** A gateway as systemd starts it, with these variables. */
async function start(
  variables: Record<string, string> = {},
): Promise<{ gateway: GatewayProcess; socket: NotifySocket }> {
  const socket = await openNotifySocket();
  closing.push(() => socket.close());
  const environment = { PATH: process.env['PATH'] ?? '', NOTIFY_SOCKET: socket.path, ...variables };
  const gateway = await startGatewayProcess({ a: { origin: 'https://127.0.0.1:1' } }, {}, { environment });
  closing.push(() => gateway.close());
  return { gateway, socket };
}

/** The messages without those of the watchdog. */
const states = ({ messages }: NotifySocket) => messages.filter(({ WATCHDOG }) => WATCHDOG === undefined);

test('systemd is told the start, a reload, a refusal, and the end', async () => {
  const { gateway, socket } = await start();
  await until(() => states(socket).length === 1);
  expect(states(socket)).toEqual([{ READY: '1', STATUS: 'serving' }]);
  expect((await fetch(`${gateway.control}/livez`)).status).toBe(200);

  const signalledAt = process.hrtime.bigint() / 1_000n;
  process.kill(gateway.pid, 'SIGHUP');
  await until(() => states(socket).length === 3);
  const [, reloading, ready] = states(socket);
  expect(reloading).toMatchObject({ RELOADING: '1', STATUS: 'reloading the configuration' });
  expect(BigInt(reloading?.['MONOTONIC_USEC'] ?? 0)).toBeGreaterThan(signalledAt);
  expect(BigInt(reloading?.['MONOTONIC_USEC'] ?? 0)).toBeLessThan(process.hrtime.bigint() / 1_000n);
  expect(ready).toEqual({ READY: '1', STATUS: 'serving' });

  await writeFile(gateway.configFile, 'nonsense: 1\nlisten: 2\n');
  process.kill(gateway.pid, 'SIGHUP');
  await until(() => states(socket).length === 5);
  expect(states(socket).slice(3)).toEqual([
    expect.objectContaining({ RELOADING: '1' }),
    { READY: '1', STATUS: expect.stringMatching(/gateway\.yaml:1:1 nonsense/) },
  ]);

  await gateway.close();
  expect(await gateway.ended).toBe(0);
  expect(states(socket).slice(5)).toEqual([{ STOPPING: '1', STATUS: 'draining' }]);
});

test('the watchdog hears that the event loop turns', async () => {
  const { socket } = await start({ WATCHDOG_USEC: '200000' });
  await until(() => socket.messages.filter(({ WATCHDOG }) => WATCHDOG === '1').length >= 3);
});

test('a watchdog of another process hears nothing', async () => {
  const { gateway, socket } = await start({ WATCHDOG_USEC: '1000', WATCHDOG_PID: '1' });
  process.kill(gateway.pid, 'SIGHUP');
  await until(() => states(socket).length === 3);
  expect(socket.messages).toHaveLength(3);
});

test('without systemd-notify the gateway serves, and says so once', async () => {
  const { gateway, socket } = await start({ PATH: dirname(process.execPath), WATCHDOG_USEC: '1000' });
  const told = () => gateway.logged.filter(({ msg }) => /^systemd-notify failed/.test(`${msg}`));
  await until(() => told().length > 0);
  process.kill(gateway.pid, 'SIGHUP');
  await until(() => gateway.logged.some(({ msg }) => msg === 'configuration reloaded'));
  expect((await fetch(`${gateway.control}/livez`)).status).toBe(200);
  expect([told().length, told()[0]?.['reason'], socket.messages]).toEqual([
    1,
    'spawn systemd-notify ENOENT',
    [],
  ]);
});
