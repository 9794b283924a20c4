import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, test } from '@jest/globals';
import { Pool } from 'undici';
import { parseHead } from '../../src/audit/seal.ts';
import { AUDIT_KEY, useFolders } from '../support/audit-log.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { readRecorded } from '../support/recorded-requests.ts';
import { authors, startScene } from '../support/scene.ts';
import { verified } from '../support/verified-log.ts';

const folder = useFolders();
const SERVER = fileURLToPath(new URL('../support/audited-server.ts', import.meta.url));
const CLIENTS = 8;
/** Complete responses before each kill. */
const RESPONSES = 4;

interface Victim {
  readonly origin: string;
  readonly logged: Record<string, unknown>[];
  kill(): Promise<void>;
  close(): Promise<void>;
}

/** Sends requests until the process is gone; adds the ids of complete responses to `whole`. */
async function load(origin: string, prefix: string, whole: string[], onLoaded: () => void): Promise<void> {
  const pool = new Pool(origin, { connections: CLIENTS });
  const client = async (name: number): Promise<void> => {
    for (let index = 0; ; index += 1) {
      const id = `${prefix}-${name}-${index}`;
      const headers = { 'x-request-id': id };
      const { statusCode, body } = await pool.request({ path: authors, method: 'GET', headers });
      if (!(await body.text()).includes('</response>') || statusCode !== 200)
        throw new Error(`${statusCode}`);
      if (whole.push(id) === RESPONSES) onLoaded();
    }
  };
  await Promise.allSettled(Array.from({ length: CLIENTS }, (_, name) => client(name)));
  await pool.destroy();
}

/** Starts a process and kills it under load, several times; a last process is stopped. */
async function killRepeatedly(kills: number, start: () => Promise<Victim>, prefix = '') {
  const responded: string[] = [];
  const logged: Record<string, unknown>[] = [];
  for (let kill = 0; kill < kills; kill += 1) {
    const victim = await start();
    const loaded = Promise.withResolvers<void>();
    const whole: string[] = [];
    const loading = load(victim.origin, `${prefix}${kill}`, whole, loaded.resolve);
    await Promise.race([loaded.promise, loading]);
    await delay(Math.random() * 60);
    await victim.kill();
    await loading;
    expect(whole.length).toBeGreaterThanOrEqual(RESPONSES);
    responded.push(...whole);
    logged.push(...victim.logged);
  }
  const last = await start();
  await last.close();
  return { responded, logged: [...logged, ...last.logged] };
}

/** `names`: the processes of one replica. */
async function expectWhole(
  directory: string,
  names: readonly string[],
  { responded, logged }: Awaited<ReturnType<typeof killRepeatedly>>,
): Promise<void> {
  const { requests, recoveries } = await readRecorded(directory, names);
  expect(responded.filter((id) => !requests.has(id))).toEqual([]);
  // Each kill that left lines without a seal is in the audit log and in the log of the process.
  expect(logged.filter(({ sha256 }) => sha256 !== undefined)).toHaveLength(recoveries);
  const heads = logged.flatMap(({ head }) => (typeof head === 'string' ? (parseHead(head) ?? []) : []));
  expect(heads).not.toEqual([]);
  const { alterations, replicas } = await verified(directory, { heads });
  expect([alterations, replicas]).toEqual([[], 1]);
}

test('has a record for each response after five kills of the gateway under load', async () => {
  const directory = await folder();
  const keyFile = join(directory, 'key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const { simulator } = await startScene();
  const upstream = { origin: simulator.deployments.submissions.origin, ca: simulator.ca };
  const audit = { directory, keyFile, replica: 'a' };
  const seen = await killRepeatedly(5, () => startGatewayProcess({ upstream }, { audit }));
  await expectWhole(directory, ['a'], seen);
});

test('has a record for each response after fifteen kills of the journal under load', async () => {
  const directory = await folder();
  await expectWhole(directory, ['b'], await killRepeatedly(15, () => startServer(directory, 'b')));
});

test('has a record for each response after kills of a replica with its workers under load', async () => {
  const directory = await folder();
  const names = ['c', 'c@1', 'c@2'];
  const killing = (name: string) => killRepeatedly(3, () => startServer(directory, name), name);
  // The log of a primary process begins before those of its workers.
  const [primary, ...workers] = names as [string, ...string[]];
  const killed = [await killing(primary), ...(await Promise.all([primary, ...workers].map(killing)))];
  await expectWhole(directory, names, {
    responded: killed.flatMap(({ responded }) => responded),
    logged: killed.flatMap(({ logged }) => logged),
  });
});

async function startServer(directory: string, replica: string): Promise<Victim> {
  const child = spawn(process.execPath, [SERVER, directory, replica, AUDIT_KEY], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'close');
  const logged: Record<string, unknown>[] = [];
  const origin = await new Promise<string>((resolve, reject) => {
    createInterface(child.stdout)
      .on('line', (line) => {
        const entry = JSON.parse(line);
        logged.push(entry);
        if (typeof entry.listen === 'string') resolve(entry.listen);
      })
      .on('close', () => reject(new Error('it did not start')));
  });
  const end = (signal: NodeJS.Signals) => async (): Promise<void> => {
    child.kill(signal);
    await ended;
  };
  return { origin, logged, kill: end('SIGKILL'), close: end('SIGTERM') };
}
