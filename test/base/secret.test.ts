import { format, inspect } from 'node:util';
import { deserialize, serialize } from 'node:v8';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { describe, expect, test } from '@jest/globals';
import { pino } from 'pino';
import { Secret } from '../../src/base/secret.ts';

const MARK = 's3cr3t';
const secret = new Secret(MARK);

function posted(value: unknown): unknown {
  const { port1, port2 } = new MessageChannel();
  port1.postMessage(value);
  const received: unknown = receiveMessageOnPort(port2);
  port1.close();
  return received;
}

function logged(value: object): string {
  const lines: string[] = [];
  pino({}, { write: (line: string) => lines.push(line) }).info(value, 'with a secret');
  return lines.join('');
}

const deep = (value: unknown) => inspect(value, { depth: null, showHidden: true, showProxy: true });

describe('a secret is not in', () => {
  test.each<[string, () => unknown]>([
    ['a string', () => String(secret)],
    ['a template', () => `${secret}`],
    ['a number', () => Number(secret)],
    ['a joined list', () => [secret].join()],
    ['JSON', () => JSON.stringify({ secret, list: [secret] })],
    ['util.inspect', () => deep({ secret, map: new Map([[secret, secret]]) })],
    ['util.inspect without custom functions', () => inspect(secret, { customInspect: false })],
    ['console.log with %s', () => format('%s', secret)],
    ['console.log with %o', () => format('%o', secret)],
    ['console.log with %O', () => format('%O', { secret })],
    ['console.log with %j', () => format('%j', { secret })],
    ['console.log with %d', () => format('%d', secret)],
    ['a message of an error', () => deep(new Error(`with ${secret}`))],
    ['a cause of an error', () => deep(new Error('with', { cause: secret }))],
    ['a property of an error', () => deep(Object.assign(new Error('with'), { secret }))],
    ['a spread', () => deep({ ...secret })],
    ['its keys, symbols included', () => deep([Object.entries(secret), Reflect.ownKeys(secret)])],
    ['a structured clone', () => deep(structuredClone({ secret }))],
    ['a posted message', () => deep(posted({ secret }))],
    [
      'what v8 serializes',
      () => deep([serialize({ secret }).toString('latin1'), deserialize(serialize(secret))]),
    ],
    ['a log line', () => logged({ secret, nested: { secret }, err: new Error('x', { cause: secret }) })],
  ])('%s', (_title, write) => {
    expect(String(write())).not.toContain(MARK);
  });
});

test('a secret says of itself that it is one, and gives its value only when asked to', () => {
  expect([`${secret}`, JSON.stringify(secret), inspect(secret), format('%o', secret)]).toEqual([
    '[secret]',
    '"[secret]"',
    '[secret]',
    '[secret]',
  ]);
  expect(secret.reveal()).toBe(MARK);
});
