import { readFile, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, expect } from '@jest/globals';
import { Client } from 'undici';
import { parse, stringify } from 'yaml';
import { AUDIT_KEY, recordsIn, useFoldersOfAll } from '../../support/audit-log.ts';
import { metricOf } from '../../support/gateway.ts';
import { OF_PROGRAM, post, TOKEN_HASHES } from '../../support/operator.ts';
import { type FleetScene, openScene } from '../../support/scene.ts';
import { authors } from '../../support/simulator.ts';
import { until } from '../../support/until.ts';

/** The fleet of all tests that need no settings of their own at the start. */
export interface SharedFleet extends FleetScene {
  readonly folder: string;
  /** The directory of its audit log. */
  readonly log: string;
  /** The content of its configuration's file. */
  readonly configuration: string;
}

/**
 * Starts a fleet for the tests of a file that need no settings of their own at the start; the first of them starts it.
 * `sections`: those of its configuration, beyond the audit log and the tokens; they may write files to the folder.
 */
export function useSharedFleet(sections: (folder: string) => object | Promise<object> = () => ({})) {
  let shared: SharedFleet | undefined;
  // Hooks run in this order: the folder goes when nothing writes there any more.
  afterAll(async () => {
    await shared?.gateway.drain();
    expect(await shared?.gateway.ended).toBe(shared && 0);
    await shared?.[Symbol.asyncDispose]();
  });
  const folderOfAll = useFoldersOfAll();

  async function start(listen: { port: number }): Promise<SharedFleet> {
    const folder = await folderOfAll();
    const top = {
      listen,
      audit: await auditIn(folder),
      control: { port: 0, ...TOKEN_HASHES },
      ...(await sections(folder)),
    };
    const scene = await openScene({ workers: 2, top });
    const configuration = await readFile(scene.gateway.configFile, 'utf8');
    return { ...scene, folder, log: join(folder, 'log'), configuration };
  }

  /** The fleet with two workers and its own configuration with this change; tests may change it further. */
  async function sharedFleet(
    listen = { port: 0 },
    change: (config: Record<string, unknown>, fleet: SharedFleet) => void | Promise<void> = () => {},
  ): Promise<SharedFleet> {
    shared ??= await start(listen);
    const fleet = shared;
    const { configFile } = fleet.gateway;
    await until(
      async () =>
        (await fleet.gateway.workers()).length === 2 && (await metric(fleet, 'digest_gateway_workers')) === 2,
    );
    const config = parse(fleet.configuration);
    await change(config, fleet);
    const wanted = stringify(config);
    if ((await readFile(configFile, 'utf8')) !== wanted) {
      await writeFile(configFile, wanted);
      expect(await reload(fleet)).toBe(200);
    }
    await until(() => isWhole(fleet));
    return fleet;
  }

  /** The fleet for a test that ends it. */
  async function takeFleet(...options: Parameters<typeof sharedFleet>): Promise<SharedFleet> {
    const fleet = await sharedFleet(...options);
    shared = undefined;
    return fleet;
  }

  return { sharedFleet, takeFleet };
}

export function metric(
  { gateway }: FleetScene,
  name: string,
  labels: Record<string, string> = {},
): Promise<number> {
  return metricOf(gateway.control, name, labels, OF_PROGRAM);
}

export async function reload({ gateway }: FleetScene): Promise<number> {
  return (await post(`${gateway.control}/api/reload`, undefined, OF_PROGRAM)).status;
}

/** Milliseconds from a response to the next request of its client. */
const PAUSE_MS = 10;

/** Milliseconds that the upstream takes: most connections have an exchange under way, and few processors do. */
const EXCHANGE_MS = 50;

