import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Place, startServer } from './server-process.ts';
import { needPackages } from './system-packages.ts';

/** A server behind HAProxy. */
export interface Backend {
  readonly name: string;
  readonly port: number;
  /** Origin of its `/readyz`. */
  readonly controlPort: number;
}

export interface HaProxy {
  /** `http://127.0.0.1:PORT`. */
  readonly origin: string;
  /** State of a server in HAProxy: `UP`, `DOWN`, or on the way to one of them. */
  statusOf(name: string): Promise<string>;
  close(): Promise<void>;
}

export interface HaProxySetup {
  /** Lines of the section `defaults` that say how long it waits for servers, and what it repeats. */
  readonly defaults: readonly string[];
  /** Further lines of the section of the servers. */
  readonly backend?: readonly string[];
}

/** HAProxy in front of gateways; it asks each for its readiness every 50 ms. */
export async function startHaProxy(backends: readonly Backend[], setup: HaProxySetup): Promise<HaProxy> {
  needPackages('haproxy');
  const server = await startServer({
    async prepare(place) {
      const file = join(place.folder, 'haproxy.cfg');
      await writeFile(file, configuration(place, backends, setup));
      return ['haproxy', '-db', '-f', file];
    },
    answers: async ({ port }) => (await statsOf(port).catch(() => '')).startsWith('# pxname'),
  });
  const { port } = server.place;
  return {
    origin: `http://127.0.0.1:${port}`,
    statusOf: async (name) => {
      const row = (await statsOf(port)).split('\n').find((line) => line.startsWith(`gateways,${name},`));
      return row?.split(',')[17] ?? '';
    },
    close: () => server.close(),
  };
}

async function statsOf(port: number): Promise<string> {
  return (await fetch(`http://127.0.0.1:${port}/haproxy;csv`)).text();
}

function configuration(
  { port }: Place,
  backends: readonly Backend[],
  { defaults, backend = [] }: HaProxySetup,
): string {
  const servers = backends.map(
    ({ name, port: dataPort, controlPort }) =>
      `  server ${name} 127.0.0.1:${dataPort} check port ${controlPort} inter 50ms fall 1 rise 1`,
  );
  return `
defaults
  mode http
  timeout connect 10s
  timeout client 60s
  timeout check 30s
${defaults.map((line) => `  ${line}`).join('\n')}
frontend clients
  bind 127.0.0.1:${port}
  stats enable
  stats uri /haproxy
  default_backend gateways
backend gateways
  balance roundrobin
  option httpchk GET /readyz
${[...backend.map((line) => `  ${line}`), ...servers].join('\n')}
`;
}
