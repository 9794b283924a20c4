import { type RequestOptions, request as requestInClear } from 'node:http';
import { request as requestOverTls } from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { isLoopbackHost } from '../base/network.ts';
import type { Credential } from '../digest/authorization.ts';
import { leavingFrom } from './egress.ts';
import { type ProxyAnswer, ProxyAuthentication } from './proxy-authentication.ts';
import {
  proxyAlwaysStale,
  proxyError,
  proxyRefuses,
  proxyRefusesCredential,
  proxyTooSlow,
} from './proxy-errors.ts';

/** Answers to challenges of one CONNECT, however often the proxy calls its nonces stale. */
const MAX_ANSWERS = 2;
/** Between trials of a refused credential: proxies lock addresses out as others do. */
const TRIAL_INTERVAL_MS = 30_000;
/** As undici has it for connections of its own. */
const KEEP_ALIVE_MS = 60_000;

/** A forward proxy. */
export interface ProxyOptions {
  /** `http://host:port` or `https://host:port`. */
  readonly origin: string;
  /** The name of its credential; undefined: it does not ask for any. */
  readonly credential: string | undefined;
  /** Whether Basic may be answered where others can listen: without TLS, to another machine. */
  readonly allowBasic: boolean;
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
  /** What authenticates now; undefined: nothing. */
  readonly credential: () => Credential | undefined;
}

/** What the proxy said to a CONNECT. */
interface Reply {
  readonly status: number;
  readonly authenticate: readonly string[];
  readonly authenticationInfo: readonly string[];
  readonly socket: Socket;
}

/**
 * Ways through a proxy to one upstream (CONNECT, RFC 9110 §9.3.6). undici's ProxyAgent would do, but that it sends
 * what it was given once: it cannot answer a Digest challenge, nor say what the proxy refused.
 */
export class ProxyTunnel {
  readonly #options: TunnelOptions;
  readonly #deps: TunnelDeps;
  readonly #proxy: URL;
  readonly #basicAllowed: boolean;
  readonly #authority: string;
  #authentication: ProxyAuthentication;
  /** A refused credential is kept back until then, on the clock. */
  #nextTrial = Number.NEGATIVE_INFINITY;

  constructor(options: TunnelOptions, deps: TunnelDeps) {
    const { allowBasic, origin } = options.proxy;
    this.#proxy = new URL(origin);
    const { protocol, hostname } = this.#proxy;
    this.#options = options;
    this.#deps = deps;
    this.#authority = authorityOf(options.origin);
    this.#basicAllowed = allowBasic || protocol === 'https:' || isLoopbackHost(hostname);
    this.#authentication = this.#authenticationWith(deps.credential());
  }

  /**
   * A connection to the upstream, nothing sent on it yet.
   * @throws GatewayError `upstream-unreachable`, which says that it was the proxy
   */
  async open(): Promise<Socket> {
    const { clock, credential } = this.#deps;
    const now = credential();
    if (now !== this.#authentication.credential) {
      this.#authentication = this.#authenticationWith(now);
      this.#nextTrial = Number.NEGATIVE_INFINITY;
    }
    if (clock.now() < this.#nextTrial) throw proxyRefusesCredential();
    return this.#openWith(this.#authentication, clock.now() + this.#options.timeout);
  }

  async #openWith(authentication: ProxyAuthentication, deadline: number): Promise<Socket> {
    let answer = authentication.known();
    let reply = await this.#connect(answer, deadline);
    for (let left = MAX_ANSWERS; reply.status === 407; left -= 1) {
      reply.socket.destroy();
      answer = this.#answer(authentication, reply, answer);
      if (left === 0) throw proxyAlwaysStale();
      reply = await this.#connect(answer, deadline);
    }
    return tunnelOf(authentication, reply, answer);
  }

  #authenticationWith(credential: Credential | undefined): ProxyAuthentication {
    return new ProxyAuthentication({ credential, basicAllowed: this.#basicAllowed }, this.#authority);
  }

  #answer(authentication: ProxyAuthentication, reply: Reply, refused: ProxyAnswer | undefined): ProxyAnswer {
    try {
      return authentication.answer(reply.authenticate, refused);
    } catch (error) {
      const current = authentication === this.#authentication;
      if (refused?.own === true && current) this.#nextTrial = this.#deps.clock.now() + TRIAL_INTERVAL_MS;
      throw error;
    }
  }

  /** One CONNECT, on a connection of its own: what comes after a 407 need not be read. */
  #connect(answer: ProxyAnswer | undefined, deadline: number): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const request = this.#request(answer);
      const left = Math.max(deadline - this.#deps.clock.now(), 1);
      const timer = setTimeout(() => request.destroy(proxyTooSlow()), left);
      const fail = (error: unknown): void => {
        clearTimeout(timer);
        reject(proxyError(error));
      };
      request.on('error', fail);
      request.once('connect', ({ statusCode = 0, headersDistinct }, socket: Socket, early: Buffer) => {
        clearTimeout(timer);
        if (early.length > 0) socket.unshift(early);
        resolve({
          status: statusCode,
          authenticate: headersDistinct['proxy-authenticate'] ?? [],
          authenticationInfo: headersDistinct['proxy-authentication-info'] ?? [],
          socket,
        });
      });
      request.end();
    });
  }

  #request(answer: ProxyAnswer | undefined) {
    const { proxy, localAddress } = this.#options;
    const { protocol, hostname, port } = this.#proxy;
    const host = hostname.replace(/^\[|\]$/g, '');
    const headers = ['host', this.#authority];
    if (answer !== undefined) headers.push('proxy-authorization', answer.header);
    const options: RequestOptions = {
      method: 'CONNECT',
      path: this.#authority,
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
      ...(proxy.ca !== undefined && { ca: proxy.ca }),
    });
  }
}

/** `host:port`, the port said even if it is the scheme's own. */
function authorityOf(origin: string): string {
  const { protocol, hostname, port } = new URL(origin);
  return `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`;
}

/** The tunnel that a proxy made; it throws when it made none. */
function tunnelOf(
  authentication: ProxyAuthentication,
  { status, authenticationInfo, socket }: Reply,
  answer: ProxyAnswer | undefined,
): Socket {
  try {
    if (status < 200 || status > 299) {
      if (answer !== undefined) authentication.release(answer);
      throw proxyRefuses(status);
    }
    if (answer !== undefined) authentication.accepted(answer, authenticationInfo);
  } catch (error) {
    socket.destroy();
    throw error;
  }
  return socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_MS);
}
