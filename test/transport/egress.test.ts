import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import { egressAddress, isOnThisHost } from '../../src/transport/egress.ts';

test.each([
  ['127.0.0.1', true],
  // On Linux all of 127.0.0.0/8 can be used, and only one address of it is listed with the interfaces.
  ['127.77.0.9', true],
  ['192.0.2.1', false],
  ['2001:db8::1', false],
])('%s is on this host: %s', async (address, there) => {
  expect(await isOnThisHost(address)).toBe(there);
});

test('a process that may open no more files does not take an address for missing', async () => {
  const program = `
    import { openSync } from 'node:fs';
    import { isOnThisHost } from '${join(import.meta.dirname, '../../src/transport/egress.ts')}';
    const before = await isOnThisHost('127.0.0.1');
    try { for (;;) openSync('/dev/null'); } catch (error) { console.log(before, error.code); }
    console.log(await isOnThisHost('127.0.0.1'));
    process.exit();`;
  const command = 'ulimit -n 256; exec "$0" --input-type=module -e "$1"';
  const { stdout } = await promisify(execFile)('sh', ['-c', command, process.execPath, program]);
  expect(stdout).toBe('true EMFILE\nundefined\n');
});

describe('nonces are kept apart', () => {
  const proxy = {
    origin: 'http://p:1',
    credential: undefined,
    algorithms: [],
    allowPlaintext: false,
    ca: undefined,
  };
  test.each([
    ['by nothing', undefined, undefined, ''],
    ['by the address', '10.0.0.1', undefined, '10.0.0.1'],
    ['by the proxy, whose address the upstream sees', '10.0.0.1', proxy, 'http://p:1'],
  ])('%s', (_title, localAddress, through, expected) => {
    expect(egressAddress({ localAddress, proxy: through })).toBe(expected);
  });
});
