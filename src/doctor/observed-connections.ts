import type { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { fieldValue } from '../base/raw-headers.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import type { ExchangeRequest, ExchangeResult, Message } from '../handshake/exchange.ts';
import { discardResponse, type ResponseHandler } from '../handshake/response-handler.ts';
import { type ConnectionOptions, Connections } from '../transport/connections.ts';
import type { TlsSeen } from '../transport/upstream-tls.ts';

/** Upper bounds in milliseconds, because the whole run must end within 10 s. */
const LONGEST = { connect: 3_000, response: 4_000, idle: 4_000 };
/** Number of credentials that are examined concurrently. */
const CONNECTIONS = 4;

/** The response to a request. */
export type ObservedResponse = Exclude<ExchangeResult, { readonly kind: 'lost' }>;

export interface DoctorDeps {
  readonly clock: Clock;
  /** Unix time in milliseconds. */
  readonly wallTime: () => number;
  /** Ends the examination early. */
  readonly signal?: AbortSignal;
}

/** Connections to one upstream, with observations of TLS and of its clock. */
export class ObservedConnections {
  readonly #connections: Connections;
  readonly #wallTime: () => number;
  #clockDifferenceMs: number | undefined;

  constructor(options: ConnectionOptions, proxy: CredentialSet | undefined, deps: DoctorDeps) {
    const { connect, response, idle } = options.timeouts;
    const timeouts = {
      connect: Math.min(connect, LONGEST.connect),
      response: Math.min(response, LONGEST.response),
      idle: Math.min(idle, LONGEST.idle),
    };
    this.#wallTime = deps.wallTime;
    this.#connections = new Connections({ ...options, timeouts, connections: CONNECTIONS }, deps.clock);
    if (proxy !== undefined) this.#connections.offer(proxy);
  }

  get tlsSeen(): TlsSeen | undefined {
    return this.#connections.tlsSeen;
  }

  /** Lead of the upstream's clock over this host's, in milliseconds; undefined if no response had a date. */
  get clockDifferenceMs(): number | undefined {
    return this.#clockDifferenceMs;
  }

  hasEgressAddress(): Promise<boolean | undefined> {
    return this.#connections.hasEgressAddress();
  }

  /**
   * Sends one request and returns its response.
   * @throws GatewayError if there is no response
   */
  async send(
    message: Message,
    cancellation: Cancellation,
    onHead: ExchangeRequest['onHead'] = () => undefined,
  ): Promise<ObservedResponse> {
    const handler: ResponseHandler = {
      ...discardResponse,
      head: (_status, _reason, headers) => this.#noteDate(fieldValue(headers, 'date')),
    };
    const result = await this.#connections.exchange(
      { ...message, client: '', cancellation, onHead },
      handler,
    );
    if (result.kind === 'lost') throw result.error;
    if (result.kind === 'challenged') this.#noteDate(result.date);
    return result;
  }

  /** Closes every connection at once. */
  close(): Promise<void> {
    return this.#connections.destroy();
  }

  #noteDate(date: string | undefined): void {
    const upstreamTime = Date.parse(date ?? '');
    if (Number.isNaN(upstreamTime)) return;
    // Date has whole seconds, rounded down.
    this.#clockDifferenceMs = upstreamTime - Math.floor(this.#wallTime() / 1000) * 1000;
  }
}
