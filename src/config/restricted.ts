import { z } from 'zod';
import { isOverride } from '../policy/fields.ts';
import { SECTION, text } from './value-schemas.ts';

const NAME = /^[A-Za-z\d-]{1,64}$/;

/** Schema of what restricted clients may send to a deployment beyond the usual. */
export const restrictedSchema = () =>
  z.strictObject(
    {
      fields: listOf(
        text(
          'the name of a header field: letters, digits and "-" only, and none that names another method, path or host',
          (name) => NAME.test(name) && !isOverride(name),
        ),
      ).describe(
        'Header fields of requests, such as `SOAPAction`. Of a client with any restriction only these and the [usual ones](policy.md#fields) reach the upstream.',
      ),
      bodyTypes: listOf(
        text('a content type without parameters, such as text/plain', /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+$/),
      ).describe(
        'Content types of bodies that the upstream does not read as forms. Where a rule of the client depends on the query, bodies of only these and the [known ones](policy.md#fields) are let through.',
      ),
      parameterNames: listOf(
        text(
          'the name of a parameter, in which brackets come in pairs, such as page[size]',
          /^[\w\-.~]+(?:\[[\w\-.~]*\])*$/,
        ),
      ).describe(
        'Query parameters that have brackets or dots in their names. Where a rule depends on the query, other such names are refused.',
      ),
    },
    { error: SECTION },
  );

const listOf = (item: z.ZodType<string>) => z.array(item, { error: 'a list of names' }).default([]);
