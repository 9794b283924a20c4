import type { Socket } from 'node:net';
import type { JWTPayload } from 'jose';
import { addressOf } from '../base/client-address.ts';
import { GatewayError } from '../base/errors.ts';
import { type Address, parseAddress } from '../base/network.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { Steps } from '../base/steps.ts';
import { formatInstant } from '../base/units.ts';
import { ANONYMOUS, type Client } from '../policy/client.ts';
import { certificateEnd, type PresentedCertificate, presentedCertificate } from './certificates.ts';
import {
  ApiKeys,
  type ClientDescription,
  ConnectionIndex,
  fitsToken,
  hasApiKey,
  type OwnedKey,
  type Peer,
  presentsCertificate,
  type Ranked,
  rankClient,
  TokenIndex,
} from './client-index.ts';
import { forwardedClient, isTrusted, type ProxySettings } from './forwarded.ts';
import { type Presented, type PresentedKey, presentedIdentity } from './presented.ts';
import type { Tokens } from './tokens.ts';

/** A request whose fields present no identity. */
const NOTHING: Presented = {};

export interface IdentificationSettings extends ProxySettings {
  /** In the order of the configuration; the first match is chosen. */
  readonly clients: readonly ClientDescription[];
  /** True if unidentified requests are served as ANONYMOUS. */
  readonly anonymous: boolean;
}

export interface IdentificationDeps {
  readonly tokens: Tokens;
  /** Called when a request is refused because it does not identify a client, with the kind of its proof. */
  readonly onRefusal: (proof: Proof) => void;
  /** Returns the time in Unix milliseconds. */
  readonly now: () => number;
}

/** The sender of a request, and whether its identity still counts. */
export interface Caller {
  /** A configured client, or ANONYMOUS. */
  readonly client: Client;
  /** Note or first digits of the hash of the API key that identifies it; empty: it presented none. */
  readonly key: string;
  /** The client's own address, also behind trusted proxies; empty if they did not send it. */
  readonly address: string;
  /**
   * True if no credential of the request was needed, so that other programs on that machine could send it.
   */
  readonly ambient: boolean;
  /** `client-key-expired`: its API key has ended. Undefined: the client is identified. */
  readonly refusal: GatewayError | undefined;
}

/** Facts of a connection. */
interface Connection {
  readonly certificate: PresentedCertificate;
  /** When an accepted certificate ends, in Unix milliseconds; infinity without one. */
  readonly ends: number;
  /** Undefined behind a trusted proxy, whose requests come from various clients. */
  readonly origin: Origin | undefined;
}

/** The sender of a request, as far as it is known without the fields of the request. */
interface Origin extends Peer {
  /** The caller that presents nothing else; undefined if nobody does so from there. */
  readonly ambient: Caller | undefined;
  /** The last caller that fields identified; kept to avoid an allocation per request. */
  latest: Caller | undefined;
}

/**
 * Identifies the client of a request: the first one that lists exactly what the request presents (API key, token,
 * certificate), and has its address. What is known of a connection is kept with it.
 */
export class Identification {
  readonly #settings: IdentificationSettings;
  readonly #deps: IdentificationDeps;
  /** Clients identified by the connection alone. */
  readonly #byConnection = new ConnectionIndex();
  /** Clients with a token and without an API key. */
  readonly #byToken = new TokenIndex();
  /** Clients with an API key. */
  readonly #byKey = new ApiKeys();
  readonly #connections = new WeakMap<Socket, Connection>();

  private constructor(settings: IdentificationSettings, deps: IdentificationDeps) {
    this.#settings = settings;
    this.#deps = deps;
  }

  static *build(settings: IdentificationSettings, deps: IdentificationDeps): Steps<Identification> {
    const built = new Identification(settings, deps);
    for (const { identify } of settings.clients) {
      if (!hasApiKey(identify)) built.#byToken.expect(identify.jwt);
      yield;
    }
    for (const [rank, client] of settings.clients.entries()) {
      built.#add(rankClient(client, rank));
      yield;
    }
    return built;
  }

