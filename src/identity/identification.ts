import type { Socket } from 'node:net';
import { type Address, parseAddress } from '../base/network.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { Steps } from '../base/steps.ts';
import { ANONYMOUS, type Client } from '../policy/client.ts';
import { ApiKeys, type PresentedKey, presentedKey, presentedToken } from './api-keys.ts';
import { type PresentedCertificate, presentedCertificate } from './certificates.ts';
import {
  type ClientDescription,
  ConnectionIndex,
  type Ranked,
  rankClient,
  TokenIndex,
} from './client-index.ts';
import { forwardedClient, isTrusted, type ProxySettings } from './forwarded.ts';
import { type Evidence, type Proof, proofOf, unknownClient } from './refusal.ts';
import type { TokenVerdict } from './token-issuer.ts';
import { fitsToken } from './token-rule.ts';
import type { Tokens } from './tokens.ts';

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
}

/** The identified sender of a request. */
export interface Caller {
  /** A configured client, or ANONYMOUS. */
  readonly client: Client;
  /** The client's own address, also behind trusted proxies; empty if they did not send it. */
  readonly address: string;
  /**
   * True if no credential of the request was needed, so that other programs on that machine could send it.
   */
  readonly ambient: boolean;
}

/** A connection of a trusted proxy; its requests come from various clients. */
interface ProxyConnection {
  readonly proxied: true;
  readonly certificate: PresentedCertificate;
}

/** The sender of a request as far as it is known without credentials in headers. */
interface Origin {
  readonly proxied: false;
  readonly address: Address | undefined;
  readonly certificate: PresentedCertificate;
  /** The caller if the headers identify no other client; undefined if there is none. */
  readonly fallback: Caller | undefined;
  /** Rank of that caller. Headers can only identify clients of a lower rank. */
  readonly rank: number;
  /** True if headers could identify a client of a lower rank on this connection. */
  readonly needsHeaders: boolean;
  /** The last caller that headers identified; kept to avoid an allocation per request. */
  latest: Caller | undefined;
}

/** Indexes of the clients by their kind of identification. */
interface Indexes {
  /** Clients identified by the connection alone. */
  readonly byConnection: ConnectionIndex;
  /** All other clients. */
  readonly byHeaders: ConnectionIndex;
  /** Clients with a token and without an API key. */
  readonly withToken: ConnectionIndex;
  readonly tokens: TokenIndex;
  /** Clients with an API key, by id. */
  readonly withKey: Map<string, Ranked>;
  readonly keys: ApiKeys;
}

function fileClient(
  client: Ranked,
  { byConnection, byHeaders, withToken, tokens, withKey, keys }: Indexes,
): void {
  const { id, identify } = client.client;
  (hasKey(client) || hasToken(client) ? byHeaders : byConnection).add(client);
  if (identify.apiKeySha256 !== undefined) {
    withKey.set(id, client);
    keys.add(id, identify.apiKeySha256);
  } else if (hasToken(client)) {
    withToken.add(client);
    tokens.add(client);
  }
}

/** Identifies the client of a request. The result for a connection is cached. */
export class Identification {
  readonly #settings: IdentificationSettings;
  readonly #deps: IdentificationDeps;
  readonly #indexes: Indexes;
  readonly #connections = new WeakMap<Socket, ProxyConnection | Origin>();

  private constructor(settings: IdentificationSettings, deps: IdentificationDeps, indexes: Indexes) {
    this.#settings = settings;
    this.#deps = deps;
    this.#indexes = indexes;
  }

  static *build(settings: IdentificationSettings, deps: IdentificationDeps): Steps<Identification> {
    const indexes = {
      byConnection: new ConnectionIndex(),
      byHeaders: new ConnectionIndex(),
      withToken: new ConnectionIndex(),
      tokens: new TokenIndex(),
      withKey: new Map<string, Ranked>(),
      keys: new ApiKeys(),
    };
    for (const { identify } of settings.clients) {
      if (identify.apiKeySha256 === undefined) indexes.tokens.expect(identify.jwt);
      yield;
    }
    for (const [rank, client] of settings.clients.entries()) {
      fileClient(rankClient(client, rank), indexes);
      yield;
    }
    return new Identification(settings, deps, indexes);
  }

  /**
   * Returns synchronously unless a token has to be verified.
   * @throws GatewayError `client-unknown`, `identity-unavailable`
   */
  identify(socket: Socket, headers: RawHeaders): Caller | Promise<Caller> {
    const connection = this.#connections.get(socket) ?? this.#inspect(socket);
    const origin = connection.proxied
      ? this.#originOf(forwardedClient(this.#settings, headers), connection.certificate)
      : connection;
    return origin.fallback !== undefined && !origin.needsHeaders
      ? origin.fallback
      : this.#identifyByHeaders(headers, origin);
  }

