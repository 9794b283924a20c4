import { z } from 'zod';
import type { ParameterLimit, Rule } from '../policy/client.ts';
import { isMethod } from './operations.ts';
import { PARAMETER_NAMES, record, SECTION, text, whole } from './value-schemas.ts';

const EVERYTHING = '*';

/** The rules of one client; one of them must hold for a request. */
export const allowSchema = () => z.array(rule(), { error: 'a list of rules' }).default([]);

const rule = () =>
  z.strictObject(
    {
      deployment: text('the name of a deployment').describe('The deployment that the rule is about.'),
      sites: names(text('the name of a site')).describe('The sites that the client may name.'),
      operations: names(text('the name of an operation')).describe(
        'The operations that the client may use. `["*"]` includes requests that no listed operation matches.',
      ),
      methods: names(
        text('an HTTP method in capitals, or "*"', (name) => name === EVERYTHING || isMethod(name)),
      ).describe('The methods that the client may use.'),
      parameters: parameters()
        .prefault({})
        .describe('Limits of query parameters, by name, for every request under this rule.'),
    },
    { error: SECTION },
  );

const parameters = () =>
  record(limit(), PARAMETER_NAMES).transform((limits) =>
    Object.entries(limits).map(
      ([name, { max, values }]): ParameterLimit => ({ name, max, values: values && new Set(values) }),
    ),
  );

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
    .transform((list): Rule['sites'] => (list.includes(EVERYTHING) ? EVERYTHING : new Set(list)))
    .prefault([EVERYTHING]);
