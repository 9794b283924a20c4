import { once } from 'node:events';
import { chmod } from 'node:fs/promises';
import { Agent } from 'node:https';
import { connect } from 'node:tls';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { KeyPair } from '../../../src/simulator/certificates.ts';
import { call } from '../../support/caller.ts';
import {
  createTestAuthority,
  type TestAuthority,
  type TlsFiles,
  writeTlsFiles,
} from '../../support/issued-certificates.ts';
import { setupFor } from '../../support/running-gateway.ts';
import { openPair, type Pair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';

let authority: TestAuthority;
let files: TlsFiles;
let first: KeyPair;
let second: KeyPair;
let pair: Pair;

beforeEach(async () => {
  authority = await createTestAuthority();
  [first, second] = await Promise.all([
    authority.server({ subject: 'CN=first' }),
    authority.server({ subject: 'CN=second' }),
  ]);
  files = await writeTlsFiles(first, authority.ca);
  pair = await openPair({ top: { listen: { port: 0, tls: files.section } } });
});
afterEach(async () => {
  await pair.close();
  await files.remove();
});

/** The name in the certificate that a new connection gets. */
async function served(): Promise<string | undefined> {
  const socket = connect({ host: '127.0.0.1', port: pair.gateway.port, ca: authority.ca });
  await once(socket, 'secureConnect');
  const { subject } = socket.getPeerX509Certificate() ?? {};
  socket.destroy();
  return subject;
}

interface Load {
  /** Resolves when every client has been answered once more from here on. */
  round(): Promise<void>;
  stop(): Promise<{ statuses: Set<number>; connections: number }>;
}

/** Clients that ask one thing after the other, each on a connection that it keeps, until they are stopped. */
function underLoad(clients: number): Load {
  const agents = Array.from(
    { length: clients },
    () => new Agent({ ca: authority.ca, keepAlive: true, maxSockets: 1 }),
  );
  let stopped = false;
  let connections = 0;
  const answered = agents.map(() => 0);
  const run = async (agent: Agent, index: number): Promise<number[]> => {
    const statuses: number[] = [];
    while (!stopped) {
      statuses.push((await call(pair.gateway, { agent })).status);
      answered[index] = statuses.length;
    }
    return statuses;
  };
  for (const agent of agents) {
    const open = agent.createConnection.bind(agent);
    agent.createConnection = (...args) => {
      connections += 1;
      return open(...args);
    };
  }
  const running = Promise.all(agents.map(run));
  return {
    round: async () => {
      // The next response may be to a request from before; the one after it is not.
      const wanted = answered.map((count) => count + 2);
      await until(() => answered.every((count, index) => count >= (wanted[index] ?? 0)));
    },
    stop: async () => {
      stopped = true;
      const statuses = (await running).flat();
      for (const agent of agents) agent.destroy();
      return { statuses: new Set(statuses), connections };
    },
  };
}

const told = (text: string) => pair.gateway.logged.some(({ msg }) => msg === text);
const REPLACED = 'certificate of the data plane replaced';
const KEPT = 'changed files of listen.tls cannot be used; keeping the current certificate';

test('when its files change', async () => {
  const load = underLoad(8);
  await load.round();
  expect(await served()).toBe('CN=first');
  await files.replace(second);
  await until(() => told(REPLACED));
  await until(async () => (await served()) === 'CN=second');
  await load.round();
  const { statuses, connections } = await load.stop();
  expect([statuses, connections]).toEqual([new Set([200]), 8]);
});

test('on a reload, which takes over new files and new rules together', async () => {
  const load = underLoad(4);
  await load.round();
  await files.replace(second);
  const { origin } = pair.simulator.deployments.submissions;
  const upstream = { submissions: { origin, ca: pair.simulator.ca } };
  const setup = await setupFor(upstream, { listen: { port: 0, tls: files.section } });
  await pair.gateway.app.reload(() => Promise.resolve(setup));
  expect(await served()).toBe('CN=second');
  await load.round();
  const { statuses, connections } = await load.stop();
  expect([statuses, connections]).toEqual([new Set([200]), 4]);
});

test('not by a pair that does not fit', async () => {
  await files.replace({ cert: second.cert, key: first.key });
  await until(() => told(KEPT));
  expect(pair.gateway.logged.find(({ msg }) => msg === KEPT)).toMatchObject({
    level: 40,
    reason: 'is not the key of the first certificate in certFile: name a pair',
  });
  expect(await served()).toBe('CN=first');
  await files.replace(second);
  await until(async () => (await served()) === 'CN=second');
});

test('not by a key that others can read, until its mode is mended', async () => {
  const { keyFile } = files.section;
  await files.replace(second, 0o644);
  await until(() => told(KEPT));
  expect(pair.gateway.logged.find(({ msg }) => msg === KEPT)).toMatchObject({
    level: 40,
    reason: `${keyFile} can be read by others: run chmod 600 on it, or say readableByOthers: true beside file`,
  });
  expect(await served()).toBe('CN=first');
  await chmod(keyFile, 0o600);
  await until(async () => (await served()) === 'CN=second');
});
