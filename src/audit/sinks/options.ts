import type { Secret } from '../../base/secret.ts';

/** TLS of a sink; the receiver's certificate is always verified. */
export interface SinkTls {
  /** PEM: the authorities to trust instead of those that Node.js has. */
  readonly ca?: string | undefined;
  /** PEM: the certificate that the gateway shows, with its private key. */
  readonly client?: { readonly chain: string; readonly key: Secret } | undefined;
}

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
  readonly tls: SinkTls | undefined;
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
  readonly tls: SinkTls | undefined;
}

export interface OtlpOptions extends CommonOptions {
  readonly kind: 'otlp';
  /** The whole URL, with its path. */
  readonly endpoint: string;
  /** Fields of each request. */
  readonly headers: ReadonlyMap<string, Secret>;
  readonly tls: SinkTls | undefined;
}

export type SinkOptions = SyslogOptions | S3Options | OtlpOptions;
