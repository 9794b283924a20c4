import { GatewayError } from '../../src/base/errors.ts';
import { decide, type Grant, type Request } from '../../src/policy/decide.ts';
import type { Client, Rule } from '../../src/policy/rules.ts';
import {
  AUTHORS,
  type ClientName,
  clientOf,
  type DeploymentName,
  REPORTS,
  rulesOf,
} from '../../test/policy/world.ts';
import { must, mustEqual, resultOf } from './violation.ts';

/*
 * An input is a letter for the client, one for the deployment, then `METHOD TARGET`, and header lines. The target has no
 * blank, control character or #, since none gets there from a connection (`gateway/routing.ts`).
 */

const CLIENTS: readonly ClientName[] = [
  'anonymous',
  'reporting',
  'limited',
  'valued',
  'mixed',
  'editor',
  'nobody',
];
const DEPLOYMENTS: readonly DeploymentName[] = ['open', 'strict', 'inject', 'bare', 'v1', 'v2'];
const CODES: ReadonlySet<string> = new Set([
  'client-forbidden',
  'operation-unlisted',
  'site-required',
  'site-unknown',
  'parameter-invalid',
  'bad-request',
]);
/** A text as long does not stand in a message by chance. */
const LONG_VALUE = 16;
const SITE = 'site_name';
/** Of those that share an upstream. */
const PREFIXES: Readonly<Record<string, string>> = { v1: '/v1', v2: '/v1/v2' };
const ORIGIN = 'https://upstream.example';

export function check(input: Buffer): void {
  const [first = '', ...lines] = input.toString('latin1').split('\n');
  const name = CLIENTS[first.charCodeAt(0) % CLIENTS.length] ?? 'anonymous';
  const deployment = DEPLOYMENTS[first.charCodeAt(1) % DEPLOYMENTS.length] ?? 'open';
  const [method = '', rest = ''] = first.slice(2).split(' ', 2);
  const target = `/${rest.replace(/[\0-\x20\x7f#]/g, '').replace(/^\//, '')}`;
  const headers = lines.flatMap((line) => {
    const colon = line.indexOf(':');
    return colon < 1 ? [] : [line.slice(0, colon), line.slice(colon + 1)];
  });
  const request = { method, target, headers, hasBody: method === 'POST' };
  const client = clientOf(name);
  const outcome = outcomeOf(deployment, client, request);
  mustEqual(
    summaryOf(outcomeOf(deployment, client, { ...request })),
    summaryOf(outcome),
    'two decisions are equal',
  );
  if (outcome instanceof GatewayError) {
    checkRefusal(outcome, request);
  } else {
    checkGrant(deployment, client, request, outcome);
  }
}

/** Rules are compiled anew, so nothing is left of an earlier decision. */
function outcomeOf(deployment: DeploymentName, client: Client, request: Request): Grant | GatewayError {
  return resultOf(() => decide(rulesOf(deployment), client, request, 0), GatewayError);
}

function summaryOf(outcome: Grant | GatewayError): unknown {
  return outcome instanceof GatewayError ? [outcome.code, outcome.message] : outcome;
}

function checkRefusal({ code, message }: GatewayError, { method, target }: Request): void {
  must(CODES.has(code), 'a refusal has a code of the policy');
  // Words, of which messages are made, and the method, which they quote, prove nothing.
  const values = target
    .split(/[?&=;]/)
    .slice(1)
    .filter((value) => value.length >= LONG_VALUE);
  const telling = values.filter((value) => !/^[a-z-]+$/i.test(value) && !method.includes(value));
  must(!telling.some((value) => message.includes(value)), 'a refusal does not quote a value');
}

