import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { gateway } from '../support/program.ts';

const other = createServer();
let folder: string;
let taken: number;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ports-'));
  other.listen(0, '127.0.0.1');
  await once(other, 'listening');
  ({ port: taken } = other.address() as AddressInfo);
});
afterAll(async () => {
  other.close();
  await rm(folder, { recursive: true });
});

describe('serve ends with one sentence that names the key of', () => {
  test.each([
    ['the data plane’s port', 'listen', 'port'],
    ['the control plane’s port', 'control', 'port'],
    ['an address that is not here', 'listen', 'address'],
  ])('%s', async (_title, section, key) => {
    const wrong = key === 'port' ? { port: taken } : { address: '203.0.113.7', port: 0 };
    const file = join(folder, `${section}-${key}.yaml`);
    const planes = { listen: { port: 0 }, control: { port: 0 }, [section]: wrong };
    const deployment = { baseUrl: 'https://127.0.0.1:1', match: { pathPrefix: '/a/' }, credential: 'a' };
    const credentials = { a: { username: { value: 'me' }, password: { env: 'P' } } };
    const clients = [{ id: 'c', identify: { addresses: ['127.0.0.1'] }, allow: [{ deployment: 'd' }] }];
    const config = { ...planes, clients, credentials, deployments: { d: deployment } };
    await writeFile(file, JSON.stringify(config));
    const { status, stderr } = await gateway(['serve', '--config', file], { P: 'hunter2' });
    const last = JSON.parse(stderr.trimEnd().split('\n').at(-1) ?? '');
    expect(status).toBe(1);
    expect([last.level, last.msg]).toEqual([
      'error',
      key === 'port'
        ? `${section}.port: another program listens on port ${taken} of 127.0.0.1: stop it, or choose another port (demo: --free-ports)`
        : `${section}.address: 203.0.113.7 is not an address of this machine: name one that is`,
    ]);
    expect(stderr).not.toContain('    at ');
  });
});
