import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type Address, parseAddress } from '../base/network.ts';
import type { Steps } from '../base/steps.ts';
import { ANONYMOUS, type Client } from '../policy/client.ts';
import { ApiKeys, type PresentedKey, presentedKey, presentedToken } from './api-keys.ts';
import { certificateOf, type Shown } from './certificates.ts';
import { forwardedClient, isTrusted, type ProxySettings } from './client-address.ts';
import {
  type ClientDescription,
  ConnectionIndex,
  type Ranked,
  rankClient,
  TokenIndex,
} from './client-index.ts';
import { type Evidence, type Proof, proofOf, unknownClient } from './refusal.ts';
import type { TokenVerdict } from './token-issuer.ts';
import { fitsToken } from './token-rule.ts';
import type { Tokens } from './tokens.ts';

export interface IdentificationSettings extends ProxySettings {
  /** In the order of the configuration: the first that fits is the one. */
  readonly clients: readonly ClientDescription[];
  /** Whether whoever is none of the clients is served, too. */
  readonly anonymous: boolean;
}

export interface IdentificationExternals {
  readonly tokens: Tokens;
  /** A request of nobody known was refused; what it had tried to prove itself with. */
  readonly onRefusal: (proof: Proof) => void;
}

/** Who sent a request. */
export interface Caller {
  /** Of the configuration, or ANONYMOUS for who is none of its clients. */
  readonly client: Client;
  /** Of the client itself, also behind trusted proxies; empty: they did not tell. */
  readonly address: string;
  /** Whether nothing in the request said who it is: whatever the machine sends is taken for the client's. */
  readonly ambient: boolean;
}

/** A trusted proxy's connection, whose requests come from anybody. */
interface ProxyConnection {
  readonly proxied: true;
  readonly certificate: Shown;
}

/** What a connection, or a request through a proxy, says without headers for the gateway. */
interface Origin {
  readonly proxied: false;
  readonly address: Address | undefined;
  readonly certificate: Shown;
  /** Who it is if no header says more; undefined: nobody. */
  readonly unasked: Caller | undefined;
  /** Of that client. Only clients before it can be known by headers. */
  readonly rank: number;
  /** Whether such a client may be at the other end. */
  readonly needsHeaders: boolean;
  /** Who the headers said that it was last. */
  latest: Caller | undefined;
}

/** The clients, by what they are found by. */
interface Indexes {
  /** Known by the connection alone. */
  readonly unasked: ConnectionIndex;
  /** All others. */
  readonly asked: ConnectionIndex;
  /** Without a key, but with a token. */
  readonly withToken: ConnectionIndex;
  readonly tokens: TokenIndex;
  /** By id. */
  readonly withKey: Map<string, Ranked>;
  readonly keys: ApiKeys;
}

function fileClient(client: Ranked, { unasked, asked, withToken, tokens, withKey, keys }: Indexes): void {
  const { id, identify } = client.client;
  (hasKey(client) || hasToken(client) ? asked : unasked).add(client);
  if (identify.apiKeySha256 !== undefined) {
    withKey.set(id, client);
    keys.add(id, identify.apiKeySha256);
  } else if (hasToken(client)) {
    withToken.add(client);
    tokens.add(client);
  }
}

/** Finds out which client a request is from. What depends on the connection only is found out once for it. */
export class Identification {
  readonly #settings: IdentificationSettings;
  readonly #externals: IdentificationExternals;
  readonly #indexes: Indexes;
  readonly #connections = new WeakMap<Socket, ProxyConnection | Origin>();

  private constructor(
    settings: IdentificationSettings,
    externals: IdentificationExternals,
    indexes: Indexes,
  ) {
    this.#settings = settings;
    this.#externals = externals;
    this.#indexes = indexes;
  }

