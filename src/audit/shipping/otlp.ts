import { OtlpClient, type OtlpReceiver, SERVICE } from '../../receivers/otlp.ts';
import type { CommonOptions, Delivery } from './follower.ts';
import type { PlacedRecord, Shipment } from './record-source.ts';

export interface OtlpOptions extends CommonOptions, OtlpReceiver {
  readonly kind: 'otlp';
}

/** SEVERITY_NUMBER_INFO. */
const SEVERITY_INFO = 9;
const TRACE_ID = /^(?!0{32})[0-9a-f]{32}$/;

/** Fields of a record that become attributes. */
const FIELDS = [
  ['requestId', 'request_id'],
  ['client', 'client'],
  ['deployment', 'deployment'],
] as const;

/** Sends records as OTLP logs over HTTP, in the JSON encoding. A status of 200 confirms them. */
export class OtlpDelivery implements Delivery<Shipment> {
  readonly #client: OtlpClient;

  constructor(options: OtlpOptions) {
    this.#client = new OtlpClient(options);
  }

  async deliver({ records }: Shipment, signal: AbortSignal): Promise<number> {
    const rejected = await this.#client.send(JSON.stringify(exportRequest(records)), signal);
    return Math.min(rejected, records.length);
  }

  close(): Promise<void> {
    return this.#client.close();
  }
}

/** An ExportLogsServiceRequest in the JSON encoding of OTLP: 64-bit numbers as text, trace ids in hex. */
export function exportRequest(records: readonly PlacedRecord[]) {
  const resource = {
    attributes: attributes({ 'service.name': SERVICE, 'service.instance.id': records[0]?.replica }),
  };
  return {
    resourceLogs: [
      { resource, scopeLogs: [{ scope: { name: SERVICE }, logRecords: records.map(logRecord) }] },
    ],
  };
}

function logRecord({ replica, segment, seq, time, kind, line }: PlacedRecord) {
  const milliseconds = Date.parse(time);
  // Of a segment that another key sealed, only digests were checked.
  const nanoseconds = milliseconds >= 0 ? `${BigInt(milliseconds) * 1_000_000n}` : '0';
  const fields = fieldsOf(line);
  const place = {
    'audit.replica': replica,
    'audit.segment': segment,
    'audit.seq': seq,
    'audit.kind': kind,
  };
  const named = FIELDS.map(([field, name]) => [`digest_gateway.${name}`, fields[field]]);
  const { traceId } = fields;
  return {
    timeUnixNano: nanoseconds,
    observedTimeUnixNano: nanoseconds,
    severityNumber: SEVERITY_INFO,
    severityText: 'INFO',
    body: { stringValue: line },
    attributes: attributes({ ...place, ...Object.fromEntries(named) }),
    ...(typeof traceId === 'string' && TRACE_ID.test(traceId) && { traceId }),
  };
}

/** Only texts and whole numbers become attributes. */
function attributes(values: Readonly<Record<string, unknown>>) {
  return Object.entries(values)
    .filter(([, value]) => typeof value === 'string' || Number.isSafeInteger(value))
    .map(([key, value]) => ({
      key,
      value: typeof value === 'string' ? { stringValue: value } : { intValue: String(value) },
    }));
}

function fieldsOf(line: string): Readonly<Record<string, unknown>> {
  try {
    return JSON.parse(line);
  } catch {
    return {};
  }
}
