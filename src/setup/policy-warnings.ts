import type { Issue, Path } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import { endOf, hasEnded, includes, type Names, type ParameterLimit, type Rule } from '../policy/rules.ts';

type Operations = Config['deployments'][string]['operations'];
type NamedOperation = [name: string, Operations[string]];

/**
 * Returns rules and operations that hold for no request, or for none that they are written for, at a time in Unix
 * milliseconds.
 */
export function policyWarnings({ clients, deployments }: Config, now: number): Issue[] {
  const operations = new Map(
    Object.entries(deployments).map(([name, deployment]) => [name, Object.entries(deployment.operations)]),
  );
  const issues = Object.entries(deployments).flatMap(unreachedOperations);
  for (const [index, { allow }] of clients.entries()) {
    for (const [at, rule] of allow.entries()) {
      // It has a warning of its own.
      if (hasEnded(rule, now)) continue;
      const path = ['clients', index, 'allow', at];
      issues.push(
        ...coveredRule(path, allow, rule),
        ...unfitRule(path, rule, operations.get(rule.deployment)),
      );
    }
  }
  return issues;
}

/** The first rule that allows a request decides, so the credential of one behind a wider one is never used. */
function* coveredRule(path: Path, allow: readonly Rule[], rule: Rule): Generator<Issue> {
  // It covers itself, if no rule before it does.
  const earlier = allow.findIndex((each) => covers(each, rule));
  if (allow[earlier] === rule) return;
  const message = `is never used: allow[${earlier}] before it allows all of its requests; put this one first, or remove it`;
  yield { path, message };
}

/** True if the first rule allows every request that the second one allows. */
function covers(wide: Rule, narrow: Rule): boolean {
  return (
    wide.deployment === narrow.deployment &&
    endOf(wide) >= endOf(narrow) &&
    containsNames(wide.sites, narrow.sites) &&
    containsNames(wide.operations, narrow.operations) &&
    containsNames(wide.methods, narrow.methods) &&
    wide.parameters.every((limit) => narrow.parameters.some((own) => isAsTight(own, limit)))
  );
}

function containsNames(wide: Names, narrow: Names): boolean {
  return wide === '*' || (narrow !== '*' && isSubset(narrow, wide));
}

function isAsTight(own: ParameterLimit, { name, max, values }: ParameterLimit): boolean {
  if (own.name !== name) return false;
  if (max !== undefined && (own.max === undefined || own.max > max)) return false;
  return values === undefined || (own.values !== undefined && isSubset(own.values, values));
}

/** Rules of a client are compared with each other, and there can be thousands of them. */
function isSubset(some: ReadonlySet<string>, all: ReadonlySet<string>): boolean {
  if (some.size > all.size) return false;
  for (const each of some) if (!all.has(each)) return false;
  return true;
}

function* unfitRule(path: Path, rule: Rule, all: readonly NamedOperation[] = []): Generator<Issue> {
  const { operations, methods, parameters } = rule;
  const isAllowed = ([name, { method }]: NamedOperation) =>
    includes(operations, name) &&
    // GET covers HEAD.
    (includes(methods, method) || (method === 'GET' && includes(methods, 'HEAD')));
  if (operations !== '*' && !all.some(isAllowed)) {
    yield { path, message: 'allows nothing: none of its operations has one of its methods' };
  }
  for (const { name, max } of parameters) {
    if (max === undefined) continue;
    const takesDigits = ([, operation]: NamedOperation) =>
      operation.parameters[name]?.startsWith('digits') === true;
    const [other] = all.find((each) => takesDigits(each) && isAllowed(each)) ?? [];
    if (other === undefined) continue;
    const message = `is for a quoted list, and the operation ${other} takes digits: this rule allows none of its requests with ${name}; leave max out, or list the operations of this rule`;
    yield { path: [...path, 'parameters', name, 'max'], message };
  }
}

/** The paths of a deployment begin with its prefix, less what is stripped, unless a host leads to it. */
function unreachedOperations([name, deployment]: [string, Config['deployments'][string]]): Issue[] {
  const { match, rewrite: { stripPrefix } = { stripPrefix: '' }, operations } = deployment;
  if (match.pathPrefix === undefined || match.host !== undefined) return [];
  const prefix = match.pathPrefix.slice(stripPrefix.length);
  const less = stripPrefix === '' ? '' : ' without rewrite.stripPrefix';
  return Object.entries(operations).flatMap(([operation, { path }]) => {
    if (isBelow(path, prefix)) return [];
    const message = `is outside of ${prefix}, with which the paths of match.pathPrefix${less} begin: at most requests in absolute form, such as GET http://…, can be this operation; correct the path`;
    return [{ path: ['deployments', name, 'operations', operation, 'path'], message }];
  });
}

/** True if a path can begin with the prefix; a segment in braces stands for any one. */
function isBelow(template: string, prefix: string): boolean {
  const segments = template.split('/');
  return prefix
    .replace(/\/$/, '')
    .split('/')
    .every((segment, at) => segments[at] === segment || segments[at]?.startsWith('{') === true);
}
