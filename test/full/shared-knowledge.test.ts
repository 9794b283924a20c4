import { writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { useFolders } from '../support/audit-log.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { startRedis } from '../support/redis.ts';
import { redisOptions, single } from '../support/redis-store.ts';
import { seesRedis } from '../support/replicas.ts';
import { authors, type FleetScene, startScene } from '../support/scene.ts';
import { freePort } from '../support/server-process.ts';
import { until } from '../support/until.ts';

const folderOf = useFolders();
const OLD = 'demo-api-key';
const NEW = 'another-api-key';
const NAME = 'submissions';

/** A refused credential is tried each second, so that the test need not wait. */
const OFTEN = { digest: { attemptsWhenRefused: 60 } };

type Simulator = FleetScene['simulator'];

function accept(simulator: Simulator, password: string, ...otherPasswords: string[]): void {
  simulator.set(NAME, { accounts: [{ username: 'demo-user', password, otherPasswords, sites: ['demo'] }] });
}

const wrongAnswers = (simulator: Simulator): number => simulator.counts(NAME).refused['wrong-response'];

/** Sends a request on a new connection; resolves to its status. */
function get(origin: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    request(`${origin}${authors}`, { agent: false }, (response) => {
      response.resume().once('end', () => resolve(response.statusCode));
    })
      .once('error', reject)
      .end();
  });
}

interface Ready {
  readonly status: string;
  readonly checks: readonly { readonly name: string; readonly ok: boolean }[];
}

const readiness = async (control: string): Promise<Ready> =>
  (await (await fetch(`${control}/readyz`)).json()) as Ready;

const ROTATING = {
  [NAME]: { username: { value: 'demo-user' }, password: { value: OLD }, next: { password: { value: NEW } } },
};

/** A metric of the state of a version, of all workers. */
const stateOf = (gateway: Pick<RunningGateway, 'metric'>, version: string, state: string): Promise<number> =>
  gateway.metric('digest_gateway_credential_state', { version, state });

/** Two replicas on one Redis in front of one simulator. */
async function startReplicas(credentials: Record<string, unknown> = {}) {
  const redis = await closedAtEnd(startRedis());
  const { simulator } = await startScene();
  const { origin } = simulator.deployments.submissions;
  const start = async (): Promise<RunningGateway> => {
    const gateway = await startGateway(
      { [NAME]: { origin, ca: simulator.ca, settings: OFTEN } },
      { credentials },
      { redis: redisOptions(single(redis.port)) },
    );
    closing.push(() => gateway.close());
    await until(() => seesRedis(gateway));
    return gateway;
  };
  simulator.reset(NAME);
  return { simulator, replicas: [await start(), await start()] as const };
}

test('a replica without requests knows that the upstream accepts the password again', async () => {
  const { simulator, replicas } = await startReplicas();
  const [first, second] = replicas;
  accept(simulator, 'another');
  for (const { origin } of replicas) expect(await get(origin)).toBe(502);
  expect((await readiness(second.control)).status).toBe('down');
  expect(await stateOf(second, '1', 'refused')).toBe(1);
  accept(simulator, OLD);
  await until(async () => (await get(first.origin)) === 200);
  await until(async () => (await readiness(second.control)).status === 'ok');
  expect([await stateOf(second, '1', 'refused'), await stateOf(second, '1', 'in-use')]).toEqual([0, 1]);
  expect(await second.metric('digest_gateway_circuit_state', { circuit: 'credential' })).toBe(0);
  expect(await get(second.origin)).toBe(200);
});

test('a next version that waits costs one attempt for all replicas, and no alarm', async () => {
  const { simulator, replicas } = await startReplicas(ROTATING);
  const request = async (): Promise<void> => {
    for (const { origin } of replicas) expect(await get(origin)).toBe(200);
  };
  for (let round = 0; round < 10; round += 1) await request();
  // A request tries the version once Redis has said who may, which can be after these.
  await until(async () => {
    await request();
    return (await Promise.all(replicas.map((each) => stateOf(each, '2', 'waiting')))).every(Boolean);
  });
  for (const { origin } of replicas) expect(await get(origin)).toBe(200);
  expect(wrongAnswers(simulator)).toBe(1);
  for (const { control, logged, metric } of replicas) {
    expect((await readiness(control)).status).toBe('ok');
    expect(logged.filter(({ level }) => level === 'error')).toEqual([]);
    expect(await metric('digest_gateway_credential_state', { state: 'refused' })).toBe(0);
  }
});

