import { GatewayError } from '../base/errors.ts';
import type { Config } from '../config/schema.ts';
import { Routes } from '../gateway/routes.ts';
import { parseTarget } from '../gateway/target.ts';
import { ANONYMOUS, type Client } from '../policy/client.ts';
import { decide } from '../policy/decide.ts';
import { withoutPrefix } from '../policy/rewrite.ts';
import { compileRules } from '../policy/rules.ts';
import { alignColumns } from './table.ts';

/** A request to explain. */
export interface ExplainedRequest {
  readonly client: Client;
  readonly method: string;
  readonly target: string;
  /** Host of the Host header. */
  readonly host: string;
}

/** The outcome of a request with its reason. Absent parts are empty texts. */
export type Explanation = Granted | Refused;

interface Granted {
  readonly allowed: true;
  readonly client: string;
  readonly deployment: string;
  /** Path of the rule in the configuration. */
  readonly rule: string;
  readonly operation: string;
  readonly site: string;
  readonly credential: string;
  /** Method and URL of the upstream request, byte for byte. */
  readonly sends: string;
  /** True if the gateway adds the site. */
  readonly siteAdded: boolean;
  /** The checked parameters, decoded. */
  readonly parameters: Readonly<Record<string, string>>;
}

interface Refused {
  readonly allowed: false;
  readonly client: string;
  readonly deployment: string;
  readonly status: number;
  readonly code: string;
  readonly detail: string;
}

/** Decides on a request as a gateway with this configuration does, without sending it. */
export function explain(config: Config, { client, method, target, host }: ExplainedRequest): Explanation {
  const routes = new Routes(
    Object.entries(config.deployments).map(([name, settings]) => ({
      deployment: { name, settings },
      match: { ...settings.match, baseUrl: settings.baseUrl },
    })),
  );
  let deployment = '';
  try {
    const parsed = parseTarget(target, host);
    const { name, settings } = routes.find(parsed);
    deployment = name;
    const rules = compileRules(name, settings, config.deployments);
    const { rule, parameters, ...grant } = decide(rules, client, {
      method,
      target: parsed.path,
      headers: [],
    });
    return {
      allowed: true,
      client: client.id,
      deployment,
      rule: client === ANONYMOUS ? 'anonymous' : rulePath(config, client, client.allow.indexOf(rule)),
      operation: grant.operation,
      site: grant.site,
      credential: grant.credential,
      sends: `${method} ${settings.baseUrl[0]}${grant.target}`,
      siteAdded: grant.target !== withoutPrefix(parsed.path, rules.stripPrefix),
      parameters: Object.fromEntries(parameters),
    };
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    const { code, detail, kind } = error;
    return { allowed: false, client: client.id, deployment, status: kind.status, code, detail };
  }
}

function rulePath({ clients }: Config, { id }: Client, rule: number): string {
  return `clients[${clients.findIndex((client) => client.id === id)}].allow[${rule}]`;
}

/** Formats the explanation as text lines. */
export function explanationLines(explanation: Explanation): string[] {
  const rows = explanation.allowed ? grantRows(explanation) : refusalRows(explanation);
  return alignColumns(rows.filter(([, value]) => value !== ''));
}

type Row = readonly [name: string, value: string];

function grantRows(granted: Granted): Row[] {
  const { client, deployment, rule, operation, site, credential, sends, siteAdded, parameters } = granted;
  return [
    ['allowed', `by ${rule}`],
    ['client', client],
    ['deployment', deployment],
    ['operation', operation || 'none that is listed'],
    ['site', `${site}${siteAdded ? ' (added)' : ''}`],
    ['credential', credential],
    ['sends', sends],
    ...Object.entries(parameters).map(([name, value]): Row => [name, `= ${JSON.stringify(value)}`]),
  ];
}

function refusalRows({ client, deployment, status, code, detail }: Refused): Row[] {
  return [
    ['refused', `${status} ${code}`],
    ['because', detail],
    ['client', client],
    ['deployment', deployment],
  ];
}
