import { isNativeError } from 'node:util/types';
import type { Log } from '../base/log.ts';

/** Any of these variables enables tracing, as in the SDK's documentation. */
const ASKING = ['OTEL_EXPORTER_OTLP_ENDPOINT', 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_TRACES_EXPORTER'];
const SDK = '@opentelemetry/sdk-node';

interface Sdk {
  start(): void;
  shutdown(): Promise<void>;
}

/**
 * Starts the OpenTelemetry SDK if the environment enables traces and the SDK is installed beside the
 * gateway. The SDK reads its settings from the environment. Resolves to a function that sends the last
 * traces and stops it. Never rejects.
 */
export async function startTracing(
  environment: NodeJS.ProcessEnv,
  log: Log,
  load: () => Promise<unknown> = () => import(SDK),
): Promise<() => Promise<void>> {
  const idle = (): Promise<void> => Promise.resolve();
  const asked = ASKING.filter((name) => (environment[name] ?? '') !== '');
  const off = environment['OTEL_SDK_DISABLED'] === 'true' || environment['OTEL_TRACES_EXPORTER'] === 'none';
  if (off || asked.length === 0) return idle;
  try {
    const { NodeSDK } = (await load()) as { NodeSDK: new (options: { serviceName: string }) => Sdk };
    const sdk = new NodeSDK({ serviceName: environment['OTEL_SERVICE_NAME'] ?? 'digest-gateway' });
    sdk.start();
    return () => sdk.shutdown();
  } catch (error) {
    const reason = isNativeError(error) ? error.message : String(error);
    log.warn(
      { asked, reason },
      `no traces: install ${SDK} beside digest-gateway, or unset the variables that ask for traces`,
    );
    return idle;
  }
}