test('a next version that one replica finds accepted is tried by the others, too', async () => {
  const { simulator, replicas } = await startReplicas(ROTATING);
  const [first, second] = replicas;
  accept(simulator, OLD, NEW);
  await until(async () => {
    expect(await get(first.origin)).toBe(200);
    return (await stateOf(first, '2', 'in-use')) === 1;
  });
  await until(async () => {
    expect(await get(second.origin)).toBe(200);
    return (await stateOf(second, '2', 'in-use')) === 1;
  });
  expect(wrongAnswers(simulator)).toBe(0);
});

test('a next version that waits costs one attempt for all workers, and no alarm', async () => {
  const scene = await startScene({ workers: 3, top: { credentials: ROTATING } });
  const { gateway, simulator } = scene;
  for (let sent = 0; sent < 30; sent += 1) expect(await get(gateway.origin)).toBe(200);
  await until(async () => {
    expect(await get(gateway.origin)).toBe(200);
    return (await stateOf(gateway, '2', 'candidate')) === 0;
  });
  expect(wrongAnswers(simulator)).toBe(1);
  expect((await readiness(gateway.control)).status).toBe('ok');
  expect(await stateOf(gateway, '2', 'refused')).toBe(0);
  expect(gateway.logged.filter(({ level }) => level === 'error')).toEqual([]);
});

test('an alarm of one worker ends when another one finds the password accepted again', async () => {
  const scene = await startScene({ workers: 3, settings: OFTEN });
  const { gateway, simulator } = scene;
  accept(simulator, 'another');
  for (let sent = 0; sent < 30; sent += 1) expect(await get(gateway.origin)).toBe(502);
  accept(simulator, OLD);
  await until(async () => (await get(gateway.origin)) === 200);
  // No request reaches the others.
  await until(async () => (await readiness(gateway.control)).status === 'ok');
  expect(await stateOf(gateway, '1', 'refused')).toBe(0);
});

test.each([1, 2])(
  'workers that take the place of %d that ended serve with the password that was proven',
  async (count) => {
    const folder = await folderOf();
    const secret = join(folder, 'secret');
    await writeFile(secret, OLD, { mode: 0o600 });
    const credentials = { [NAME]: { username: { value: 'demo-user' }, password: { file: secret } } };
    // All workers may be gone for a moment, and a port of the system's choice with them.
    const listen = { port: await freePort() };
    const scene = await startScene({ workers: 2, top: { credentials, listen } });
    const { gateway } = scene;
    for (let sent = 0; sent < 8; sent += 1) expect(await get(gateway.origin)).toBe(200);
    // The operator is wrong, or too early: the sources do not hold the old password any more.
    await writeFile(secret, 'wrong');
    await until(async () => {
      expect(await get(gateway.origin)).toBe(200);
      return (await stateOf(gateway, '2', 'refused')) === 1;
    });
    const before = await scene.gateway.workers();
    const victims = before.slice(0, count);
    for (const pid of victims) process.kill(pid, 'SIGKILL');
    await until(async () => {
      const now = await scene.gateway.workers();
      return now.length === 2 && victims.every((pid) => !now.includes(pid));
    });
    // Nobody listens until the first one does again.
    let first: number | undefined;
    await until(async () => {
      first = await get(gateway.origin).catch((error) => (error.code === 'ECONNREFUSED' ? undefined : error));
      return first !== undefined;
    });
    expect(first).toBe(200);
    await until(async () => (await gateway.metric('digest_gateway_workers')) === 2);
    for (let sent = 0; sent < 16; sent += 1) expect(await get(gateway.origin)).toBe(200);
  },
);
