import { type ChildProcess, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { connect as connectTcp, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { connect } from 'node:tls';

/** Milliseconds; a server that listens does so in a hundredth of it. */
const START_LIMIT_MS = 120_000;
const RETRY_MS = 10;
const PORTS_TRIED = 5;
/** 10,000 more, which is the second port of a Redis in a Cluster, is below 32768, too. */
const FREE_PORTS = [10_000, 22_768] as const;
/** More than jest has workers. */
const PARTS = 16;
const PART = Math.floor((FREE_PORTS[1] - FREE_PORTS[0]) / PARTS);
let lastPort = randomInt(PART);

const PID_FILE = 'server.pid';

/**
 * Runs the command until a line or the end comes in on stdin, says "ended", and at the end of stdin
 * removes the folder. Whatever ends the test's process, even SIGKILL, ends stdin.
 */
const KEEPER = `
folder=$1; shift
exec 3<&0
"$@" </dev/null >&2 & server=$!
echo "$server" >"$folder/${PID_FILE}"
{ read -r _ <&3; kill "$server"; kill -CONT "$server" 2>/dev/null; } & watcher=$!
wait "$server"
kill "$watcher" 2>/dev/null
trap '' PIPE # nobody may be left to hear it
echo ended 2>/dev/null
cat <&3 >/dev/null
rm -rf "$folder"
`;

/** Where a server keeps its files and listens. */
export interface Place {
  readonly folder: string;
  readonly port: number;
}

export interface ServerPlan {
  /** Writes the server's files for this place; resolves to the command that runs it in the foreground. */
  prepare(place: Place): Promise<readonly string[]>;
  /** Whether the server, and not somebody else's on the same port, takes requests. */
  answers(place: Place): Promise<boolean>;
}

export interface ServerProcess {
  readonly place: Place;
  /** Process id of the program's first process. */
  pid(): Promise<number>;
  /** Resolves when the server has ended; its folder stays. */
  stop(): Promise<void>;
  /** Resolves when the server has ended and its folder is gone. */
  close(): Promise<void>;
}

/**
 * Runs a program of the system, on a free port unless one is given; resolves when it answers.
 * @throws Error with what the program printed when it ends or stays silent
 */
export async function startServer(plan: ServerPlan, port?: number): Promise<ServerProcess> {
  for (let left = port === undefined ? PORTS_TRIED : 1; ; left -= 1) {
    const folder = await mkdtemp(join(tmpdir(), 'server-'));
    const server = await launch(plan, { folder, port: port ?? (await freePort()) });
    try {
      await server.answers();
      return server;
    } catch (error) {
      await server.close();
      // Somebody may take the port between its release here and the server's own bind.
      if (left <= 1 || !/in use/i.test(server.printed())) {
        throw new Error(`The server did not start: ${server.printed()}`, { cause: error });
      }
    }
  }
}

interface LaunchedServer extends ServerProcess {
  printed(): string;
  answers(): Promise<void>;
}

async function launch(plan: ServerPlan, place: Place): Promise<LaunchedServer> {
  const command = await plan.prepare(place).catch(async (error) => {
    await rm(place.folder, { recursive: true });
    throw error;
  });
  // Its own process group: Ctrl-C reaches the test only, and the end of stdin does the rest.
  const keeper = spawn('sh', ['-c', KEEPER, 'keeper', place.folder, ...command], { detached: true });
  const closed = once(keeper, 'close');
  const ended = Promise.race([once(keeper.stdout, 'data'), closed]);
  const printed = collect(keeper);
  let running = true;
  void ended.then(() => {
    running = false;
  });
  const stop = async (): Promise<void> => {
    if (running) keeper.stdin.write('\n');
    await ended;
  };
  return {
    place,
    pid: async () => Number(await readFile(join(place.folder, PID_FILE), 'utf8')),
    printed,
    async answers() {
      const deadline = performance.now() + START_LIMIT_MS;
      while (!(await plan.answers(place))) {
        if (!running || performance.now() > deadline) throw new Error('nothing listens');
        await Promise.race([ended, delay(RETRY_MS)]);
      }
    },
    stop,
    async close() {
      await stop();
      keeper.stdin.end();
      await closed;
    },
  };
}

function collect(child: ChildProcess): () => string {
  let text = '';
  child.stderr?.setEncoding('utf8').on('data', (piece: string) => {
    text += piece;
  });
  return () => text;
}

/** Whether a server with a certificate of this authority listens: another one's would not do. */
export function speaksTls(
  port: number,
  ca: string,
  client?: { readonly key: string; readonly certificate: string },
): Promise<boolean> {
  return new Promise((resolve) => {
    const shown = client && { key: client.key, cert: client.certificate };
    const socket = connect({ host: '127.0.0.1', port, ca, ...shown });
    const tell = (listens: boolean) => () => {
      socket.destroy();
      resolve(listens);
    };
    socket.once('secureConnect', tell(true)).once('error', tell(false));
  });
}

/** Whether anything listens, for a server without TLS. */
export function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectTcp({ host: '127.0.0.1', port });
    const settle = (isThere: boolean) => () => {
      socket.destroy();
      resolve(isThere);
    };
    socket.once('connect', settle(true)).once('error', settle(false));
  });
}

/**
 * A port of 127.0.0.1 that nobody listens on. The system gives connections ports from 32768 on, so that none takes it
 * before it is used, or while its server is restarted.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = nextPort();
    const server = createServer().listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
    } catch {
      continue;
    }
    server.close();
    await once(server, 'close');
    return port;
  }
}

/** Each worker of jest has ports of its own: no other one takes a port between its release and the server's bind. */
function nextPort(): number {
  lastPort = (lastPort + 1) % PART;
  return FREE_PORTS[0] + PART * (Number(process.env['JEST_WORKER_ID'] ?? 0) % PARTS) + lastPort;
}
