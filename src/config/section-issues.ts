import { isAbsolute, relative, sep } from 'node:path';
import { clientIssues } from './client-issues.ts';
import { type Accepted, type CrossIssue, crossChecked, keyList } from './cross-check.ts';
import type { Path } from './issues.ts';
import { exposedListeners, isExposedAddress, listenerIssues } from './listener-issues.ts';
import { type Config, sectionsSchema } from './schema.ts';

/** Schema of the configuration, with the checks of its sections against each other. */
export const configSchema = () => crossChecked(sectionsSchema(), sectionIssues);

/** Checks the sections of a configuration against each other. */
export function* sectionIssues(config: Accepted<Config>): Generator<CrossIssue> {
  const { deployments } = config;
  const exposed = exposedListeners(config);
  yield* exposureIssues(config, exposed);
  yield* controlIssues(config);
  yield* listenerIssues(config);
  yield* clientIssues(config, exposed.length > 0);
  for (const [index, sink = {}] of (config.audit?.sinks ?? []).entries()) {
    if (!('redis' in sink) || 'redis' in config) continue;
    yield {
      path: ['audit', 'sinks', index, 'redis'],
      message: 'needs a Redis: give redis at the top, or leave this sink out',
    };
  }
  yield* pseudonymIssues(config.audit);
  if (deployments === undefined) return;
  if (Object.keys(deployments).length === 0) {
    yield { path: ['deployments'], message: 'has no deployment: describe at least one upstream service' };
  }
  yield* credentialIssues(config);
  yield* matchIssues(deployments, 'pathPrefix');
  yield* matchIssues(deployments, 'host');
}

function* pseudonymIssues(audit: Accepted<Config>['audit']): Generator<CrossIssue> {
  const { directory, parameters, pseudonyms } = audit ?? {};
  const path = ['audit', 'pseudonyms'];
  const { keysDirectory, fields = [] } = pseudonyms ?? {};
  if (directory !== undefined && keysDirectory !== undefined && isWithin(keysDirectory, directory)) {
    yield {
      path: [...path, 'keysDirectory'],
      message: 'is in audit.directory, so copies of the log would have the keys: name a directory elsewhere',
    };
  }
  for (const [index, field = ''] of fields.entries()) {
    const name = field.startsWith('parameters.') ? field.slice('parameters.'.length) : undefined;
    if (name === undefined || parameters === undefined || parameters.includes(name)) continue;
    yield {
      path: [...path, 'fields', index],
      message: `is a parameter that is recorded by its name only: add ${name} to audit.parameters, or leave it out here`,
    };
  }
}

function isWithin(path: string, directory: string): boolean {
  const way = relative(directory, path);
  return way === '' || !(way === '..' || way.startsWith(`..${sep}`) || isAbsolute(way));
}

function* exposureIssues(
  { control, anonymous }: Accepted<Config>,
  [exposed]: readonly string[],
): Generator<CrossIssue> {
  if (anonymous === true && exposed !== undefined) {
    yield {
      path: ['anonymous'],
      message: `would let everyone who reaches ${exposed}.address use the credentials: set it to false and describe clients, or listen on 127.0.0.1`,
    };
  }
  if (control !== undefined && !asksWho(control) && isExposedAddress(control.address)) {
    yield {
      path: ['control', 'tokenSha256'],
      message:
        'is missing: a control address that is not loopback needs a token; give its SHA-256, or oidc, or listen on 127.0.0.1',
    };
  }
}

/** True if the control plane admits only holders of a token and people who sign in. */
function asksWho(control: object): boolean {
  return 'tokenSha256' in control || 'oidc' in control;
}

function* controlIssues({ control, ...sections }: Accepted<Config>): Generator<CrossIssue> {
  if (control === undefined) return;
  const { readTokenSha256, tokenSha256, actions, oidc, fourEyes } = control;
  if ('readTokenSha256' in control && !asksWho(control)) {
    yield {
      path: ['control', 'readTokenSha256'],
      message:
        'would be the only token, and anyone would read without it: give control.tokenSha256 or control.oidc, too',
    };
  }
  const roles = oidc?.roles;
  if (roles !== undefined && !('viewer' in roles || 'operator' in roles || 'auditor' in roles)) {
    yield {
      path: ['control', 'oidc', 'roles'],
      message: 'admits no one: give viewer, operator or auditor the values of the claim',
    };
  }
  if (fourEyes !== undefined && fourEyes !== false && (!('oidc' in control) || actions === false)) {
    yield {
      path: ['control', 'fourEyes'],
      message: 'needs people to tell apart, and actions: give control.oidc, and set control.actions to true',
    };
  }
  if (readTokenSha256 !== undefined && readTokenSha256 === tokenSha256) {
    yield {
      path: ['control', 'readTokenSha256'],
      message: 'is the hash of control.tokenSha256, which may act: give each its own token',
    };
  }
  if (actions !== true) return;
  if (!asksWho(control)) {
    yield {
      path: ['control', 'actions'],
      message: 'needs a token or a sign-in: give control.tokenSha256 or control.oidc',
    };
  }
  if (!('audit' in sections)) {
    yield {
      path: ['control', 'actions'],
      message: 'needs an audit log, which records each action: give audit',
    };
  }
}

/** Finds names of credentials that do not exist. */
function* credentialIssues({
  credentials,
  deployments = {},
  clients = [],
}: Accepted<Config>): Generator<CrossIssue> {
  if (credentials === undefined) return;
  for (const { path, name } of [...credentialUses(deployments), ...ruleCredentials(clients)]) {
    if (name === undefined || Object.hasOwn(credentials, name)) continue;
    const known = keyList(credentials, name);
    const remedy = known === '' ? 'describe it under credentials' : `credentials has ${known}`;
    yield { path, message: `names a credential that does not exist: ${remedy}` };
  }
}

type Deployments = NonNullable<Accepted<Config>['deployments']>;

function* credentialUses(deployments: Deployments): Generator<{ path: Path; name: string | undefined }> {
  for (const [key, deployment] of Object.entries(deployments)) {
    const path = ['deployments', key];
    yield { path: [...path, 'credential'], name: deployment?.credential };
    for (const [site, settings] of Object.entries(deployment?.sites ?? {})) {
      yield { path: [...path, 'sites', site, 'credential'], name: settings?.credential };
    }
    yield { path: [...path, 'egress', 'proxy', 'credential'], name: deployment?.egress?.proxy?.credential };
  }
}

function* ruleCredentials(
  clients: NonNullable<Accepted<Config>['clients']>,
): Generator<{ path: Path; name: string | undefined }> {
  for (const [index, client] of clients.entries()) {
    for (const [at, rule] of (client?.allow ?? []).entries()) {
      yield { path: ['clients', index, 'allow', at, 'credential'], name: rule?.credential };
    }
  }
}

/** Finds deployments that match the same requests. */
function* matchIssues(deployments: Deployments, key: 'pathPrefix' | 'host'): Generator<CrossIssue> {
  const owners = new Map<string, string>();
  for (const [name, deployment] of Object.entries(deployments)) {
    const text = deployment?.match?.[key];
    if (text === undefined) continue;
    const owner = owners.get(text);
    if (owner === undefined) owners.set(text, name);
    else {
      const message = `is that of deployments.${owner}, too: give each its own`;
      yield { path: ['deployments', name, 'match', key], message };
    }
  }
}
