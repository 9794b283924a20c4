import { writeFile } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { type Certificates, createCertificates } from './certificates.ts';
import type { Counts } from './counts.ts';
import { Deployment } from './deployment.ts';
import type { Observer } from './exchange.ts';
import { type BehaviourChange, type SimulatorSettings, simulatorSettings } from './settings.ts';
import { SidePort } from './side-port.ts';

/** The address of a deployment. */
interface DeploymentAddress {
  readonly port: number;
  /** For example `https://127.0.0.1:9443`. */
  readonly origin: string;
  /** The path segment after /api/. */
  readonly family: string;
}

/** A running upstream service. */
export interface Simulator<Name extends string = string> {
  /** Certificate of the authority that signed the servers' certificates, PEM. */
  readonly ca: string;
  readonly deployments: Readonly<Record<Name, DeploymentAddress>>;
  /** Port of plain HTTP on 127.0.0.1, for counts and changes. */
  readonly sidePort: number;
  /** Changes the behaviour for later requests; undefined restores a default. */
  set(deployment: Name, change: BehaviourChange): void;
  counts(deployment: Name): Counts;
  /** Simulates a restart: new nonce key, counts at zero. */
  reset(deployment: Name): void;
  /** Closes every connection and port. May be called more than once. */
  close(): Promise<void>;
}

export interface SimulatorDeps {
  /** Wall-clock milliseconds, for nonces and lock-outs. */
  readonly now?: () => number;
  /** Undefined: requests are not observed. */
  readonly observer?: Observer;
  /** Undefined: an authority and certificates of its own, which are also for `serverNames`. */
  readonly certificates?: Certificates | undefined;
}

/**
 * Starts the upstream service: an authority, its deployments, and the side port.
 * @throws ZodError for invalid settings; an error of `listen` if a port is taken, or of writing `caFile`.
 */
export async function startSimulator<Name extends string>(
  settings: SimulatorSettings<Name>,
  { now = Date.now, observer, certificates: given }: SimulatorDeps = {},
): Promise<Simulator<Name>> {
  const { host, sidePort, serverNames, caFile, deployments: wanted } = simulatorSettings.parse(settings);
  const certificates = given ?? (await createCertificates(serverNames));
  // The gateway refuses an authority that others can write, as umask 002 would make it.
  if (caFile !== undefined) await writeFile(caFile, certificates.ca, { mode: 0o644 });
  const deployments = new Map(
    Object.entries(wanted).map(([name, each]) => [name, new Deployment(each, certificates, now, observer)]),
  );
  const side = new SidePort(deployments, certificates.ca);
  const close = async () => {
    await Promise.all([...Array.from(deployments.values(), (each) => each.close()), side.close()]);
  };
  const listening = async () => {
    const addresses: Record<string, DeploymentAddress> = {};
    for (const [name, each] of deployments) {
      const port = await each.listen(host);
      const origin = `${each.scheme}://${isIPv6(host) ? `[${host}]` : host}:${port}`;
      addresses[name] = { port, origin, family: each.family };
    }
    return { addresses: addresses as Record<Name, DeploymentAddress>, port: await side.listen(sidePort) };
  };
  const { addresses, port } = await listening().catch(async (error: unknown) => {
    await close();
    throw error;
  });
  const named = (name: Name): Deployment => {
    const deployment = deployments.get(name);
    if (deployment === undefined) throw new RangeError(`The simulator has no deployment ${name}.`);
    return deployment;
  };
  return {
    ca: certificates.ca,
    deployments: addresses,
    sidePort: port,
    set: (name, change) => named(name).change(change),
    counts: (name) => named(name).counts(),
    reset: (name) => named(name).reset(),
    close,
  };
}
