import { z } from 'zod';
import type { ParameterLimit, Rule } from '../policy/client.ts';
import type { Issue, Path } from './issues.ts';
import { isMethod } from './operations.ts';
import { hasKeyAt, keysAt, listKeysAt, textAt, valueAt } from './tree.ts';
import { record, SECTION, text, whole } from './value-schemas.ts';

const EVERYTHING = '*';

/** The rules of one client; one of them must hold for a request. */
export const allowSchema = () => z.array(rule(), { error: 'a list of rules' }).default([]);

const rule = () =>
  z
    .strictObject(
      {
        deployment: text('the name of a deployment').describe('The deployment that the rule is about.'),
        sites: names(text('the name of a site')).describe('The sites that the client may name.'),
        operations: names(text('the name of an operation')).describe(
          'The operations that the client may use. `["*"]` includes requests that no listed operation matches.',
        ),
        methods: names(
          text('an HTTP method in capitals, or "*"', (name) => name === EVERYTHING || isMethod(name)),
        ).describe('The methods that the client may use.'),
        parameters: record(limit())
          .prefault({})
          .describe('Limits of query parameters, by name, for every request under this rule.'),
      },
      { error: SECTION },
    )
    .transform(({ deployment, sites, operations, methods, parameters }): Rule => {
      const limits = Object.entries(parameters).map(
        ([name, { max, values }]): ParameterLimit => ({ name, max, values: values && new Set(values) }),
      );
      return {
        deployment,
        sites: chosen(sites),
        operations: chosen(operations),
        methods: chosen(methods),
        parameters: limits,
      };
    });

const limit = () =>
  z
    .strictObject(
      {
        max: whole(1, 10_000).exactOptional().describe('The most items of a quoted list.'),
        values: z
          .array(text('text in quotes'), { error: 'a list of values, each in quotes' })
          .nonempty({ error: 'a list of at least one value' })
          .exactOptional()
          .describe(
            'The values that the parameter, or each item of its list, may have. The parameter must then be present.',
          ),
      },
      { error: SECTION },
    )
    .refine(({ max, values }) => max !== undefined || values !== undefined, {
      error: 'has neither max nor values: give at least one, or leave the parameter out',
    });

const names = (name: z.ZodType<string>) =>
  z
    .array(name, { error: 'a list of names, or ["*"]' })
    .nonempty({ error: 'a list of at least one name, or ["*"]' })
    .refine((list) => list.length === 1 || !list.includes(EVERYTHING), {
      error: 'has "*" beside names: keep "*", which is everything, or the names',
    })
    .default([EVERYTHING]);

function chosen(list: readonly string[]): Rule['sites'] {
  return list.includes(EVERYTHING) ? EVERYTHING : new Set(list);
}

/** Checks that names in a client's rules exist. `path` is the path of its `allow`. */
export function* allowFits(tree: unknown, path: Path): Generator<Issue> {
  for (const index of keysOfList(tree, path)) {
    const at = [...path, index];
    const deployment = textAt(tree, [...at, 'deployment']);
    if (deployment === undefined) continue;
    const section = ['deployments', deployment];
    if (valueAt(tree, section) === undefined) {
      const known = listKeysAt(tree, ['deployments']);
      yield {
        path: [...at, 'deployment'],
        message: `names a deployment that does not exist: deployments has ${known}`,
      };
      continue;
    }
    for (const [key, what] of [
      ['sites', 'a site'],
      ['operations', 'an operation'],
    ] as const) {
      yield* namesExist(tree, [...at, key], { deployment, what, section: [...section, key] });
    }
    yield* parameterNames(tree, [...at, 'parameters']);
  }
}

interface Named {
  readonly deployment: string;
  /** A noun with its article, for messages. */
  readonly what: string;
  /** The mapping whose keys are the valid names. */
  readonly section: Path;
}

function* namesExist(tree: unknown, path: Path, { deployment, what, section }: Named): Generator<Issue> {
  for (const index of keysOfList(tree, path)) {
    const name = textAt(tree, [...path, index]);
    if (name === undefined || name === EVERYTHING || hasKeyAt(tree, section, name)) continue;
    const known = listKeysAt(tree, section);
    yield {
      path: [...path, index],
      message:
        known === ''
          ? `names ${what}, and the deployment ${deployment} describes none: write "*"`
          : `names ${what} that does not exist: the deployment ${deployment} has ${known}`,
    };
  }
}

function* parameterNames(tree: unknown, path: Path): Generator<Issue> {
  for (const name of keysAt(tree, path)) {
    if (/^[\w\-.~]+$/.test(name)) continue;
    const key = [...path, name];
    const message = 'is not a name that can be checked: letters, digits, "-", "_", "." and "~" only';
    yield { path: key, key, message };
  }
}

function keysOfList(tree: unknown, path: Path): number[] {
  const value = valueAt(tree, path);
  return Array.isArray(value) ? [...value.keys()] : [];
}
