import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import type { KeyPair } from '../../src/simulator/certificates.ts';
import { type Place, type ServerProcess, startServer } from './server-process.ts';
import { needPackages } from './system-packages.ts';

export interface RedisSetup {
  /** Lines of redis.conf, beside those that make it small and private. */
  readonly settings?: readonly string[] | ((port: number) => readonly string[]);
  /** With TLS only. */
  readonly certificate?: KeyPair;
  /** The authority, PEM, that signed the certificates of the servers it speaks with. */
  readonly ca?: string;
  /** Files in the server's folder when it starts, by name. */
  readonly files?: Readonly<Record<string, Buffer>>;
  readonly port?: number;
  readonly sentinel?: boolean;
}

/** A redis-server of the system on a free port. */
export interface RedisServer {
  readonly port: number;
  readonly url: string;
  /** Sends a command over a connection of its own. */
  command(name: string, ...args: (string | number)[]): Promise<unknown>;
  /** Stops the process where it stands (SIGSTOP), with its connections open. */
  hang(): Promise<void>;
  /** Lets it go on (SIGCONT). */
  goOn(): Promise<void>;
  /** Ends the process without a chance to say goodbye (SIGKILL). */
  kill(): Promise<void>;
  /** Starts it again, empty, on the same port, with more settings or files if given. */
  restart(more?: Pick<RedisSetup, 'settings' | 'files'>): Promise<void>;
  /** Reads a file that it has written to its folder. */
  read(name: string): Promise<Buffer>;
  close(): Promise<void>;
}

/** Starts a Redis that keeps nothing on disk; resolves when it listens. */
export async function startRedis(setup: RedisSetup = {}): Promise<RedisServer> {
  needPackages('redis-server');
  let server = await launch(setup, setup.port);
  const { port } = server.place;
  const signal = async (name: NodeJS.Signals): Promise<void> => {
    process.kill(Number(await pidIn(server.place)), name);
  };
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    async command(name, ...args) {
      const client = new Redis({
        host: '127.0.0.1',
        port,
        retryStrategy: null,
        enableReadyCheck: false,
        ...(setup.certificate && { tls: { rejectUnauthorized: false } }),
      });
      // The command itself is rejected with the same.
      client.on('error', () => undefined);
      try {
        return await client.call(name, ...args);
      } finally {
        client.disconnect();
      }
    },
    hang: () => signal('SIGSTOP'),
    goOn: () => signal('SIGCONT'),
    async kill() {
      await signal('SIGKILL');
      await server.stop();
    },
    async restart(more = {}) {
      await server.close();
      server = await launch(
        { ...setup, ...more, settings: [...linesOf(setup, port), ...linesOf(more, port)] },
        port,
      );
    },
    read: (name) => readFile(join(server.place.folder, name)),
    close: () => server.close(),
  };
}

function launch(setup: RedisSetup, port?: number): Promise<ServerProcess> {
  return startServer(
    {
      async prepare(place) {
        const { folder } = place;
        for (const [name, content] of Object.entries(setup.files ?? {})) {
          await writeFile(join(folder, name), content);
        }
        if (setup.certificate) {
          await writeFile(join(folder, 'cert.pem'), setup.certificate.cert);
          await writeFile(join(folder, 'key.pem'), setup.certificate.key);
          await writeFile(join(folder, 'ca.pem'), setup.ca ?? setup.certificate.cert);
        }
        const file = join(folder, 'redis.conf');
        await writeFile(file, configuration(setup, place));
        return ['redis-server', file, ...(setup.sentinel ? ['--sentinel'] : [])];
      },
      // It is written once the port is taken.
      answers: async (place) => (await pidIn(place)) !== '',
    },
    port,
  );
}

function configuration(setup: RedisSetup, { folder, port }: Place): string {
  const { certificate, sentinel } = setup;
  return [
    'bind 127.0.0.1',
    `dir ${folder}`,
    `pidfile ${folder}/pid`,
    ...(sentinel ? [] : ['save ""', 'enable-debug-command yes', 'repl-diskless-sync-delay 0']),
    ...(certificate
      ? [
          'port 0',
          `tls-port ${port}`,
          `tls-cert-file ${folder}/cert.pem`,
          `tls-key-file ${folder}/key.pem`,
          `tls-ca-cert-file ${folder}/ca.pem`,
          'tls-auth-clients no',
          'tls-replication yes',
        ]
      : [`port ${port}`]),
    ...linesOf(setup, port),
    '',
  ].join('\n');
}

function linesOf({ settings = [] }: Pick<RedisSetup, 'settings'>, port: number): readonly string[] {
  return typeof settings === 'function' ? settings(port) : settings;
}

async function pidIn({ folder }: Place): Promise<string> {
  const text = await readFile(join(folder, 'pid'), 'utf8').catch(() => '');
  return text.trim();
}
