import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { expect, test } from '@jest/globals';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { until } from '../support/until.ts';

const LISTEN = '0A';

/** The addresses and ports that a process listens on with TCP, as the kernel writes them. Linux only. */
async function listeningSockets(pid: number): Promise<string[]> {
  const own = new Set<string>();
  for (const fd of await readdir(`/proc/${pid}/fd`)) {
    own.add(await readlink(`/proc/${pid}/fd/${fd}`).catch(() => 'closed meanwhile'));
  }
  const tables = await Promise.all(
    ['tcp', 'tcp6'].map((name) => readFile(`/proc/${pid}/net/${name}`, 'utf8')),
  );
  const rows = tables.flatMap((table) => table.trim().split('\n').slice(1));
  return rows.flatMap((row) => {
    const [, local = '', , state, , , , , , inode] = row.trim().split(/\s+/);
    return state === LISTEN && own.has(`socket:[${inode}]`) ? [local] : [];
  });
}

test.each([
  ['as an installed program', []],
  ['without its flags', ['node']],
])('SIGUSR1 opens no debugger and the gateway goes on, started %s', async (_how, runner) => {
  await using gateway = await startGatewayProcess({ d: { origin: 'https://a.invalid' } }, {}, { runner });
  const before = await listeningSockets(gateway.pid);
  expect(before).toHaveLength(2);
  process.kill(gateway.pid, 'SIGUSR1');
  for (let turn = 0; turn < 20; turn += 1) {
    expect((await fetch(`${gateway.control}/livez`)).status).toBe(200);
  }
  expect(await listeningSockets(gateway.pid)).toEqual(before);
  expect(gateway.printed.join('\n')).not.toMatch(/debugger/i);
});

test('a process of Node.js without the flag shows what the gateway must not do', async () => {
  const code = "setInterval(() => {}, 1000); console.log('ready')";
  const child = spawn(process.execPath, ['--inspect-port=0', '-e', code], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  try {
    await once(child.stdout, 'data');
    const pid = child.pid ?? 0;
    expect(await listeningSockets(pid)).toEqual([]);
    process.kill(pid, 'SIGUSR1');
    await until(async () => (await listeningSockets(pid)).length === 1);
  } finally {
    child.kill('SIGKILL');
    await once(child, 'close');
  }
});
