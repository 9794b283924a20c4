import { hash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { parseConfig } from '../../src/config/load.ts';
import { CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { gateway } from '../support/program.ts';

const KEY = /dgk_[\da-f]{40}/g;

describe('client add', () => {
  test('prints a key once, and lines that the configuration takes as they are', async () => {
    const args = ['--address', '10.1.0.0/16', '--address', '2001:db8::1'];
    const { status, stdout, stderr } = await gateway(['client', 'add', 'reporting', ...args]);
    expect([status, stderr]).toEqual([0, '']);
    const keys = stdout.match(KEY) ?? [];
    expect(keys).toHaveLength(1);
    const lines = stdout.slice(stdout.indexOf('clients:'));
    const { clients } = parseConfig(`${CREDENTIALS}\n${DEPLOYMENTS}\n${lines}`, 'c.yaml');
    expect(JSON.parse(JSON.stringify(clients))).toEqual([
      {
        id: 'reporting',
        identify: {
          addresses: ['10.1.0.0/16', '2001:db8::1/128'],
          apiKeySha256: [hash('sha256', keys[0] ?? '')],
        },
        allow: [],
      },
    ]);
  });

  test('makes another key each time', async () => {
    const [first, second] = await Promise.all([
      gateway(['client', 'add', 'a', '--json']),
      gateway(['client', 'add', 'a', '--json']),
    ]);
    const added = [first, second].map(({ stdout }) => JSON.parse(stdout));
    expect(added[0].apiKey).not.toBe(added[1].apiKey);
    for (const { apiKey, client } of added) {
      expect(client).toEqual({ id: 'a', identify: { apiKeySha256: hash('sha256', apiKey) } });
    }
  });

  test('is quoted right in YAML', async () => {
    const { stdout } = await gateway(['client', 'add', '0123', '--address', '::1']);
    const { clients } = parse(stdout.slice(stdout.indexOf('clients:')));
    expect(clients[0]).toMatchObject({ id: '0123', identify: { addresses: ['::1/128'] } });
  });

  test.each([
    [['client', 'add'], "error: missing required argument 'name'"],
    [['client', 'add', 'a:b'], 'Write letters, digits, "-", "_" and "." only'],
    [['client', 'add', 'anonymous'], '"anonymous" is taken'],
    [['client', 'add', 'a', '--address', '10.1.2.3/16'], 'It has bits after its prefix: write 10.1.0.0/16.'],
    [['client', 'add', 'a', '--address', 'ten'], 'It is neither an address nor a network'],
  ])('%j is wrong usage', async (args, message) => {
    const { status, stdout, stderr } = await gateway(args);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
  });
});
