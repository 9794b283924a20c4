import { z } from 'zod';
import { parseJson } from '../../base/json.ts';
import type { Secret } from '../../base/secret.ts';
import type { CommonOptions, Delivery } from './follower.ts';
import { HttpReceiver, type ReceiverTls } from './receiver.ts';
import type { PlacedRecord, Shipment } from './record-source.ts';

/** The name of the service and of the instrumentation scope. */
const SERVICE = 'digest-gateway';

/** SEVERITY_NUMBER_INFO. */
const SEVERITY_INFO = 9;
const TRACE_ID = /^(?!0{32})[0-9a-f]{32}$/;

/** Fields of a record that become attributes. */
const FIELDS = [
  ['requestId', 'request_id'],
  ['client', 'client'],
  ['deployment', 'deployment'],
] as const;

/** A receiver of OTLP over HTTP. */
export interface OtlpReceiver {
  /** The whole URL, with its path. */
  readonly endpoint: string;
  /** Fields of each request. */
  readonly headers: ReadonlyMap<string, Secret>;
  readonly tls: ReceiverTls | undefined;
}

export interface OtlpOptions extends CommonOptions, OtlpReceiver {
  readonly kind: 'otlp';
}

/** Sends records as OTLP logs over HTTP, in the JSON encoding. A status of 200 confirms them. */
export class OtlpDelivery implements Delivery<Shipment> {
  readonly #headers: OtlpReceiver['headers'];
  readonly #receiver: HttpReceiver;

  constructor({ endpoint, headers, tls }: OtlpReceiver) {
    this.#headers = headers;
    this.#receiver = new HttpReceiver(endpoint, tls);
  }

  async deliver({ records }: Shipment, signal: AbortSignal): Promise<number> {
    const secrets = Array.from(this.#headers, ([name, secret]) => [name, secret.reveal()] as const);
    const headers = { ...Object.fromEntries(secrets), 'content-type': 'application/json' };
    const response = await this.#receiver.post(headers, JSON.stringify(exportRequest(records)), signal);
    const { statusCode } = response;
    if (statusCode < 200 || statusCode >= 300) throw this.#receiver.unexpected(response);
    const rejected = rejectedIn(response.body.toString());
    if (rejected === undefined) {
      throw this.#receiver.error(`status ${statusCode} without a response of OTLP`);
    }
    return Math.min(rejected, records.length);
  }

  close(): Promise<void> {
    return this.#receiver.close();
  }
}

/** An ExportLogsServiceResponse, in whose JSON a 64-bit number may be a text. */
const exportResponse = z.object({
  partialSuccess: z.object({ rejectedLogRecords: z.coerce.number().int().min(0).nullish() }).nullish(),
});

/** The number of log records that the receiver refused for good; undefined: this is not a response of OTLP. */
function rejectedIn(text: string): number | undefined {
  if (text === '') return 0;
  const { data } = exportResponse.safeParse(parseJson(text));
  return data && (data.partialSuccess?.rejectedLogRecords ?? 0);
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
  const fields = Object(parseJson(line)) as Readonly<Record<string, unknown>>;
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
