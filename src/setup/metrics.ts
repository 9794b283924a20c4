import type { Issue } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import type { SourceReader } from '../credentials/sources.ts';
import type { OtlpReceiver } from '../receivers/otlp.ts';
import { replicaName } from './audit.ts';
import { ReceiverReading } from './receivers.ts';

/** A receiver of metrics. Times are in milliseconds. */
export interface MetricsExportOptions extends OtlpReceiver {
  readonly interval: number;
  /** How long the receiver may take to confirm one export. */
  readonly timeout: number;
  /** The `service.instance.id`. */
  readonly instance: string;
}

export interface MetricsExportSetup {
  /** Undefined: metrics are not sent. */
  readonly options: MetricsExportOptions | undefined;
  readonly issues: readonly Issue[];
}

/** Reads the certificates, keys and secrets of the receiver of metrics. */
export async function readMetricsExport(
  { metrics: { otlp }, audit }: Pick<Config, 'metrics' | 'audit'>,
  reader: SourceReader,
  uid: number | undefined,
): Promise<MetricsExportSetup> {
  if (otlp === undefined) return { options: undefined, issues: [] };
  const { interval, timeout, instance = audit?.replica ?? replicaName() } = otlp;
  const reading = new ReceiverReading(reader, uid);
  const receiver = await reading.otlp(otlp, ['metrics', 'otlp']);
  return { options: { ...receiver, interval, timeout, instance }, issues: reading.issues };
}