  /** True if the address is a trusted proxy's, so that many clients may share it. */
  isShared(address: string): boolean {
    const parsed = parseAddress(address);
    return parsed !== undefined && isTrusted(this.#settings, parsed);
  }

  #inspect(socket: Socket): ProxyConnection | Origin {
    const address = parseAddress(socket.remoteAddress ?? '');
    const certificate = presentedCertificate(socket);
    const proxied = address !== undefined && isTrusted(this.#settings, address);
    const connection = proxied ? { proxied, certificate } : this.#originOf(address, certificate);
    this.#connections.set(socket, connection);
    return connection;
  }

  #originOf(address: Address | undefined, certificate: PresentedCertificate): Origin {
    const found = this.#indexes.byConnection.first(address, certificate);
    const other = this.#indexes.byHeaders.first(address, certificate);
    const rank = found?.rank ?? Number.POSITIVE_INFINITY;
    const client = found?.client ?? (this.#settings.anonymous ? ANONYMOUS : undefined);
    const fallback = client && { client, address: address?.toString() ?? '', ambient: true };
    const needsHeaders = other !== undefined && other.rank < rank;
    return { proxied: false, address, certificate, fallback, rank, needsHeaders, latest: undefined };
  }

  /** Identifies by headers, which can only select clients that precede the caller without headers. */
  #identifyByHeaders(headers: RawHeaders, origin: Origin): Caller | Promise<Caller> {
    const { address, certificate, rank, fallback } = origin;
    const key = presentedKey(headers);
    const token = presentedToken(headers);
    const evidence = { address, certificate, key, token };
    const keyed = key === undefined ? undefined : this.#ownerOf(key, origin);
    const byKey = keyed !== undefined && keyed.rank < rank ? keyed : undefined;
    if (token !== undefined) {
      const before = byKey !== undefined && !hasToken(byKey) ? byKey.rank : rank;
      const tokenMatters = (byKey !== undefined && hasToken(byKey)) || this.#firstWithToken(origin) < before;
      if (tokenMatters) return this.#identifyByToken(token, evidence, byKey, origin);
    }
    if (byKey !== undefined && !hasToken(byKey)) return callerOf(byKey, origin);
    return fallback ?? this.#refuse(evidence);
  }

  async #identifyByToken(
    token: string,
    evidence: Evidence,
    byKey: Ranked | undefined,
    origin: Origin,
  ): Promise<Caller> {
    const verdict = await this.#deps.tokens.verify(token);
    const fitting = [byKey].filter((each) => each !== undefined && tokenFits(each, verdict));
    if ('payload' in verdict) {
      fitting.push(this.#indexes.tokens.first(verdict.payload, origin.address, origin.certificate));
    }
    const [first] = fitting
      .filter((each) => each !== undefined && each.rank < origin.rank)
      .sort((a, b) => (a?.rank ?? 0) - (b?.rank ?? 0));
    if (first !== undefined) return callerOf(first, origin);
    if (origin.fallback !== undefined) return origin.fallback;
    if ('unavailable' in verdict) throw verdict.unavailable;
    return this.#refuse({ ...evidence, whyRejected: 'rejected' in verdict ? verdict.rejected : undefined });
  }

  #ownerOf(key: PresentedKey, { address, certificate }: Origin): Ranked | undefined {
    const owner = this.#indexes.withKey.get(this.#indexes.keys.ownerOf(key) ?? '');
    return owner?.holds(address, certificate) === true ? owner : undefined;
  }

  #firstWithToken({ address, certificate }: Origin): number {
    return this.#indexes.withToken.first(address, certificate)?.rank ?? Number.POSITIVE_INFINITY;
  }

  #refuse(evidence: Evidence): never {
    this.#deps.onRefusal(proofOf(evidence));
    throw unknownClient(evidence);
  }
}

function callerOf({ client }: Ranked, origin: Origin): Caller {
  if (origin.latest?.client !== client) {
    origin.latest = { client, address: origin.address?.toString() ?? '', ambient: false };
  }
  return origin.latest;
}

function hasKey({ client: { identify } }: Ranked): boolean {
  return identify.apiKeySha256 !== undefined;
}

function hasToken({ client: { identify } }: Ranked): boolean {
  return identify.jwt !== undefined;
}

function tokenFits({ client: { identify } }: Ranked, verdict: TokenVerdict): boolean {
  return identify.jwt === undefined || ('payload' in verdict && fitsToken(identify.jwt, verdict.payload));
}
