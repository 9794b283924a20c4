import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, test } from '@jest/globals';
import { parse, stringify } from 'yaml';
import type { Readiness } from '../../../src/control/readiness.ts';
import { defaultSettings } from '../../../src/simulator/settings.ts';
import { closedAtEnd } from '../../support/closing.ts';
import { startConfiguredGateway } from '../../support/gateway.ts';
import { authors } from '../../support/scene.ts';
import { startSimulator } from '../../support/simulator.ts';
import { until } from '../../support/until.ts';

const REFUSED = 'configuration refused; keeping the current one';

test('a watched gateway follows included files: new, changed, broken and removed ones', async () => {
  const simulator = await closedAtEnd(startSimulator(defaultSettings()));
  const upstream = { origin: simulator.deployments.submissions.origin, ca: simulator.ca };
  const gateway = await closedAtEnd(startConfiguredGateway({ first: upstream }, {}, { watchFile: true }));
  const { deployments, ...rest } = parse(await readFile(gateway.configFile, 'utf8'));
  const status = async (prefix: string) => (await fetch(`${gateway.origin}${prefix}${authors}`)).status;
  const becomes = (prefix: string, expected: number) =>
    until(async () => (await status(prefix)) === expected);
  const part = (name: string) => join(dirname(gateway.configFile), 'parts', `${name}.yaml`);
  const moved = (prefix: string) => ({
    deployments: {
      second: { ...deployments.first, match: { pathPrefix: prefix }, rewrite: { stripPrefix: prefix } },
    },
  });
  await mkdir(dirname(part('a')));

  await writeFile(gateway.configFile, stringify({ ...rest, deployments, include: 'parts/*.yaml' }));
  await until(() => gateway.logged.some(({ msg }) => msg === 'configuration reloaded'));
  expect([await status(''), await status('/two')]).toEqual([200, 404]);

  await writeFile(part('a'), stringify(moved('/two')));
  await becomes('/two', 200);

  await writeFile(part('b'), 'deployments:\n  third: { conections: 1 }\n');
  await until(() => gateway.logged.some(({ msg }) => msg === REFUSED));
  const { reason } = gateway.logged.find(({ msg }) => msg === REFUSED) ?? {};
  expect(reason).toContain(`${part('b')}:2:12 deployments.third.conections: does not exist`);
  const { checks } = (await (await fetch(`${gateway.control}/readyz`)).json()) as Readiness;
  expect(checks.find(({ name }) => name === 'configuration')?.ok).toBe(false);
  expect([await status(''), await status('/two')]).toEqual([200, 200]);

  // While a file is refused, no other one is used.
  await writeFile(part('a'), stringify(moved('/three')));
  await rm(part('b'));
  await becomes('/three', 200);
  expect(await status('/two')).toBe(404);

  await rm(part('a'));
  await becomes('/three', 404);
  expect(await status('')).toBe(200);
});
