import { inspect } from 'node:util';
import { expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { storeKeys } from '../../src/challenges/store/value-signer.ts';
import { fromTransfer, toTransfer } from '../../src/setup/transfer.ts';
import { setupFor } from '../support/gateway.ts';
import { otlpTo } from '../support/otlp-receiver.ts';

const DEPLOYMENTS = Object.fromEntries(
  Array.from({ length: 120 }, (_, at) => [
    `d${at}`,
    {
      origin: `https://u${at}.example.org`,
      password: `secret-${at}`,
      settings: { match: { pathPrefix: `/${at}/` } },
    },
  ]),
);

/** Every secret in a value, by its path. */
function secretsIn(value: unknown, path = ''): string[] {
  if (value instanceof Secret) return [`${path} ${value.reveal()}`];
  if (value instanceof Map) return [...value].flatMap(([key, each]) => secretsIn(each, `${path}/${key}`));
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, each]) => secretsIn(each, `${path}/${key}`));
}

test('a setup arrives as it was, with its secrets', async () => {
  const setup = {
    ...(await setupFor(DEPLOYMENTS)),
    redis: {
      servers: { kind: 'single', address: { host: 'localhost', port: 6379 }, database: 0 } as const,
      username: undefined,
      password: new Secret('hunter2'),
      sentinelUsername: undefined,
      sentinelPassword: undefined,
      keyPrefix: 'p',
      timeoutMs: 100,
      tls: undefined,
      keys: storeKeys(new Secret('ab'.repeat(32))),
    },
    files: new Map([
      [
        'd1',
        { ca: 'PEM', clientCertificate: { chain: 'PEM', key: new Secret('the key') }, proxyCa: undefined },
      ],
    ]),
  };
  const arrived = await fromTransfer(structuredClone(toTransfer(setup)));
  const shown = { depth: 12, maxArrayLength: null, sorted: true };
  expect(inspect(arrived.config, shown)).toBe(inspect(setup.config, shown));
  expect(inspect(arrived.credentials, shown)).toBe(inspect(setup.credentials, shown));
  expect(secretsIn(arrived).toSorted()).toEqual(secretsIn(setup).toSorted());
  expect(secretsIn(arrived)).toHaveLength(362);
  const [own, other] = [setup.redis.keys[0], arrived.redis?.keys[0]];
  expect(other?.key.export()).toEqual(own?.key.export());
});

test('an object of another kind is refused rather than changed', async () => {
  const setup = {
    ...(await setupFor({ d: { origin: 'https://u.example.org' } })),
    audit: new URL('http://a/'),
  };
  expect(() => toTransfer(setup as never)).toThrow('URL');
});

test('audit sinks and their secrets stay behind: the primary sends for all workers', async () => {
  const headers = new Map([['authorization', new Secret('Bearer t')]]);
  const auditSinks = [otlpTo({ endpoint: 'http://127.0.0.1:1/v1/logs' }, { headers })];
  const setup = { ...(await setupFor({ d: { origin: 'https://u.example.org' } })), auditSinks };
  const transferred = toTransfer(setup);
  expect(transferred.rest.filter((piece) => Buffer.from(piece).includes('Bearer t'))).toEqual([]);
  expect((await fromTransfer(transferred)).auditSinks).toEqual([]);
});
