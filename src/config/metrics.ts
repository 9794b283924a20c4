import { z } from 'zod';
import { otlpReceiver } from './receivers.ts';
import { duration, SECTION, text } from './value-schemas.ts';

/** Schema of the section of metrics. `folder` is the base of relative file names. */
export const metricsSchema = (folder: string) =>
  z.strictObject(
    {
      otlp: z
        .strictObject(
          {
            ...otlpReceiver(folder, 'metrics'),
            interval: duration().default(60_000).describe('How often the metrics are sent.'),
            timeout: duration()
              .default(10_000)
              .describe(
                'How long the receiver may take to confirm them; at the end of the process 5s at most.',
              ),
            instance: text('letters, digits, "-", "_", "." and ":" only, 255 at most', /^[\w.:-]{1,255}$/)
              .exactOptional()
              .describe(
                'Names this gateway (`service.instance.id`). Each gateway needs its own. Without it, `audit.replica` or the host name.',
              ),
          },
          { error: SECTION },
        )
        .exactOptional()
        .describe('A receiver of OpenTelemetry metrics: OTLP over HTTP, in JSON.'),
    },
    { error: SECTION },
  );
