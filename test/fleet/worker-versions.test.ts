import { expect, test } from '@jest/globals';
import type { DeploymentVersion } from '../../src/app/worker.ts';
import { WorkerVersions } from '../../src/fleet/worker-versions.ts';
import { closing } from '../support/closing.ts';
import { credentialSet, type RunningGateway, startGateway } from '../support/gateway.ts';

const NAMES = ['a', 'b'];
const CHOICES = NAMES.map((name) => ({ deployment: name, credential: name, version: '2' }));

/** A data plane with two deployments, whose credentials have a next version in these. */
async function startPlane(...withNext: string[]): Promise<RunningGateway> {
  const deployment = (name: string) => ({
    origin: `https://${name}.example.org`,
    settings: { match: { pathPrefix: `/${name}/` } },
  });
  const gateway = await startGateway({ a: deployment('a'), b: deployment('b') });
  closing.push(() => gateway.close());
  for (const name of withNext) await offer(gateway, name, 'new');
  return gateway;
}

async function offer(gateway: RunningGateway, name: string, next?: string): Promise<void> {
  gateway.plane.offer(await credentialSet(gateway, name, 'demo-api-key', next));
}

/** A worker over this data plane, as the primary calls it. `afterCheck`: runs once its versions were checked. */
const workerOf = (number: number, { plane }: RunningGateway, afterCheck = async () => {}) => ({
  number,
  isGone: false,
  calls: {
    missing: async (choices: readonly DeploymentVersion[]) => {
      const missing = await plane.missing(choices);
      await afterCheck();
      return missing;
    },
    promote: (choices: readonly DeploymentVersion[]) => plane.promote(choices),
  },
});

async function inUse({ plane }: RunningGateway): Promise<string[]> {
  const { deployments } = await plane.state();
  return deployments.flatMap(({ name, credentials }) =>
    credentials.flatMap(({ state, version }) => (state === 'in-use' ? [`${name} ${version}`] : [])),
  );
}

test('a promotion of which a process lacks one version changes nothing there', async () => {
  const gateway = await startPlane('a');
  await expect(gateway.plane.promote(CHOICES)).rejects.toThrow(/\bb\b.*\b2\b/);
  expect(await inUse(gateway)).toEqual(['a 1', 'b 1']);
});

test('a promotion that one worker cannot follow changes nothing in the others', async () => {
  const [whole, lacking] = [await startPlane(...NAMES), await startPlane('a')];
  const workers = [workerOf(1, whole), workerOf(2, lacking)];
  await expect(new WorkerVersions().promote(() => workers, CHOICES)).rejects.toThrow(
    /^(?!.*worker 1\b).*worker 2: .*\bb\b/,
  );
  expect([await inUse(whole), await inUse(lacking)]).toEqual([
    ['a 1', 'b 1'],
    ['a 1', 'b 1'],
  ]);
});

test('a promotion that fails in one worker says where the versions are in use', async () => {
  const [whole, failing] = [await startPlane(...NAMES), await startPlane(...NAMES)];
  const workers = [workerOf(1, whole), workerOf(2, failing, () => offer(failing, 'b'))];
  await expect(new WorkerVersions().promote(() => workers, CHOICES)).rejects.toThrow(
    /worker 1\b.*worker 2: .*\bb\b/,
  );
  expect([await inUse(whole), await inUse(failing)]).toEqual([
    ['a 2', 'b 2'],
    ['a 1', 'b 1'],
  ]);
});

test('a promotion reaches the workers that remain when one ends', async () => {
  const whole = await startPlane(...NAMES);
  const ended = {
    number: 2,
    isGone: true,
    calls: {
      missing: () => Promise.reject(new Error('the process has ended')),
      promote: () => Promise.reject(new Error('the process has ended')),
    },
  };
  const workers = [workerOf(1, whole), ended];
  await new WorkerVersions().promote(() => workers, CHOICES);
  expect(await inUse(whole)).toEqual(['a 2', 'b 2']);
});

test('a promotion reaches a worker that is added while another one is checked', async () => {
  const [first, added] = [await startPlane(...NAMES), await startPlane(...NAMES)];
  const workers: ReturnType<typeof workerOf>[] = [
    workerOf(1, first, async () => void workers.push(workerOf(2, added))),
  ];
  await new WorkerVersions().promote(() => [...workers], CHOICES);
  expect([await inUse(first), await inUse(added)]).toEqual([
    ['a 2', 'b 2'],
    ['a 2', 'b 2'],
  ]);
});

test('a promotion that an added worker cannot follow changes nothing', async () => {
  const [whole, lacking] = [await startPlane(...NAMES), await startPlane('a')];
  const workers: ReturnType<typeof workerOf>[] = [
    workerOf(1, whole, async () => void workers.push(workerOf(2, lacking))),
  ];
  await expect(new WorkerVersions().promote(() => [...workers], CHOICES)).rejects.toThrow(
    /nothing has changed: worker 2: .*\bb\b/,
  );
  expect([await inUse(whole), await inUse(lacking)]).toEqual([
    ['a 1', 'b 1'],
    ['a 1', 'b 1'],
  ]);
});
