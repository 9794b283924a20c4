import { METHODS } from 'node:http';
import { z } from 'zod';
import { PARAMETER_KINDS } from '../policy/parameter.ts';
import { isAmbiguous } from '../policy/path.ts';
import type { Issue, Path } from './issues.ts';
import { keysAt, textAt, valueAt } from './tree.ts';
import { oneOf, record, SECTION, text } from './value-schemas.ts';

const FORMS = PARAMETER_KINDS.flatMap((kind) => [kind, `${kind}?`] as const);
const PATH =
  'a path as clients send it, such as /api/reports/{id}: a segment in braces stands for any one segment, and nothing in it can be read in two ways';

/** True if requests with this method can reach an upstream. */
export function isMethod(name: string): boolean {
  return name !== 'CONNECT' && METHODS.includes(name);
}

/** Schema of the listed operations of a deployment. */
export const operationsSchema = () =>
  record(
    z.strictObject(
      {
        method: text('an HTTP method in capitals, such as GET', isMethod).describe(
          'The method. GET covers HEAD, too.',
        ),
        path: text(PATH, isTemplate).describe('The path as the upstream has it.'),
        parameters: record(oneOf(FORMS))
          .prefault({})
          .describe(
            'The query parameters that are checked, by name; others pass. A parameter whose form ends with `?` may be left out.',
          ),
      },
      { error: SECTION },
    ),
  );

function isTemplate(path: string): boolean {
  const literal = path.replace(/\/\{[a-z][\w-]*\}(?=\/|$)/gi, '/x');
  return /^\/[\w\-.~%!$&'()*+,=:@/]*$/.test(literal) && !isAmbiguous(literal);
}

/** Checks operations, sites and related keys of a deployment against each other. */
export function* operationsFit(tree: unknown, deployment: string): Generator<Issue> {
  const path = ['deployments', deployment];
  if (valueAt(tree, [...path, 'injectSite']) === true && valueAt(tree, [...path, 'sites']) === undefined) {
    yield {
      path: [...path, 'injectSite'],
      message: 'has no site to add: describe sites, or leave it out',
    };
  }
  if (
    valueAt(tree, [...path, 'unlistedOperations']) === 'deny' &&
    keysAt(tree, [...path, 'operations']).length === 0
  ) {
    yield {
      path: [...path, 'unlistedOperations'],
      message: 'denies everything: list the allowed requests under operations, or write allow',
    };
  }
  yield* sameTwice(tree, path);
  for (const name of keysAt(tree, [...path, 'operations'])) {
    yield* parametersFit(tree, path, [...path, 'operations', name]);
  }
}

function* sameTwice(tree: unknown, deployment: Path): Generator<Issue> {
  const seen = new Map<string, string>();
  for (const name of keysAt(tree, [...deployment, 'operations'])) {
    const operation = [...deployment, 'operations', name];
    const asked = textAt(tree, [...operation, 'method']);
    const path = textAt(tree, [...operation, 'path'])?.replace(/\{[^{}/]*\}/g, '{}');
    if (asked === undefined || path === undefined) continue;
    const other = seen.get(`${asked} ${path}`);
    if (other === undefined) seen.set(`${asked} ${path}`, name);
    else {
      yield { path: [...operation, 'path'], message: `is that of ${other}, too: describe it once` };
    }
  }
}

function* parametersFit(tree: unknown, deployment: Path, operation: Path): Generator<Issue> {
  const siteParameter = textAt(tree, [...deployment, 'siteParameter']);
  const sites = valueAt(tree, [...deployment, 'sites']);
  for (const name of keysAt(tree, [...operation, 'parameters'])) {
    const parameter = [...operation, 'parameters', name];
    const form = textAt(tree, parameter) ?? '';
    if (!/^[\w\-.~]+$/.test(name)) {
      const message = 'is not a name that can be checked: letters, digits, "-", "_", "." and "~" only';
      yield { path: parameter, key: parameter, message };
    }
    if (form.startsWith('site') && (sites === undefined || name !== siteParameter)) {
      const message =
        sites === undefined
          ? 'is a site, and this deployment has none: describe sites, or write text'
          : `is not the parameter that names the site: siteParameter is ${siteParameter ?? 'missing'}`;
      yield { path: parameter, message };
    }
    if (!form.startsWith('site') && name === siteParameter && sites !== undefined) {
      yield { path: parameter, message: 'names the site: write site' };
    }
  }
}
