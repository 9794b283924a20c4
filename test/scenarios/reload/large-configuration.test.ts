import { writeFile } from 'node:fs/promises';
import { expect, test } from '@jest/globals';
import { stringify } from 'yaml';
import { parseConfig } from '../../../src/config/load.ts';
import { largeConfig } from '../../support/large-config.ts';
import { repository } from '../../support/repository.ts';
import { serveGateway } from '../../support/served-gateway.ts';
import { until } from '../../support/until.ts';

const LIMIT_MS = 120_000;

test('a reload of thousands of clients keeps no request waiting', async () => {
  const monitor = ['node', '--expose-gc', '--import', `${repository}/test/support/loop-monitor.ts`];
  const small = valued(largeConfig(1, 1));
  const gateway = await serveGateway({ origin: '', ca: '' }, small, monitor);
  try {
    const longestTurn = async (): Promise<number> => {
      const seen = gateway.logged.length;
      process.kill(gateway.pid, 'SIGUSR2');
      const told = () => gateway.logged.slice(seen).find(({ longestTurnMs }) => longestTurnMs !== undefined);
      await until(() => told() !== undefined, LIMIT_MS);
      return Number(told()?.['longestTurnMs']);
    };
    const reload = async (config: object): Promise<number> => {
      const seen = gateway.logged.length;
      await writeFile(gateway.configFile, stringify(config));
      await longestTurn();
      process.kill(gateway.pid, 'SIGHUP');
      await until(
        () => gateway.logged.slice(seen).some(({ msg }) => /^configuration reloaded/.test(`${msg}`)),
        LIMIT_MS,
      );
      return longestTurn();
    };
    const large = { listen: { port: 0 }, control: { port: 0 }, ...valued(largeConfig(2_000, 400)) };
    const before = process.threadCpuUsage();
    parseConfig(stringify(large), 'c.yaml');
    const { user, system } = process.threadCpuUsage(before);
    const inOneGo = (user + system) / 1000;

    await reload(large);
    const changed = { ...large, clients: large.clients.toReversed(), deployments: others(large.deployments) };
    const turns = [await reload(changed), await reload(large)];
    expect(Math.min(...turns)).toBeLessThan(inOneGo / 6);
    expect((await fetch(`${gateway.origin}/api/d7/x`)).status).toBe(401);
  } finally {
    await gateway.kill();
  }
}, 300_000);

/** With secrets that need no environment. */
function valued({ credentials, ...config }: ReturnType<typeof largeConfig>) {
  const named = Object.keys(credentials).map((name) => [
    name,
    { username: { value: 'user' }, password: { value: 'word' } },
  ]);
  return { ...config, credentials: Object.fromEntries(named) };
}

function others(deployments: Record<string, object>): Record<string, object> {
  return Object.fromEntries(
    Object.entries(deployments).map(([name, each]) => [name, { ...each, connections: 7 }]),
  );
}
