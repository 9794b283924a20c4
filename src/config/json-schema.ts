import { z } from 'zod';
import { sectionsSchema } from './schema.ts';

/** The values that `parseDuration` and `parseSize` accept as text. */
const DURATION = '^\\d{1,16}(?:ms|s|m|h|d)$';
const SIZE = '^\\d{1,16}(?:B|KiB|MiB|GiB|TiB)?$';

/**
 * Returns the JSON Schema (draft-07, which editors of YAML support) of a configuration as it is written.
 * It accepts every valid configuration. It also accepts some that `check` refuses, because it has no
 * checks of values against each other.
 */
export function configJsonSchema(): object {
  const schema = jsonSchemaOf(sectionsSchema(), 'Configuration of digest-gateway');
  delete schema['required'];
  // Included files may have all the deployments.
  const anyOf = ['deployments', 'include'].map((key) => ({ required: [key], properties: { [key]: {} } }));
  return { ...schema, anyOf };
}

/** Returns the JSON Schema of an included file. */
export function partJsonSchema(): object {
  const { clients, credentials, deployments } = sectionsSchema().shape;
  const schema = z.strictObject({ clients, credentials, deployments: deployments.exactOptional() });
  return jsonSchemaOf(schema, 'File that a configuration of digest-gateway includes');
}

function jsonSchemaOf(schema: z.ZodType, title: string): Record<string, unknown> {
  return {
    ...z.toJSONSchema(schema, {
      io: 'input',
      target: 'draft-7',
      // The type of a value before its transform is exact; checks in code have no JSON Schema.
      unrepresentable: 'any',
      override: ({ jsonSchema }) => {
        if (jsonSchema['orOne'] === true) {
          delete jsonSchema['orOne'];
          const list = { ...jsonSchema };
          for (const key of Object.keys(jsonSchema)) delete jsonSchema[key];
          jsonSchema.anyOf = [list.items as typeof jsonSchema, list];
        }
        const { ['unit']: unit } = jsonSchema;
        if (unit !== 'duration' && unit !== 'size') return;
        delete jsonSchema['unit'];
        delete jsonSchema.anyOf;
        // A number has no unit, which only a size can be without.
        const written =
          unit === 'duration'
            ? { type: 'string', pattern: DURATION }
            : { type: ['string', 'integer'], pattern: SIZE };
        Object.assign(jsonSchema, written);
      },
    }),
    title,
  };
}