/** Clients that send requests until they are stopped; one connection each. */
export function startClients({ gateway, simulator }: FleetScene, count: number) {
  simulator.set('submissions', { faults: [{ kind: 'delay', ms: EXCHANGE_MS }] });
  // Each connects after the one before it: one worker would accept them all if they came at once.
  const begun = Array.from({ length: count }, () => Promise.withResolvers<void>());
  const outcomes: Record<string, number> = {};
  const failures: number[] = [];
  let isGoing = true;
  const client = async (_: unknown, index: number): Promise<void> => {
    failures[index] = 0;
    await begun[index - 1]?.promise;
    const connection = new Client(gateway.origin);
    while (isGoing) {
      const outcome = await connection
        .request({ path: authors, method: 'GET' })
        .then(async ({ statusCode, body }) => {
          await body.text();
          return String(statusCode);
        })
        .catch((error) => String(error.code ?? error));
      begun[index]?.resolve();
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
      if (outcome !== '200') failures[index] = (failures[index] ?? 0) + 1;
      // Workers that start need the processors, too.
      await delay(PAUSE_MS);
    }
    begun[index]?.resolve();
    await connection.close();
  };
  const clients = Promise.all(Array.from({ length: count }, client));
  return {
    outcomes,
    /** Failed requests of each client. */
    failures,
    async stop() {
      isGoing = false;
      await clients;
      simulator.set('submissions', { faults: [] });
      return outcomes;
    },
  };
}

/** Longer than any response takes: then the connection is lost, and nobody has closed it. */
const LOST_MS = 60_000;

/** Sends a request on a connection of its own; resolves to its status, or the error that ended the connection. */
export function statusOnNewConnection(origin: string): Promise<number | string | undefined> {
  return new Promise((resolve) => {
    const signal = AbortSignal.timeout(LOST_MS);
    request(`${origin}${authors}`, { agent: false, signal }, (response) => {
      response.resume().once('close', () => resolve(response.complete ? response.statusCode : 'broken'));
    })
      .once('error', ({ code, message }: NodeJS.ErrnoException) => resolve(code ?? message))
      .end();
  });
}

/** Sends so many requests, each on a new connection. */
export async function requestsOnNewConnections(scene: FleetScene, count: number): Promise<void> {
  for (let sent = 0; sent < count; sent += 1)
    expect(await statusOnNewConnection(scene.gateway.origin)).toBe(200);
}

export async function readiness({
  gateway,
}: FleetScene): Promise<{ status: string; checks: { name: string; ok: boolean; detail: string }[] }> {
  return (await (await fetch(`${gateway.control}/readyz`)).json()) as never;
}

export async function isWhole(scene: FleetScene): Promise<boolean> {
  // Metrics and state come from every process: while one is missing, nobody needs to ask.
  if ((await scene.gateway.workers()).length !== 2) return false;
  const { status } = await readiness(scene);
  return status === 'ok' && (await metric(scene, 'digest_gateway_workers')) === 2;
}

/** Resolves when another worker serves in the place of the one that is ended. */
export async function untilReplaced(scene: FleetScene, victim: number): Promise<void> {
  await until(async () => !(await scene.gateway.workers()).includes(victim));
  await until(() => isWhole(scene));
}

/** Changes the configuration's file. */
export async function rewrite(
  { gateway }: FleetScene,
  change: (config: Record<string, unknown>) => void,
): Promise<void> {
  const config = parse(await readFile(gateway.configFile, 'utf8'));
  change(config);
  await writeFile(gateway.configFile, stringify(config));
}

/** Changes it so that every request gets 401 when it is in force. */
export function allowNobody(scene: FleetScene): Promise<void> {
  return rewrite(scene, (config) => {
    config['anonymous'] = false;
    config['clients'] = [
      { id: 'nobody', identify: { addresses: ['192.0.2.1'] }, allow: [{ deployment: 'submissions' }] },
    ];
  });
}

export function isThere(pid: number): Promise<boolean> {
  return readFile(`/proc/${pid}/stat`).then(
    () => true,
    () => false,
  );
}

/** Settings of an audit log in a new folder. */
async function auditIn(folder: string): Promise<Record<string, unknown>> {
  const keyFile = join(folder, 'audit.key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  return { directory: join(folder, 'log'), keyFile, replica: 'r1', durability: 'write' };
}

/** How many responses its workers have recorded. */
export async function accessRecords({ log }: SharedFleet): Promise<number> {
  const records = await Promise.all(['r1@1', 'r1@2'].map((replica) => recordsIn(log, replica)));
  return records.flat().filter(({ kind }) => kind === 'access').length;
}
