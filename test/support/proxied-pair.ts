import { afterEach } from '@jest/globals';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import { type Pair, startPair } from './simulated-pair.ts';
import { proxyAccount, type Squid, type SquidOptions, startSquid, type Tunnelled } from './squid.ts';
import { until } from './until.ts';

export interface ProxiedPair extends Pair {
  readonly squid: Squid;
  /** Ends every tunnel; resolves to the CONNECTs that Squid saw, in the order of their ends. */
  end(): Promise<Tunnelled[]>;
}

export interface ProxiedOptions {
  readonly behaviour?: BehaviourChange;
  /** Of the proxy's credential; `undefined`: none is given. */
  readonly password?: string | undefined;
  /** PEM of the authority that is trusted for a proxy with TLS; its own when left out. */
  readonly proxyCa?: string | undefined;
  /** Of the deployment. */
  readonly settings?: Record<string, unknown>;
}

const open: Squid[] = [];

afterEach(async () => {
  for (const squid of open.splice(0)) await squid.close();
});

/** A gateway that reaches the simulator through Squid only. */
export async function startProxiedPair(
  squidOptions: SquidOptions,
  options: ProxiedOptions = {},
): Promise<ProxiedPair> {
  const squid = await startSquid(squidOptions);
  open.push(squid);
  const { behaviour = {}, settings = {} } = options;
  const password = 'password' in options ? options.password : proxyAccount.password;
  const ownCa = squidOptions.tls === true ? squid.ca : undefined;
  const proxyCa = 'proxyCa' in options ? options.proxyCa : ownCa;
  const withCredential = squidOptions.auth !== undefined && password !== undefined;
  const proxy = { url: squid.url, ...(withCredential && { credential: 'proxy' }) };
  const pair = await startPair(behaviour, {
    settings: { egress: { proxy }, ...settings },
    ...(proxyCa !== undefined && { proxyCa }),
    ...(withCredential && {
      credentials: { proxy: { username: { value: proxyAccount.username }, password: { value: password } } },
    }),
  });
  return {
    ...pair,
    squid,
    end: async () => {
      await pair.gateway.close();
      const tunnels = pair.simulator.counts('submissions').connections;
      let log: Tunnelled[] = [];
      await until(async () => {
        log = await squid.log();
        return log.filter(({ status }) => status === 200).length === tunnels;
      });
      return log;
    },
  };
}
