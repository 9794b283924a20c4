import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type Address, type Network, parseAddress } from '../base/network.ts';
import { ANONYMOUS, type Client } from '../policy/client.ts';
import { ApiKeys, presentedKey, presentedToken } from './api-keys.ts';
import { type CertificateRule, certificateOf, certificateTest, type Shown } from './certificates.ts';
import { forwardedClient, isTrusted, type ProxySettings } from './client-address.ts';
import { type Evidence, type Proof, proofOf, unknownClient } from './refusal.ts';
import type { TokenVerdict } from './token-issuer.ts';
import { fitsToken, type TokenRule } from './token-rule.ts';
import type { Tokens } from './tokens.ts';

/** How one client is known: all that it lists must hold, and it lists at least one thing. */
export interface ClientDescription extends Client {
  readonly identify: {
    readonly addresses?: readonly Network[] | undefined;
    readonly apiKeySha256?: readonly string[] | undefined;
    readonly certificate?: CertificateRule | undefined;
    readonly jwt?: TokenRule | undefined;
  };
}

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
}

const ANYBODY: ClientDescription = { ...ANONYMOUS, identify: {} };

/** A client that only the headers of a request can still rule out. */
interface Candidate {
  readonly client: ClientDescription;
  readonly caller: Caller;
}

/** What is known of a connection before its first request. */
interface Connection {
  readonly address: Address | undefined;
  readonly certificate: Shown;
  /** undefined: a trusted proxy's, whose requests come from anybody. */
  readonly candidates: readonly Candidate[] | undefined;
}

/** Finds out which client a request is from. What depends on the connection only is found out once for it. */
export class Identification {
  readonly #settings: IdentificationSettings;
  readonly #externals: IdentificationExternals;
  readonly #rules: readonly ConnectionRule[];
  readonly #keys: ApiKeys;
  readonly #connections = new WeakMap<Socket, Connection>();

  constructor(settings: IdentificationSettings, externals: IdentificationExternals) {
    this.#settings = settings;
    this.#externals = externals;
    this.#rules = settings.clients.map(connectionRule);
    this.#keys = new ApiKeys(
      settings.clients.map(({ id, identify }) => ({ id, apiKeySha256: identify.apiKeySha256 ?? [] })),
    );
  }

  /**
   * Answers at once, unless a token has to be verified.
   * @throws GatewayError `client-unknown`, `identity-unavailable`
   */
  identify(req: IncomingMessage): Caller | Promise<Caller> {
    const connection = this.#connections.get(req.socket) ?? this.#meet(req.socket);
    if (connection.candidates === undefined) {
      const address = forwardedClient(this.#settings, req);
      return this.#choose(req, { ...connection, address }, this.#candidates(address, connection.certificate));
    }
    const [first] = connection.candidates;
    return first !== undefined && needsNoHeader(first)
      ? first.caller
      : this.#choose(req, connection, connection.candidates);
  }

  /** Whether many clients may share the connections from an address: it is a trusted proxy's. */
  isShared(address: string): boolean {
    const parsed = parseAddress(address);
    return parsed !== undefined && isTrusted(this.#settings, parsed);
  }

  #meet(socket: Socket): Connection {
    const address = parseAddress(socket.remoteAddress ?? '');
    const certificate = certificateOf(socket);
    const proxied = address !== undefined && isTrusted(this.#settings, address);
    const candidates = proxied ? undefined : this.#candidates(address, certificate);
    const connection = { address, certificate, candidates };
    this.#connections.set(socket, connection);
    return connection;
  }

  #candidates(address: Address | undefined, certificate: Shown): Candidate[] {
    const candidates: Candidate[] = [];
    const text = address?.toString() ?? '';
    for (const { client, holds } of this.#rules) {
      if (!holds(address, certificate)) continue;
      const candidate = { client, caller: { client, address: text } };
      candidates.push(candidate);
      // Nobody after this one can be the first that fits.
      if (needsNoHeader(candidate)) return candidates;
    }
    if (this.#settings.anonymous) {
      candidates.push({ client: ANYBODY, caller: { client: ANONYMOUS, address: text } });
    }
    return candidates;
  }

  #choose(
    { headers }: IncomingMessage,
    { address, certificate }: Connection,
    candidates: readonly Candidate[],
  ): Caller | Promise<Caller> {
    const key = presentedKey(headers);
    const owner = key === undefined ? undefined : this.#keys.ownerOf(key);
    const token = presentedToken(headers);
    const evidence = { address, certificate, key, token };
    for (const candidate of candidates) {
      if (!hasKey(candidate, owner)) continue;
      if (candidate.client.identify.jwt === undefined) return candidate.caller;
      if (token !== undefined) return this.#chooseByToken(token, evidence, candidates, owner);
    }
    return this.#refuse(evidence);
  }

  async #chooseByToken(
    token: string,
    evidence: Evidence,
    candidates: readonly Candidate[],
    owner: string | undefined,
  ): Promise<Caller> {
    const verdict = await this.#externals.tokens.verify(token);
    const chosen = candidates.find((candidate) => hasKey(candidate, owner) && hasToken(candidate, verdict));
    if (chosen !== undefined) return chosen.caller;
    if ('unavailable' in verdict) throw verdict.unavailable;
    return this.#refuse({ ...evidence, tokenFault: 'fault' in verdict ? verdict.fault : undefined });
  }

  #refuse(evidence: Evidence): never {
    this.#externals.onRefusal(proofOf(evidence));
    throw unknownClient(evidence);
  }
}

interface ConnectionRule {
  readonly client: ClientDescription;
  /** Whether this client may be at the other end of such a connection. */
  readonly holds: (address: Address | undefined, certificate: Shown) => boolean;
}

function connectionRule(client: ClientDescription): ConnectionRule {
  const { addresses, certificate: rule } = client.identify;
  const fits = rule === undefined ? undefined : certificateTest(rule);
  return {
    client,
    holds: (address, certificate) =>
      (addresses === undefined ||
        (address !== undefined && addresses.some((network) => network.contains(address)))) &&
      (fits === undefined || (certificate !== undefined && 'names' in certificate && fits(certificate))),
  };
}

function needsNoHeader({ client: { identify } }: Candidate): boolean {
  return identify.apiKeySha256 === undefined && identify.jwt === undefined;
}

function hasKey({ client: { id, identify } }: Candidate, owner: string | undefined): boolean {
  return identify.apiKeySha256 === undefined || owner === id;
}

function hasToken({ client: { identify } }: Candidate, verdict: TokenVerdict): boolean {
  return identify.jwt === undefined || ('payload' in verdict && fitsToken(identify.jwt, verdict.payload));
}
