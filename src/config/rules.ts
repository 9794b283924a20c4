import { isLoopbackHost, parseAddress } from '../base/network.ts';
import { auditFits } from './audit.ts';
import { clientsFit } from './client-rules.ts';
import { egressFits } from './egress.ts';
import type { Issue, Path } from './issues.ts';
import { operationsFit } from './operations.ts';
import { redisFits } from './redis.ts';
import { hasKeyAt, keysAt, listKeysAt, textAt, valueAt } from './tree.ts';
import { upstreamTlsFits } from './upstream-tls.ts';
import { NAME } from './value-schemas.ts';

const SITE_NAME = /^[\p{L}\p{N}][^\p{Cc}]{0,127}$/u;

/**
 * Checks rules between parts of the configuration. They read the tree before validation, so that their
 * issues are reported together with those of the schema.
 */
export function brokenRules(tree: unknown): Issue[] {
  return [
    ...exposure(tree),
    ...clientsFit(tree, isExposed(dataAddressOf(tree))),
    ...redisFits(tree),
    ...auditFits(tree),
    ...names(tree),
    ...keysAt(tree, ['deployments']).flatMap((name) => [
      ...schemeFits(tree, name),
      ...credentialFits(tree, name),
      ...rewriteFits(tree, name),
      ...operationsFit(tree, name),
      ...upstreamTlsFits(tree, name),
      ...egressFits(tree, name, (use, credential) => credentialExists(tree, use, credential)),
    ]),
    ...matchedTwice(tree, 'pathPrefix', (prefix) => prefix),
    ...matchedTwice(tree, 'host', (host) => host.toLowerCase()),
  ];
}

function* rewriteFits(tree: unknown, name: string): Generator<Issue> {
  const path = ['deployments', name, 'rewrite', 'stripPrefix'];
  const prefix = textAt(tree, path);
  const matched = textAt(tree, ['deployments', name, 'match', 'pathPrefix']);
  if (prefix === undefined || (matched !== undefined && withSlash(matched).startsWith(withSlash(prefix))))
    return;
  yield {
    path,
    message:
      'is not how match.pathPrefix begins, so no request has it: take the first segments of that prefix',
  };
}

function withSlash(path: string): string {
  return path.endsWith('/') ? path : `${path}/`;
}

function* exposure(tree: unknown): Generator<Issue> {
  const dataAddress = dataAddressOf(tree);
  const controlAddress = textAt(tree, ['control', 'address']) ?? '127.0.0.1';
  if (valueAt(tree, ['anonymous']) === true && isExposed(dataAddress)) {
    yield {
      path: ['anonymous'],
      message:
        'would let everyone who reaches listen.address use the credentials: set it to false and describe clients, or listen on 127.0.0.1',
    };
  }
  if (valueAt(tree, ['control', 'tokenSha256']) === undefined && isExposed(controlAddress)) {
    yield {
      path: ['control', 'tokenSha256'],
      message:
        'is missing: a control address that is not loopback needs a token; give its SHA-256, or listen on 127.0.0.1',
    };
  }
  const dataPort = valueAt(tree, ['listen', 'port']) ?? 8080;
  if (
    dataAddress === controlAddress &&
    dataPort !== 0 &&
    dataPort === (valueAt(tree, ['control', 'port']) ?? 8081)
  ) {
    yield { path: ['control', 'port'], message: 'is the port of listen, too: give each its own' };
  }
}

function dataAddressOf(tree: unknown): string {
  return textAt(tree, ['listen', 'address']) ?? '127.0.0.1';
}

/** True if other machines can reach the address. A text that is not an address is an issue of its own. */
function isExposed(text: string): boolean {
  return parseAddress(text) !== undefined && !isLoopbackHost(text);
}

function* names(tree: unknown): Generator<Issue> {
  const operations = keysAt(tree, ['deployments']).map((name) => ['deployments', name, 'operations']);
  for (const section of [['credentials'], ['deployments'], ...operations]) {
    yield* badNames(
      tree,
      section,
      NAME,
      'letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first',
    );
  }
  for (const deployment of keysAt(tree, ['deployments'])) {
    const sites = ['deployments', deployment, 'sites'];
    yield* badNames(tree, sites, SITE_NAME, 'no control characters, 128 at most, a letter or digit first');
  }
  const deployments = valueAt(tree, ['deployments']);
  if (typeof deployments === 'object' && deployments !== null && Object.keys(deployments).length === 0) {
    yield { path: ['deployments'], message: 'has no deployment: describe at least one upstream service' };
  }
}

function* badNames(tree: unknown, section: Path, allowed: RegExp, rule: string): Generator<Issue> {
  for (const name of keysAt(tree, section)) {
    if (!allowed.test(name)) {
      const key = [...section, name];
      yield { path: key, key, message: `is not a name that can be used here: ${rule}` };
    }
  }
}

function* schemeFits(tree: unknown, deployment: string): Generator<Issue> {
  const path = ['deployments', deployment];
  const plaintext = textAt(tree, [...path, 'baseUrl'])?.startsWith('http://') === true;
  if (plaintext && valueAt(tree, [...path, 'tls', 'allowPlaintext']) !== true) {
    yield {
      path: [...path, 'baseUrl'],
      message: 'is not encrypted: write https://, or set tls.allowPlaintext to true for a test',
    };
  }
}

function* credentialFits(tree: unknown, deployment: string): Generator<Issue> {
  const path = ['deployments', deployment];
  const own = valueAt(tree, [...path, 'credential']);
  const sites = valueAt(tree, [...path, 'sites']);
  const siteNames = keysAt(tree, [...path, 'sites']);
  if (own === undefined && sites === undefined) {
    yield {
      path: [...path, 'credential'],
      message: 'is missing: give credential, or sites that each name one',
    };
  }
  if (own !== undefined && sites !== undefined) {
    yield { path: [...path, 'sites'], message: 'cannot be combined with credential: keep one of the two' };
  }
  if (sites !== undefined && valueAt(tree, [...path, 'siteParameter']) === undefined) {
    yield {
      path: [...path, 'siteParameter'],
      message: 'is missing: name the query parameter that holds the site, such as site_name',
    };
  }
  if (sites !== undefined && sites !== null && typeof sites === 'object' && siteNames.length === 0) {
    yield { path: [...path, 'sites'], message: 'has no site: name at least one, or give credential instead' };
  }

  const uses = [[...path, 'credential'], ...siteNames.map((site) => [...path, 'sites', site, 'credential'])];
  for (const use of uses) {
    const name = textAt(tree, use);
    if (name !== undefined) yield* credentialExists(tree, use, name);
  }
}

function* credentialExists(tree: unknown, use: Path, name: string): Generator<Issue> {
  if (hasKeyAt(tree, ['credentials'], name)) return;
  const known = listKeysAt(tree, ['credentials']);
  const right = known === '' ? 'describe it under credentials' : `credentials has ${known}`;
  yield { path: use, message: `names a credential that does not exist: ${right}` };
}

function* matchedTwice(tree: unknown, rule: string, normal: (text: string) => string): Generator<Issue> {
  const owners = new Map<string, string>();
  for (const name of keysAt(tree, ['deployments'])) {
    const path = ['deployments', name, 'match', rule];
    const text = textAt(tree, path);
    if (text === undefined) continue;
    const owner = owners.get(normal(text));
    if (owner === undefined) {
      owners.set(normal(text), name);
    } else {
      yield { path, message: `is that of deployments.${owner}, too: give each its own` };
    }
  }
}
