import { isIPv6 } from 'node:net';
import { type ErrorCode, errorKinds } from '../base/errors.ts';
import { type OpenAddress, socketPath } from '../base/open-port.ts';
import type { Operation } from '../policy/catalogue.ts';
import { FORMS, type Parameter } from '../policy/parameter.ts';
import type { DeploymentRules, Sites } from '../policy/rules.ts';

/** The deployments that the gateway offers, and its addresses. */
export interface Offer {
  readonly version: string;
  /** Where the data plane listens. */
  readonly listen: readonly OfferedAddress[];
  readonly deployments: readonly OfferedDeployment[];
}

interface OfferedAddress extends OpenAddress {
  /** True: clients speak TLS. */
  readonly isSecure: boolean;
}

export interface OfferedDeployment {
  readonly rules: DeploymentRules;
  /** Host name that selects this deployment; undefined if the path selects it. */
  readonly host: string | undefined;
}

type Json = string | number | boolean | readonly Json[] | { readonly [key: string]: Json };
type JsonObject = { readonly [key: string]: Json };

/** Excluded codes: CONNECT and TRACE are not in the document, and a client does not see the other two. */
const EXCLUDED: readonly ErrorCode[] = [
  'connect-unsupported',
  'method-unsupported',
  'client-closed',
  'client-timeout',
];

/** Regular expressions (ECMA-262) for parameter kinds that have one. */
const PATTERNS: Readonly<Record<string, string>> = {
  'quoted-list': "^'[^']+'(,'[^']+')*$",
  digits: '^[0-9]+$',
};

/**
 * Describes the listed operations of all deployments in OpenAPI 3.1. If two deployments offer the same path
 * and method on different hosts, the document contains the first one only.
 */
export function describeApi({ version, listen, deployments }: Offer): JsonObject {
  const problems = problemsByStatus();
  const paths: Record<string, JsonObject> = {};
  for (const { rules, host } of deployments) {
    for (const operation of rules.catalogue.operations) {
      const { method } = operation;
      const path = (rules.stripPrefix ?? '') + operation.path;
      // Of the operation, not of the path: another deployment may offer another method there.
      const described = {
        ...describeOperation(rules, operation, problems),
        ...(host !== undefined && { servers: listen.map((each) => serverOf(each, host)) }),
      };
      paths[path] = { [method.toLowerCase()]: described, ...paths[path] };
    }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'digest-gateway',
      version,
      description: 'The operations for internal clients. The gateway adds Digest.',
    },
    servers: listen.map((each) => serverOf(each, each.address)),
    paths,
    components: {
      schemas: { Problem: problemSchema() },
      headers: { RequestId: { description: 'Names this request in logs.', schema: { type: 'string' } } },
      responses: Object.fromEntries(problems.map(({ name, response }) => [name, response])),
      securitySchemes: SECURITY_SCHEMES,
    },
    // The last entry is empty because a client may be identified by its address alone.
    security: [...Object.keys(SECURITY_SCHEMES).map((name) => ({ [name]: [] })), {}],
  };
}

const SECURITY_SCHEMES = {
  apiKey: { type: 'apiKey', in: 'header', name: 'X-Api-Key' },
  basic: { type: 'http', scheme: 'basic', description: 'The id of the client, and its API key as password.' },
  bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' },
  certificate: { type: 'mutualTLS' },
} as const;

function serverOf({ address, port, isSecure }: OfferedAddress, host: string): JsonObject {
  const scheme = isSecure ? 'https' : 'http';
  const path = socketPath(address);
  if (path !== undefined) {
    return {
      url: `${scheme}://${host === address ? 'localhost' : host}`,
      description: `Over the UNIX socket ${path}.`,
    };
  }
  return {
    url: `${scheme}://{host}:{port}`,
    variables: { host: { default: isIPv6(host) ? `[${host}]` : host }, port: { default: String(port) } },
  };
}

function describeOperation(
  { deployment, sites }: DeploymentRules,
  { name, path, parameters }: Operation,
  problems: readonly Problems[],
): JsonObject {
  const segments = Array.from(path.matchAll(/\{([^{}]+)\}/g), ([, segment = '']) => ({
    name: segment,
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }));
  const listed = parameters.some(({ kind }) => kind === 'site');
  const site = sites === undefined || listed ? [] : [siteParameter(sites)];
  return {
    operationId: `${deployment}.${name}`,
    tags: [deployment],
    parameters: [...segments, ...parameters.map((each) => describeParameter(each, sites)), ...site],
    responses: {
      ...Object.fromEntries(
        problems.map(({ status, name: response }) => [
          status,
          { $ref: `#/components/responses/${response}` },
        ]),
      ),
      default: {
        description: 'The response of the upstream, unchanged.',
        headers: { 'X-Request-Id': { $ref: '#/components/headers/RequestId' } },
        content: { '*/*': {} },
      },
    },
  };
}

function describeParameter(parameter: Parameter, sites: Sites | undefined): JsonObject {
  const { name, kind, optional } = parameter;
  if (kind === 'site' && sites !== undefined) return siteParameter(sites);
  const pattern = PATTERNS[kind];
  return {
    name,
    in: 'query',
    required: !optional,
    description: `${FORMS[kind]}.`,
    schema: { type: 'string', minLength: 1, ...(pattern !== undefined && { pattern }) },
  };
}

function siteParameter({ parameter, credentials, inject }: Sites): JsonObject {
  return {
    name: parameter,
    in: 'query',
    required: !inject,
    description: `${FORMS.site}.${inject ? ' It may be left out where only one is possible.' : ''}`,
    schema: { type: 'string', enum: [...credentials.keys()] },
  };
}

interface Problems {
  readonly status: string;
  /** Name in `components.responses`. */
  readonly name: string;
  readonly response: JsonObject;
}

function problemsByStatus(): Problems[] {
  const seen = errorKinds().filter(([code]) => !EXCLUDED.includes(code));
  const byStatus = Map.groupBy(seen, ([, { status }]) => String(status));
  return Array.from(byStatus, ([status, kinds]) => ({
    status,
    name: `Problem${status}`,
    response: {
      description: `${kinds.map(([code, { title }]) => `\`${code}\`: ${title}`).join('; ')}.`,
      headers: { 'X-Request-Id': { $ref: '#/components/headers/RequestId' } },
      content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
    },
  }));
}

function problemSchema(): JsonObject {
  const text = { type: 'string' };
  return {
    type: 'object',
    description: 'A refusal of the gateway itself (RFC 9457).',
    required: ['status', 'code', 'title', 'detail', 'requestId'],
    properties: {
      status: { type: 'integer' },
      code: { type: 'string', enum: errorKinds().map(([code]) => code) },
      title: text,
      detail: { ...text, description: 'What happened, and what to do.' },
      requestId: text,
    },
  };
}