  #add(client: Ranked): void {
    const { identify } = client.client;
    if (hasApiKey(identify)) this.#byKey.add(client);
    else if (identify.jwt !== undefined) this.#byToken.add(client);
    else this.#byConnection.add(client);
  }

  /**
   * Returns synchronously unless a token has to be verified.
   * @throws GatewayError `client-unknown`, `identity-unavailable`
   */
  identify(socket: Socket, headers: RawHeaders): Caller | Promise<Caller> {
    let connection = this.#connections.get(socket);
    if (connection === undefined || connection.ends <= this.#deps.now()) connection = this.#inspect(socket);
    const { certificate } = connection;
    const origin =
      connection.origin ?? this.#originOf(forwardedClient(this.#settings, headers), certificate, true);
    const presented = presentedIdentity(headers, this.#deps.tokens.areAccepted);
    if (presented === undefined) return origin.ambient ?? this.#refuse(origin, NOTHING);
    return this.#identifyPresented(presented, origin);
  }

  /** True if the address is a trusted proxy's, so that many clients may share it. */
  isShared(address: string): boolean {
    const parsed = parseAddress(address);
    return parsed !== undefined && isTrusted(this.#settings, parsed);
  }

  #inspect(socket: Socket): Connection {
    const address = parseAddress(addressOf(socket));
    const certificate = presentedCertificate(socket, this.#deps.now());
    const isProxy = address !== undefined && isTrusted(this.#settings, address);
    const origin = isProxy ? undefined : this.#originOf(address, certificate, false);
    const accepted = certificate !== undefined && 'names' in certificate;
    const ends = accepted ? certificateEnd(socket) : Number.POSITIVE_INFINITY;
    const connection = { certificate, ends, origin };
    this.#connections.set(socket, connection);
    return connection;
  }

  #originOf(address: Address | undefined, certificate: PresentedCertificate, isProxied: boolean): Origin {
    const peer = { address, certificate, isProxied };
    const client = this.#byConnection.first(peer)?.client ?? this.#anonymousAt(peer);
    const ambient = client && {
      client,
      key: '',
      address: address?.toString() ?? '',
      ambient: true,
      refusal: undefined,
    };
    return { ...peer, ambient, latest: undefined };
  }

  #anonymousAt(peer: Peer): Client | undefined {
    return this.#settings.anonymous && !presentsCertificate(peer) ? ANONYMOUS : undefined;
  }

  #identifyPresented(presented: Presented, origin: Origin): Caller | Promise<Caller> {
    const { key, token } = presented;
    const owned = key === undefined ? undefined : this.#heldKey(key, origin);
    if (owned !== undefined && owned.expires <= this.#deps.now()) {
      this.#deps.onRefusal('api-key');
      return { ...callerOf(owned.owner, owned.name, origin), refusal: keyExpired(owned) };
    }
    if (token === undefined) {
      if (owned !== undefined && !hasToken(owned.owner)) return callerOf(owned.owner, owned.name, origin);
    } else if (key === undefined || (owned !== undefined && hasToken(owned.owner))) {
      return this.#identifyByToken(token, presented, owned, origin);
    }
    return this.#refuse(origin, presented);
  }

  /** `owned`: the API key of the request with its client; undefined if the request has none. */
  async #identifyByToken(
    token: string,
    presented: Presented,
    owned: OwnedKey | undefined,
    origin: Origin,
  ): Promise<Caller> {
    const verdict = await this.#deps.tokens.verify(token);
    if ('unavailable' in verdict) throw verdict.unavailable;
    if ('rejected' in verdict) return this.#refuse(origin, presented, verdict.rejected);
    const { payload } = verdict;
    const found = owned === undefined ? this.#byToken.first(payload, origin) : fitting(owned.owner, payload);
    if (found === undefined) return this.#refuse(origin, presented);
    return callerOf(found, owned?.name ?? '', origin);
  }

  /** Returns the API key if its client may come from there: nobody else learns that it has ended. */
  #heldKey(presented: PresentedKey, origin: Origin): OwnedKey | undefined {
    const key = this.#byKey.find(presented);
    return key?.owner.holds(origin) === true ? key : undefined;
  }

  #refuse(peer: Peer, presented: Presented, whyRejected?: string): never {
    const evidence = { ...peer, ...presented, whyRejected };
    this.#deps.onRefusal(proofOf(evidence));
    throw unknownClient(evidence);
  }
}

function callerOf({ client }: Ranked, key: string, origin: Origin): Caller {
  const { latest } = origin;
  if (latest?.client === client && latest.key === key) return latest;
  const caller = {
    client,
    key,
    address: origin.address?.toString() ?? '',
    ambient: false,
    refusal: undefined,
  };
  origin.latest = caller;
  return caller;
}

function hasToken({ client: { identify } }: Ranked): boolean {
  return identify.jwt !== undefined;
}

/** Returns the client if the verified token is its own. */
function fitting(client: Ranked, payload: JWTPayload): Ranked | undefined {
  const { jwt } = client.client.identify;
  return jwt !== undefined && fitsToken(jwt, payload) ? client : undefined;
}

/** The data of a request that can identify its sender. */
interface Evidence extends Peer, Presented {
  /** The reason why the token is invalid; undefined if it is valid or was not checked. */
  readonly whyRejected: string | undefined;
}

/** The kind of proof in a refused request, beside its address. */
type Proof = 'none' | 'malformed' | 'api-key' | 'token' | 'certificate';

/** Returns the kind of proof that a request contained, for metrics. */
function proofOf({ key, token, malformed, certificate }: Evidence): Proof {
  if (malformed !== undefined) return 'malformed';
  if (key !== undefined) return 'api-key';
  if (token !== undefined) return 'token';
  return certificate === undefined ? 'none' : 'certificate';
}

/**
 * Creates the error for an unidentified request. It lists the kinds of proof in the request, so that the
 * sender can see the missing one. It does not reveal which of them was right, or anything about configured
 * clients.
 */
function unknownClient(evidence: Evidence): GatewayError {
  const shown = [...shownOf(evidence)].join(', ');
  return new GatewayError(
    'client-unknown',
    `The request does not identify a configured client. It has ${shown}. Send everything that the configuration lists for the client under identify, and no other key, token or certificate.`,
  );
}

function keyExpired({ owner, name, expires }: OwnedKey): GatewayError {
  return new GatewayError(
    'client-key-expired',
    `The API key ${name} of the client ${owner.client.id} ended ${formatInstant(expires)}. Send another key of the client, or ask the operator of this gateway for one.`,
  );
}

function* shownOf({
  address,
  isProxied,
  key,
  token,
  malformed,
  whyRejected,
  certificate,
}: Evidence): Generator<string> {
  if (address !== undefined) yield `the address ${address}`;
  else yield isProxied ? 'no address (the proxy did not send it)' : 'no address (it came over a UNIX socket)';
  if (malformed !== undefined) yield malformed;
  else if (key === undefined) yield 'no API key';
  else yield key.id === undefined ? 'an API key' : 'a client id with an API key';
  if (token !== undefined) yield `a Bearer token${whyRejected === undefined ? '' : ` that ${whyRejected}`}`;
  if (certificate === undefined) return;
  yield 'refused' in certificate
    ? `a certificate that was not accepted (${certificate.refused})`
    : 'a certificate';
}
