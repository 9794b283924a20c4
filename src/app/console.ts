import { getOrInsert, ownEntry } from '../base/maps.ts';
import { apiKeysOf, keyName } from '../config/api-keys.ts';
import { effectiveInBackground } from '../config/load-background.ts';
import type { Config } from '../config/schema.ts';
import type { Pieces } from '../config/transfer.ts';
import type {
  ClientDetailView,
  ClientUse,
  ExplanationView,
  KeyView,
  OperationView,
  ParameterLimitView,
  RuleView,
} from '../control/client-view.ts';
import { ControlError } from '../control/control-error.ts';
import type { RulePlace } from '../control/map.ts';
import type { ExplainRequest, Queries } from '../control/queries.ts';
import type { ConsoleSource } from '../control/snapshot.ts';
import type { GatewayState } from '../control/state.ts';
import type { ReadMetrics } from '../control/totals.ts';
import type { DeploymentSettings } from '../control/view.ts';
import type { BuildInfo } from '../metrics/metrics.ts';
import {
  ANONYMOUS,
  type Client,
  hasEnded,
  isObserved,
  type Names,
  type ParameterLimit,
} from '../policy/rules.ts';
import { clientConditions, clientIn, explain, identifyOf, rulePath } from './explanation.ts';
import type { Reloads } from './reloads.ts';
import type { Workers } from './worker.ts';

type ActiveSetup = Pick<Reloads, 'active' | 'activeSince'>;

interface ConsoleParts {
  readonly values: ReadMetrics;
  readonly workers: Workers;
  readonly build: BuildInfo;
  readonly reloads: ActiveSetup;
  readonly state: () => Promise<GatewayState>;
}

/** Makes the console's view of the gateway. */
export function consoleSource(parts: ConsoleParts): ConsoleSource {
  const { values, workers, build, reloads, state } = parts;
  const { tokenSha256, oidc } = reloads.active.config.control;
  return {
    values,
    version: build.version,
    node: build.node,
    tokenAsked: tokenSha256 !== undefined || oidc !== undefined,
    startedAt: Date.now(),
    configuredAt: () => reloads.activeSince,
    state,
    clients: () => reloads.active.config.clients.map(({ id }) => id),
    rules: () => rulesOf(reloads.active.config),
    settings: (deployment) => deploymentSettings(deployment, reloads.active.config),
    auditLines: (position) => workers.auditLines(position),
  };
}

function rulesOf({ anonymous, clients }: Config): RulePlace[] {
  const now = Date.now();
  const named = clients.flatMap(({ id, allow }, index) =>
    allow.flatMap((rule, at) =>
      hasEnded(rule, now)
        ? []
        : [{ client: id, deployment: rule.deployment, path: `clients[${index}].allow[${at}]` }],
    ),
  );
  if (!anonymous) return named;
  const everything = ANONYMOUS.allow.map(({ deployment }) => ({
    client: ANONYMOUS.id,
    deployment,
    path: 'anonymous',
  }));
  return [...named, ...everything];
}

/** Returns the limits that apply to a deployment; undefined: there is none of this name. */
function deploymentSettings(name: string, { deployments, clients }: Config): DeploymentSettings | undefined {
  const deployment = ownEntry(deployments, name);
  if (deployment === undefined) return undefined;
  const { connections, timeouts, body, retry, limits } = deployment;
  const limited = clients.flatMap(({ id, allow, limits: own }) =>
    own !== undefined && allow.some((rule) => rule.deployment === name) ? [{ client: id, limits: own }] : [],
  );
  return { connections, timeouts, body, retry, limits, clients: limited };
}

/** Values of a parameter that are shown; a list can have thousands. */
const VALUES = 20;

interface QueriesDeps {
  readonly workers: Pick<Workers, 'clientUse' | 'flightRecord'>;
  readonly reloads: Pick<ActiveSetup, 'active'>;
}

/** Answers the console's questions about clients, rules and the configuration from the active setup. */
export function queriesOf({ workers, reloads }: QueriesDeps): Queries {
  const effective = effectiveOf(reloads);
  return {
    configuration: effective,
    flightRecord: () => workers.flightRecord(),
    explain: (request) => explained(reloads.active.config, request),
    client: async (id) => {
      const { config } = reloads.active;
      const client = clientIn(config, id);
      if (client === undefined) return undefined;
      const use = await workers.clientUse(id);
      return { ...detailOf(config, client), ...use, keys: keysOf(config, client, use) };
    },
  };
}

/** Writes each configuration once for all callers. */
function effectiveOf(reloads: QueriesDeps['reloads']): () => Promise<string> {
  const written = new WeakMap<Pieces, Promise<string>>();
  return () => {
    const { config } = reloads.active.source;
    return getOrInsert(written, config, () =>
      effectiveInBackground(config).catch((error) => {
        // The next question tries again.
        written.delete(config);
        throw error;
      }),
    );
  };
}

function explained(
  config: Config,
  { client: id, deployment, method, target }: ExplainRequest,
): ExplanationView {
  const client = clientIn(config, id === '' ? undefined : id);
  if (client === undefined) throw new ControlError('client-unknown');
  const settings = deployment === '' ? undefined : ownEntry(config.deployments, deployment);
  if (deployment !== '' && settings === undefined) throw new ControlError('target-unknown');
  const host = settings?.match.host;
  return explain(config, { client, method, target, host, now: Date.now() });
}

/** The configured keys of a client, each with the latest time at which a process saw it. */
function keysOf(config: Config, client: Client, { keys: seen }: ClientUse): KeyView[] {
  return Array.from(apiKeysOf(identifyOf(config, client) ?? {}), (key) => {
    const name = keyName(key);
    const times = seen.filter((each) => each.name === name).map(({ lastSeen }) => lastSeen);
    return { name, expires: key.expires ?? null, lastSeen: times.length === 0 ? null : Math.max(...times) };
  });
}

function detailOf(config: Config, client: Client): Omit<ClientDetailView, keyof ClientUse> {
  return {
    id: client.id,
    identifiedBy: clientConditions(config, client, Date.now()),
    observedUntil: (isObserved(client, Date.now()) && client.mode?.until) || null,
    rules: client.allow.map(
      (rule): RuleView => ({
        path: rulePath(config, client, rule),
        deployment: rule.deployment,
        sites: listOf(rule.sites),
        operations: operationsOf(config, rule.deployment, rule.operations),
        methods: listOf(rule.methods),
        parameters: rule.parameters.map(parameterView),
        credential: rule.credential ?? null,
        ends: rule.ends ?? null,
      }),
    ),
  };
}

function listOf(names: Names): string[] | null {
  return names === '*' ? null : [...names];
}

function operationsOf({ deployments }: Config, deployment: string, names: Names): OperationView[] | null {
  if (names === '*') return null;
  const listed = ownEntry(deployments, deployment)?.operations ?? {};
  return Array.from(names, (name) => {
    const { method = '', path = '' } = ownEntry(listed, name) ?? {};
    return { name, method, path };
  });
}

function parameterView({ name, max, values }: ParameterLimit): ParameterLimitView {
  const all = values && [...values];
  return {
    name,
    max: max ?? null,
    values: all?.slice(0, VALUES) ?? null,
    moreValues: Math.max(0, (all?.length ?? 0) - VALUES),
  };
}
