import { expect, test } from '@jest/globals';
import { stringify } from 'yaml';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { addressConfig, largeConfig } from './large-config.ts';
import { MONITORED, measuredReload } from './reloads.ts';

const [CLIENTS, DEPLOYMENTS] = [4_000, 800];
/** Four times as large takes 16 times as long where each is compared with each. */
const [PARTS, LINEAR] = [4, 8];
/** The part of the processor time of a reload that one turn of the event loop may take. */
const SHARE = 1 / 60;

/** Milliseconds of the processor that reading and checking takes, in one go. */
function workOf(text: string): number {
  const before = process.threadCpuUsage();
  parseConfig(text, 'c.yaml');
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}

test('a reload of four thousand clients keeps no request waiting', async () => {
  const text = (config: object): string =>
    stringify({ listen: { port: 0 }, control: { port: 0 }, ...config });
  const small = valued(largeConfig(1, 1));
  await using gateway = await startGatewayProcess({}, small, { runner: MONITORED });
  const large = valued(largeConfig(CLIENTS, DEPLOYMENTS));
  const changed = { ...large, clients: large.clients.toReversed(), deployments: others(large.deployments) };
  const [before, after] = [text(large), text(changed)];

  await measuredReload(gateway, before);
  const turns = [await measuredReload(gateway, after), await measuredReload(gateway, before)];
  expect(Math.min(...turns.map(({ cpuMs, ofProcessMs }) => cpuMs / ofProcessMs))).toBeLessThan(SHARE);
  expect((await fetch(`${gateway.origin}/api/d7/x`)).status).toBe(401);
}, 600_000);

test('the time to check a configuration grows with its size, not with its square', () => {
  const text = (parts: number): string => stringify(addressConfig(CLIENTS / parts, DEPLOYMENTS / parts));
  const [part, whole] = [text(PARTS), text(1)];
  const ofPart = Math.min(workOf(part), workOf(part));
  let ofWhole = workOf(whole);
  // Collecting garbage of the test before can take as long as the work.
  if (ofWhole >= LINEAR * ofPart) ofWhole = Math.min(ofWhole, workOf(whole));
  expect(ofWhole / ofPart).toBeLessThan(LINEAR);
}, 600_000);

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
