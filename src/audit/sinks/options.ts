import type { Secret } from '../../base/secret.ts';
import type { OtlpReceiver } from '../../receivers/otlp.ts';
import type { ReceiverTls } from '../../receivers/tls.ts';

interface CommonOptions {
  readonly name: string;
  /** How long one delivery may take, in milliseconds. */
  readonly timeout: number;
}

export interface SyslogOptions extends CommonOptions {
  readonly kind: 'syslog';
  readonly host: string;
  readonly port: number;
  /** Undefined: plain TCP. */
  readonly tls: ReceiverTls | undefined;
  /** 0 to 23. */
  readonly facility: number;
  /** IANA's private enterprise number in the name of the structured data. */
  readonly enterprise: number;
}

export interface S3Options extends CommonOptions {
  readonly kind: 's3';
  readonly bucket: string;
  readonly region: string;
  /** Origin of the receiver. */
  readonly endpoint: string;
  /** True: the bucket stands in the path, not in the host name. */
  readonly pathStyle: boolean;
  /** Stands before every key; empty, or with a slash at its end. */
  readonly prefix: string;
  readonly accessKeyId: Secret;
  readonly secretAccessKey: Secret;
  readonly sessionToken: Secret | undefined;
  /** For how long objects cannot be changed, in milliseconds; undefined: they are not locked. */
  readonly lock: { readonly mode: 'governance' | 'compliance'; readonly keep: number } | undefined;
  readonly tls: ReceiverTls | undefined;
}

export interface OtlpOptions extends CommonOptions, OtlpReceiver {
  readonly kind: 'otlp';
}

export type SinkOptions = SyslogOptions | S3Options | OtlpOptions;
