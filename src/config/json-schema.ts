import { z } from 'zod';
import { configSchema } from './section-issues.ts';

/** The values that `parseDuration` and `parseSize` accept as text. */
const DURATION = '^\\d{1,16}(?:ms|s|m|h|d)$';
const SIZE = '^\\d{1,16}(?:B|KiB|MiB|GiB|TiB)?$';

/**
 * Returns the JSON Schema (draft-07, which editors of YAML support) of a configuration as it is written.
 * It accepts every valid configuration. It also accepts some that `check` refuses, because it has no
 * checks of values against each other.
 */
export function configJsonSchema(): object {
  return {
    ...z.toJSONSchema(configSchema('/'), {
      io: 'input',
      target: 'draft-7',
      // The type of a value before its transform is exact; checks in code have no JSON Schema.
      unrepresentable: 'any',
      override: ({ jsonSchema }) => {
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
    title: 'Configuration of digest-gateway',
  };
}
