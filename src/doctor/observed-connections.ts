import { monotonicClock } from '../base/clock.ts';
import { fieldValue, fieldValues } from '../base/raw-headers.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import type { Message } from '../handshake/exchange.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import { type ConnectionOptions, Connections } from '../transport/connections.ts';
import type { TlsSeen } from '../transport/upstream-tls.ts';

/** Upper bounds in milliseconds, because the whole run must end within 10 s. */
const LONGEST = { connect: 3_000, response: 4_000, idle: 4_000 };
/** Number of credentials that are examined concurrently. */
const CONNECTIONS = 4;

export function challengesOf({ headers }: UpstreamResponse): string[] {
  return fieldValues(headers, 'www-authenticate');
}

export interface DoctorDeps {
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
    this.#connections = new Connections({ ...options, timeouts, connections: CONNECTIONS }, monotonicClock);
    if (proxy !== undefined) this.#connections.offer(proxy);
  }

  get tlsSeen(): TlsSeen | undefined {
    return this.#connections.tlsSeen;
  }

  get localAddress(): string | undefined {
    return this.#connections.localAddress;
  }

  /** Lead of the upstream's clock over this host's, in milliseconds; undefined if no response had a date. */
  get clockDifferenceMs(): number | undefined {
    return this.#clockDifferenceMs;
  }

  /**
   * Sends one request and returns its response, whose body has been read. `onHead`: called before, with the response.
   * @throws GatewayError if there is no response, or if it breaks off; any error of `onHead`
   */
  async send(message: Message, onHead?: (response: UpstreamResponse) => void): Promise<UpstreamResponse> {
    const begun = this.#wallTime();
    const response = await this.#connections.exchange(message);
    if (response.kind === 'lost') throw response.error;
    this.#noteDate(fieldValue(response.headers, 'date'), begun);
    if (response.status === 401) {
      await response.discard();
    } else {
      onHead?.(response);
      await response.skip();
    }
    return response;
  }

  /** Closes every connection at once. */
  close(): void {
    this.#connections.close();
  }

  /** The upstream made its date at some time from `begun` to now. */
  #noteDate(date: string | undefined, begun: number): void {
    const upstreamTime = Date.parse(date ?? '');
    if (Number.isNaN(upstreamTime)) return;
    const [earliest, latest] = [wholeSeconds(begun), wholeSeconds(this.#wallTime())];
    this.#clockDifferenceMs = upstreamTime - Math.min(Math.max(upstreamTime, earliest), latest);
  }
}

/** Date has whole seconds, rounded down. */
function wholeSeconds(ms: number): number {
  return Math.floor(ms / 1000) * 1000;
}