function checkGrant(deployment: DeploymentName, client: Client, request: Request, grant: Grant): void {
  const { rule, site, operation, target } = grant;
  must(client.allow.includes(rule) || client.id === 'anonymous', 'the rule is one of the client');
  must(rule.deployment === deployment || rule.deployment === '*', 'the rule is for the deployment');
  must(allows(rule.sites, site) || site === '', 'the rule allows the site');
  must(allows(rule.operations, operation), 'the rule allows the operation');
  must(allows(rule.methods, request.method), 'the rule allows the method');
  const [path = ''] = request.target.split('?', 1);
  const injected = target.replace(/\?site_name=[\w%.~-]+(?:&|$)/, '?');
  const isInjected = deployment === 'inject' && [injected, injected.slice(0, -1)].includes(request.target);
  must(target === request.target || (target.startsWith(path) && isInjected), 'nothing but the site is added');
  must(
    grant.headers.every((name) => request.headers.includes(name)),
    'the fields are those of the request',
  );
  checkPath(deployment, request.method, target, operation);
  checkQuery(target, grant);
}

function allows(names: Rule['sites'], name: string): boolean {
  return names === '*' || names.has(name);
}

/** A server that follows the WHATWG, and decodes a path once, finds the operation that was judged. */
function checkPath(deployment: DeploymentName, method: string, target: string, operation: string): void {
  const path = target.split('?', 1)[0] ?? '';
  const { pathname } = new URL(`${ORIGIN}${latin1Escaped(target)}`);
  const plain = bytesOf(pathname);
  // The router gives a deployment no other paths.
  if (`${path}/`.startsWith(`${PREFIXES[deployment] ?? '\0'}/`)) {
    const inSecond = /^\/v1\/v2(?:\/|$)/.test(plain);
    must(plain.startsWith('/v1') && inSecond === (deployment === 'v2'), 'a path stays in its deployment');
  }
  if (deployment === 'bare' || deployment === 'v1' || deployment === 'v2') return;
  const read = operationAt(method === 'HEAD' ? 'GET' : method, plain);
  mustEqual(read, operation, 'a path is read as that of the operation that was judged');
  if (operation !== '') mustEqual(plain, bytesOf(path), 'a path of an operation has one reading');
}

function operationAt(method: string, path: string): string {
  if (method === 'GET' && path === AUTHORS) return 'authors';
  if (method === 'POST' && path === '/api/v2/import') return 'import';
  return method === 'GET' && path.startsWith(`${REPORTS}/`) && /^[^/]+$/.test(path.slice(REPORTS.length + 1))
    ? 'report'
    : '';
}

/** Each reading of the query has the site that was judged, and keeps the limits. */
function checkQuery(target: string, { site, rule }: Grant): void {
  const mark = target.indexOf('?');
  const text = mark === -1 ? '' : target.slice(mark + 1);
  for (const reading of readingsOf(text)) {
    const valuesOf = (wanted: string): string[] =>
      reading.filter(({ name }) => name === wanted).map(({ value }) => value);
    if (site !== '')
      mustEqual(valuesOf(SITE), [site], 'every reading of the query has the site that was judged');
    for (const { name, max } of rule.parameters) {
      const values = valuesOf(name);
      must(values.length <= 1, 'a limited parameter comes once in every reading');
      const items = values[0]?.split(',').length ?? 0;
      must(max === undefined || items <= max, 'no reading has more items than allowed');
    }
  }
}

interface Pair {
  readonly name: string;
  readonly value: string;
}

/** Separated at & alone, or at ; too; the whole query decoded before, or not. */
function readingsOf(text: string): Pair[][] {
  return [/&/, /[&;]/].flatMap((separator) =>
    [latin1Escaped(text), decodedOnce(latin1Escaped(text))].map((query) =>
      query.split(separator).flatMap((pair) =>
        Array.from(new URLSearchParams(`&${pair.replaceAll('&', '%26')}`), ([name, value]) => ({
          name: name.toLowerCase().replace(/\[.*/s, ''),
          value,
        })),
      ),
    ),
  );
}

/** Percent-decoded to bytes, as Latin-1 text. */
function bytesOf(path: string): string {
  return path.replace(/%([\da-f]{2})/gi, (_encoded, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
}

/** The text itself if it is not percent-encoded UTF-8. */
function decodedOnce(text: string): string {
  const decoded = resultOf(() => decodeURIComponent(text), URIError);
  return typeof decoded === 'string' ? decoded : text;
}

/** Bytes above ASCII as a client of the WHATWG's would send them. */
function latin1Escaped(text: string): string {
  return text.replace(/[\x80-\xff]/g, (byte) => `%${byte.charCodeAt(0).toString(16)}`);
}