  static *build(settings: IdentificationSettings, externals: IdentificationExternals): Steps<Identification> {
    const indexes = {
      unasked: new ConnectionIndex(),
      asked: new ConnectionIndex(),
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
    return new Identification(settings, externals, indexes);
  }

  /**
   * Answers at once, unless a token has to be verified.
   * @throws GatewayError `client-unknown`, `identity-unavailable`
   */
  identify(req: IncomingMessage): Caller | Promise<Caller> {
    const connection = this.#connections.get(req.socket) ?? this.#meet(req.socket);
    const origin = connection.proxied
      ? this.#originOf(forwardedClient(this.#settings, req), connection.certificate)
      : connection;
    return origin.unasked !== undefined && !origin.needsHeaders ? origin.unasked : this.#ask(req, origin);
  }

  /** Whether many clients may share the connections from an address: it is a trusted proxy's. */
  isShared(address: string): boolean {
    const parsed = parseAddress(address);
    return parsed !== undefined && isTrusted(this.#settings, parsed);
  }

  #meet(socket: Socket): ProxyConnection | Origin {
    const address = parseAddress(socket.remoteAddress ?? '');
    const certificate = certificateOf(socket);
    const proxied = address !== undefined && isTrusted(this.#settings, address);
    const met = proxied ? { proxied, certificate } : this.#originOf(address, certificate);
    this.#connections.set(socket, met);
    return met;
  }

  #originOf(address: Address | undefined, certificate: Shown): Origin {
    const found = this.#indexes.unasked.first(address, certificate);
    const asked = this.#indexes.asked.first(address, certificate);
    const rank = found?.rank ?? Number.POSITIVE_INFINITY;
    const client = found?.client ?? (this.#settings.anonymous ? ANONYMOUS : undefined);
    const unasked = client && { client, address: address?.toString() ?? '', ambient: true };
    const needsHeaders = asked !== undefined && asked.rank < rank;
    return { proxied: false, address, certificate, unasked, rank, needsHeaders, latest: undefined };
  }

  /** What the headers say counts only for clients before the one that needs none. */
  #ask({ headers }: IncomingMessage, origin: Origin): Caller | Promise<Caller> {
    const { address, certificate, rank, unasked } = origin;
    const key = presentedKey(headers);
    const token = presentedToken(headers);
    const evidence = { address, certificate, key, token };
    const keyed = key === undefined ? undefined : this.#ownerOf(key, origin);
    const byKey = keyed !== undefined && keyed.rank < rank ? keyed : undefined;
    if (token !== undefined) {
      const before = byKey !== undefined && !hasToken(byKey) ? byKey.rank : rank;
      const asksForToken = (byKey !== undefined && hasToken(byKey)) || this.#firstWithToken(origin) < before;
      if (asksForToken) return this.#askForToken(token, evidence, byKey, origin);
    }
    if (byKey !== undefined && !hasToken(byKey)) return callerOf(byKey, origin);
    return unasked ?? this.#refuse(evidence);
  }

  async #askForToken(
    token: string,
    evidence: Evidence,
    byKey: Ranked | undefined,
    origin: Origin,
  ): Promise<Caller> {
    const verdict = await this.#externals.tokens.verify(token);
    const fitting = [byKey].filter((each) => each !== undefined && tokenFits(each, verdict));
    if ('payload' in verdict) {
      fitting.push(this.#indexes.tokens.first(verdict.payload, origin.address, origin.certificate));
    }
    const [first] = fitting
      .filter((each) => each !== undefined && each.rank < origin.rank)
      .sort((a, b) => (a?.rank ?? 0) - (b?.rank ?? 0));
    if (first !== undefined) return callerOf(first, origin);
    if (origin.unasked !== undefined) return origin.unasked;
    if ('unavailable' in verdict) throw verdict.unavailable;
    return this.#refuse({ ...evidence, tokenFault: 'fault' in verdict ? verdict.fault : undefined });
  }

  #ownerOf(key: PresentedKey, { address, certificate }: Origin): Ranked | undefined {
    const owner = this.#indexes.withKey.get(this.#indexes.keys.ownerOf(key) ?? '');
    return owner?.holds(address, certificate) === true ? owner : undefined;
  }

  #firstWithToken({ address, certificate }: Origin): number {
    return this.#indexes.withToken.first(address, certificate)?.rank ?? Number.POSITIVE_INFINITY;
  }

  #refuse(evidence: Evidence): never {
    this.#externals.onRefusal(proofOf(evidence));
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
