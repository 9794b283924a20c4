import { type Explanation, explain } from '../../src/cli/explanation.ts';
import { ANONYMOUS } from '../../src/policy/client.ts';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { startSimulator } from '../../src/simulator/simulator.ts';
import type { RawAnswer } from './raw-answer.ts';
import { type RunningGateway, setupFor, startGateway } from './running-gateway.ts';
import { useClients, useRunning } from './wire.ts';

/** Deployments with rules, in front of a simulator that echoes what it is asked. */
export interface Policed {
  readonly gateway: RunningGateway;
  /** One request on a connection of its own; header lines without their ends. */
  ask(line: string, ...headers: string[]): Promise<RawAnswer>;
  /** What `policy explain` says of a GET. */
  explained(target: string): Explanation;
  /** How many requests the upstreams have seen. */
  arrived(): number;
}

const operations = {
  item: { method: 'GET', path: '/echo/strict/item', parameters: { ids: 'quoted-list', site_name: 'site' } },
  part: { method: 'GET', path: '/echo/strict/parts/{id}', parameters: {} },
};
const sites = { 'journal-a': { credential: 'strict' }, 'journal-b': { credential: 'strict' } };

/**
 * Three deployments share an upstream: `/echo/strict` serves its two operations only, `/echo/one` has one site and adds it,
 * `/echo` serves everything. A fourth, of another upstream, has the host `elsewhere.internal`.
 */
const SETTINGS = {
  strict: {
    match: { pathPrefix: '/echo/strict' },
    credential: undefined,
    siteParameter: 'site_name',
    sites,
    operations,
    unlistedOperations: 'deny',
  },
  one: {
    match: { pathPrefix: '/echo/one' },
    credential: undefined,
    siteParameter: 'site_name',
    sites: { 'Revue d’été': { credential: 'one' } },
    injectSite: true,
    operations: { item: { method: 'GET', path: '/echo/one/item', parameters: { ids: 'quoted-list' } } },
  },
  free: { match: { pathPrefix: '/echo' } },
  elsewhere: { match: { host: 'elsewhere.internal' } },
};

/** Starts it for the tests of a file. */
export function usePoliced(): Policed {
  const running = useRunning(start);
  const connect = useClients();
  return {
    get gateway() {
      return running().gateway;
    },
    ask: async (line, ...headers) => {
      const host = headers.some((header) => /^host:/i.test(header)) ? [] : ['Host: gateway.internal'];
      const client = await connect(running().gateway.port);
      await client.send(`${[`${line} HTTP/1.1`, ...host, ...headers].join('\r\n')}\r\n\r\n`);
      return client.answer(line.slice(0, line.indexOf(' ')));
    },
    explained: (target) =>
      explain(running().config, { client: ANONYMOUS, method: 'GET', target, host: 'gateway.internal' }),
    arrived: () => running().arrived(),
  };
}

async function start() {
  const { deployments } = defaultSettings();
  const simulator = await startSimulator({
    deployments: {
      submissions: { ...deployments.submissions, testPaths: true },
      abstracts: { ...deployments.abstracts, testPaths: true },
    },
  });
  const { submissions, abstracts } = simulator.deployments;
  const described = Object.fromEntries(
    Object.entries(SETTINGS).map(([name, settings]) => {
      const { origin } = name === 'elsewhere' ? abstracts : submissions;
      return [name, { origin, ca: simulator.ca, settings }];
    }),
  );
  const setup = await setupFor(described);
  const gateway = await startGateway(described);
  return {
    gateway,
    config: setup.config,
    arrived: () => simulator.counts('submissions').requests + simulator.counts('abstracts').requests,
    close: async () => {
      await gateway.close();
      await simulator.close();
    },
  };
}
