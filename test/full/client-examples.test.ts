import { hash } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { useFoldersOfAll } from '../support/audit-log.ts';
import { runCommand } from '../support/program.ts';
import { RawClient } from '../support/raw-client.ts';
import { repository } from '../support/repository.ts';
import { authors, openScene, type RunningScene } from '../support/scene.ts';
import { needPackages } from '../support/system-packages.ts';
import { until } from '../support/until.ts';

const EXAMPLES = join(repository, 'deploy/examples/clients');

/** The examples, each with the command that its first lines name. Debian's Python has its package of requests. */
const COMMANDS: Readonly<Record<string, (folder: string) => string>> = {
  'client.sh': () => `sh ${EXAMPLES}/client.sh`,
  'client.py': () => `/usr/bin/python3 ${EXAMPLES}/client.py`,
  'client.mjs': () => `${process.execPath} ${EXAMPLES}/client.mjs`,
  'Client.java': () => `java ${EXAMPLES}/Client.java`,
  // Mono, because Debian has no other .NET.
  'Client.cs': (folder) =>
    `mcs -r:System.Net.Http.dll -out:${folder}/Client.exe ${EXAMPLES}/Client.cs && mono ${folder}/Client.exe`,
};
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  'client.sh': ['curl'],
  'client.py': ['python3-requests'],
  'Client.java': ['default-jdk-headless'],
  'Client.cs': ['mono-mcs', 'libmono-system-net-http4.0-cil'],
};
const names = Object.keys(COMMANDS);
const keyOf = (name: string): string => `key of ${name}`.padEnd(32, '.');

const folder = useFoldersOfAll();
let pair: RunningScene;
beforeAll(async () => {
  const clients = names.map((name) => ({
    id: name,
    identify: { apiKeySha256: hash('sha256', keyOf(name)) },
    allow: [{ deployment: 'submissions' }],
    limits: { concurrent: 1 },
  }));
  pair = await openScene({
    settings: { timeouts: { idle: '10m', total: '10m' } },
    top: { anonymous: false, clients },
  });
});
afterAll(() => pair?.close());

/** Runs an example against the gateway of the test. */
async function run(name: string, key: string) {
  needPackages(...(PACKAGES[name] ?? []));
  const command = COMMANDS[name]?.(await folder()) ?? '';
  const environment = `GATEWAY=${pair.gateway.origin} API_KEY='${key}'`;
  return runCommand('sh', ['-c', `export ${environment}; ${command}`]);
}

describe.each(names)('%s', (name) => {
  test('prints the content, also after a refusal with Retry-After', async () => {
    // A request that waits for its body has the one place of the client.
    const head = `POST ${authors} HTTP/1.1\r\nHost: a\r\nX-Api-Key: ${keyOf(name)}\r\nContent-Length: 1\r\n\r\n`;
    const holder = await RawClient.open(pair.gateway.port);
    await holder.send(head);
    await until(async () => (await pair.gateway.metric('digest_gateway_requests_in_flight')) === 1);
    const ended = run(name, keyOf(name));
    const refused = () => pair.gateway.metric('digest_gateway_rate_limited_total', { client: name });
    await until(async () => (await refused()) > 0);
    holder.close();
    const { status, printed } = await ended;
    expect([status, printed]).toEqual([0, expect.stringContaining('<submissionId>DEMO-2026-0001<')]);
  });

  test('prints the code of an error and the id of its request, and fails', async () => {
    const { status, printed } = await run(name, 'wrong');
    expect(status).toBeGreaterThan(0);
    expect(printed).toMatch(/client-unknown.*[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-/s);
  });
});
