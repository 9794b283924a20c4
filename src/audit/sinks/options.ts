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

export type SinkOptions = SyslogOptions;
