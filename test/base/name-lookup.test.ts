import dns from 'node:dns';
import { once } from 'node:events';
import { syncBuiltinESMExports } from 'node:module';
import { type AddressInfo, connect, createServer } from 'node:net';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { sharedLookup, shareLookups } from '../../src/base/name-lookup.ts';
import { closing } from '../support/closing.ts';

type Answer = (error: NodeJS.ErrnoException | null, ...found: unknown[]) => void;

const FOUND = [{ address: '127.0.0.1', family: 4 }];
const OTHER = [{ address: '127.0.0.2', family: 4 }];

/** A shared lookup whose questions to the system wait for the test. */
function heldLookup() {
  const questions: { readonly name: string; readonly answer: Answer }[] = [];
  const lookup = sharedLookup((name, _options, answer) => void questions.push({ name, answer }));
  const ask = (name: string): Promise<unknown> =>
    new Promise((resolve, reject) =>
      lookup(name, { all: true }, (error, found) => (error ? reject(error) : resolve(found))),
    );
  return { questions, ask };
}

test('a name is asked for once at a time, and then anew', async () => {
  const { questions, ask } = heldLookup();
  const [first, second] = [ask('a'), ask('a')];
  const other = ask('b');
  expect(questions.map(({ name }) => name)).toEqual(['a', 'b']);
  questions[0]?.answer(null, FOUND);
  expect(await Promise.all([first, second])).toEqual([FOUND, FOUND]);
  questions[1]?.answer(Object.assign(new Error('none'), { code: 'ENOTFOUND' }));
  await expect(other).rejects.toThrow('none');
  void ask('a');
  expect(questions).toHaveLength(3);
});

test('while name servers do not answer, the addresses of the last time are used, and the newest ones afterwards', async () => {
  const { questions, ask } = heldLookup();
  const before = ask('a');
  questions[0]?.answer(null, FOUND);
  await before;
  expect(await ask('a')).toEqual(FOUND);
  expect(await ask('a')).toEqual(FOUND);
  expect(questions).toHaveLength(2);
  questions[1]?.answer(null, OTHER);
  expect(await ask('a')).toEqual(OTHER);
});

test('eight addresses of each family are used', async () => {
  const { questions, ask } = heldLookup();
  const found = ask('a');
  const all = Array.from({ length: 4_000 }, (_, at) => ({ address: `${at}`, family: at % 2 === 0 ? 4 : 6 }));
  questions[0]?.answer(null, all);
  expect(await found).toEqual(all.slice(0, 16));
});

test('name servers that refuse to answer are as good as silent ones, and a name that is gone has no addresses', async () => {
  const { questions, ask } = heldLookup();
  const answered = (at: number, code: string | null): void => {
    const error = code === null ? null : Object.assign(new Error(code), { code });
    questions[at]?.answer(error, ...(error === null ? [FOUND] : []));
  };
  const never = ask('a');
  answered(0, 'EAI_AGAIN');
  await expect(never).rejects.toThrow('EAI_AGAIN');
  const before = ask('a');
  answered(1, null);
  await before;
  const during = ask('a');
  answered(2, 'EAI_AGAIN');
  expect(await during).toEqual(FOUND);
  const gone = ask('a');
  answered(3, 'ENOTFOUND');
  await expect(gone).rejects.toThrow('ENOTFOUND');
});

test('the lookups of libraries are shared, and can be promises', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  closing.push(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;

  const { lookup } = dns;
  closing.push(() => {
    dns.lookup = lookup;
    syncBuiltinESMExports();
  });
  const questions: Answer[] = [];
  const held = (_name: string, _options: object, answer: Answer): void => void questions.push(answer);
  dns.lookup = Object.defineProperties(
    held,
    Object.getOwnPropertyDescriptors(lookup),
  ) as unknown as typeof lookup;
  shareLookups();

  const sockets = [1, 2].map(() => connect({ host: 'name.example', port }));
  const connected = sockets.map((socket) => once(socket, 'connect'));
  expect(questions).toHaveLength(1);
  questions[0]?.(null, FOUND);
  await Promise.all(connected);
  for (const socket of sockets) socket.destroy();

  const promised = promisify(dns.lookup)('other.example', {});
  questions[1]?.(null, '127.0.0.3', 4);
  expect(await promised).toEqual({ address: '127.0.0.3', family: 4 });
});
