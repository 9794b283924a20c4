import type { Client } from '../config/clients.ts';
import type { Config } from '../config/schema.ts';
import type { ConsoleSource } from '../control/snapshot.ts';
import type { GatewayState } from '../control/state.ts';
import type { ReadMetrics } from '../control/totals.ts';
import type { DeploymentSettings, LimitsView } from '../control/view.ts';
import type { BuildInfo } from '../metrics/metrics.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { Serving } from './worker.ts';

export interface ConsoleParts {
  readonly values: ReadMetrics;
  readonly serving: Serving;
  readonly build: BuildInfo;
  /** The active setup, and its time of activation in Unix milliseconds. */
  readonly setup: () => AppSetup;
  readonly configuredAt: () => number;
  readonly state: () => Promise<GatewayState>;
}

/** Makes the console's view of the gateway. */
export function consoleSource(parts: ConsoleParts): ConsoleSource {
  const { values, serving, build, setup, configuredAt, state } = parts;
  return {
    values,
    version: build.version,
    node: build.node,
    tokenAsked: setup().config.control.tokenSha256 !== undefined,
    startedAt: Date.now(),
    configuredAt,
    state,
    clients: () => setup().config.clients.map(({ id }) => id),
    settings: (deployment) => deploymentSettings(deployment, setup().config),
    auditLines: (position) => serving.auditLines(position),
  };
}

/** Returns the limits that apply to a deployment; undefined: there is none of this name. */
function deploymentSettings(name: string, { deployments, clients }: Config): DeploymentSettings | undefined {
  const deployment = Object.hasOwn(deployments, name) ? deployments[name] : undefined;
  if (deployment === undefined) return undefined;
  const { connections, timeouts, body, retry, limits } = deployment;
  const { connect, response, idle, total } = timeouts;
  return {
    connections,
    timeouts: {
      connect: connect / 1000,
      response: response / 1000,
      idle: idle / 1000,
      total: total / 1000,
    },
    body,
    retries: retry.attempts,
    ...(limits !== undefined && { limits: limitsView(limits) }),
    clients: clients.flatMap(({ id, allow, limits: own }) =>
      own !== undefined && allow.some((rule) => rule.deployment === name)
        ? [{ client: id, limits: limitsView(own) }]
        : [],
    ),
  };
}

function limitsView({ rate, concurrent, daily }: NonNullable<Client['limits']>): LimitsView {
  return {
    ...(rate !== undefined && { perSecond: rate.perSecond, burst: rate.burst }),
    ...(concurrent !== undefined && { concurrent }),
    ...(daily !== undefined && { daily }),
  };
}
