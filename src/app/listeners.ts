import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { LogThrottle } from '../base/log-throttle.ts';
import { formatPath } from '../config/issues.ts';
import { listenerPath, sharedSettings } from '../config/listen.ts';
import { ConnectionLimits } from '../gateway/connection-limits.ts';
import type { Gateway } from '../gateway/gateway.ts';
import { Listener } from '../gateway/listener.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { AppSetup } from '../setup/setup.ts';

/** Proxies and reasons whose log lines are throttled. */
const MAX_THROTTLED = 50;

interface ListenersDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  /** True if many clients may share an address, such as a trusted proxy's. */
  readonly isShared: (address: string) => boolean;
}

/** Creates the listeners of a setup, which share their limits. None listens yet. */
export function createListeners(
  { config, listenTls }: AppSetup,
  gateway: Gateway,
  { clock, log, metrics, isShared }: ListenersDeps,
): Listener[] {
  const { limits } = sharedSettings(config.listen);
  const shared = new ConnectionLimits({ ...limits, isShared });
  const proxyHeaders = new LogThrottle(clock, MAX_THROTTLED);
  return config.listen.map(
    (settings, index) =>
      new Listener(gateway, {
        ...limits,
        listener: index,
        place: settings,
        path: formatPath(listenerPath(config.listen, index)),
        limits: shared,
        tls: listenTls[index],
        onRefused: (limit, listener) => metrics.connectionsRefused.inc({ limit, listener }),
        proxyProtocol: settings.proxyProtocol,
        onProxyHeader: (reason, proxy, listener) => {
          metrics.proxyHeadersRefused.inc({ reason, listener });
          const suppressed = proxyHeaders.admit(`${proxy} ${reason}`);
          if (suppressed !== undefined)
            log.warn({ proxy, reason, suppressed }, 'connection without a valid PROXY header closed');
        },
      }),
  );
}
