import type { RequestOptions } from 'node:http';
import { request as requestOverTls } from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { isExposed } from '../base/network.ts';
import { request as requestInClear } from '../base/node-http.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { Credential } from '../credentials/credentials.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { leavingFrom } from './egress.ts';
import { type ProxyAccount, ProxyAuthentication, type ProxyReply } from './proxy-authentication.ts';
import { proxyError, proxyTooSlow } from './proxy-errors.ts';
import { checkServerName } from './upstream-tls.ts';

/** A forward proxy. */
export interface ProxyOptions {
  /** `http://host:port` or `https://host:port`. */
  readonly origin: string;
  /** The name of its credential; undefined: it does not ask for any. */
  readonly credential: string | undefined;
  /** Algorithms that may answer Digest. */
  readonly algorithms: readonly AlgorithmName[];
  /** True if a challenge may be answered where others can listen: without TLS, to another machine. */
  readonly allowPlaintext: boolean;
  /** PEM of the authorities to trust instead of the system's. */
  readonly ca: string | undefined;
}

export interface TunnelOptions {
  readonly proxy: ProxyOptions;
  /** `https://host:port` of the upstream. */
  readonly origin: string;
  readonly localAddress: string | undefined;
  /** Until the tunnel stands, in milliseconds. */
  readonly timeout: number;
}

export interface TunnelDeps {
  readonly clock: Clock;
  /** The credential in use now; undefined: none. */
  readonly credential: () => Credential | undefined;
}

/**
 * Opens tunnels through a proxy to one upstream (CONNECT, RFC 9110 §9.3.6), and answers the challenge of the proxy.
 */
export class ProxyTunnel {
  readonly #options: TunnelOptions;
  readonly #deps: TunnelDeps;
  readonly #proxy: URL;
  readonly #account: Omit<ProxyAccount, 'credential'>;
  #authentication: ProxyAuthentication;

  constructor(options: TunnelOptions, deps: TunnelDeps) {
    const { algorithms, allowPlaintext, origin } = options.proxy;
    this.#proxy = new URL(origin);
    this.#options = options;
    this.#deps = deps;
    this.#account = {
      algorithms,
      mayAnswer: allowPlaintext || !isExposed(this.#proxy),
      authority: authorityOf(options.origin),
    };
    this.#authentication = this.#authenticationWith(deps.credential());
  }

  /**
   * A connection to the upstream, nothing sent on it yet.
   * @throws GatewayError `upstream-unreachable`, which says that it was the proxy
   */
  async open(): Promise<Socket> {
    const { clock, credential } = this.#deps;
    const now = credential();
    if (now !== this.#authentication.credential) this.#authentication = this.#authenticationWith(now);
    const deadline = clock.now() + this.#options.timeout;
    return this.#authentication.open((headers) => this.#connect(headers, deadline));
  }

  #authenticationWith(credential: Credential | undefined): ProxyAuthentication {
    return new ProxyAuthentication({ ...this.#account, credential }, this.#deps.clock);
  }

  /** One CONNECT, on a connection of its own: what comes after a 407 need not be read. */
  #connect(credentials: RawHeaders, deadline: number): Promise<ProxyReply> {
    return new Promise((resolve, reject) => {
      const request = this.#request(credentials);
      const left = Math.max(deadline - this.#deps.clock.now(), 1);
      const timer = setTimeout(() => request.destroy(proxyTooSlow()), left);
      const fail = (error: unknown): void => {
        clearTimeout(timer);
        reject(proxyError(error));
      };
      request.on('error', fail);
      request.once('connect', ({ statusCode = 0, rawHeaders }, socket: Socket, early: Buffer) => {
        clearTimeout(timer);
        if (early.length > 0) socket.unshift(early);
        resolve({ status: statusCode, headers: rawHeaders, socket });
      });
      request.end();
    });
  }

  #request(credentials: RawHeaders) {
    const { proxy, localAddress } = this.#options;
    const { protocol, hostname, port } = this.#proxy;
    const { authority } = this.#account;
    const host = hostname.replace(/^\[|\]$/g, '');
    const headers = ['host', authority, ...credentials];
    const options: RequestOptions = {
      method: 'CONNECT',
      path: authority,
      host,
      port,
      headers,
      agent: false,
      ...leavingFrom(localAddress),
    };
    if (protocol === 'http:') return requestInClear(options);
    return requestOverTls({
      ...options,
      // Node would take the name from the header Host, and that is the upstream's.
      servername: isIP(host) === 0 ? host : '',
      checkServerIdentity: checkServerName,
      ...(proxy.ca !== undefined && { ca: proxy.ca }),
    });
  }
}

/** `host:port`, the port said even if it is the scheme's own. */
function authorityOf(origin: string): string {
  const { protocol, hostname, port } = new URL(origin);
  return `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`;
}
