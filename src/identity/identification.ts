import type { Socket } from 'node:net';
import type { JWTPayload } from 'jose';
import { addressOf } from '../base/client-address.ts';
import { GatewayError } from '../base/errors.ts';
import { type Address, parseAddress } from '../base/network.ts';
import { FieldNames, joinedValue, type RawHeaders } from '../base/raw-headers.ts';
import type { Steps } from '../base/steps.ts';
import { formatInstant } from '../base/units.ts';
import { ANONYMOUS, type Client } from '../policy/rules.ts';
import { certificateEnd, type PresentedCertificate, presentedCertificate } from './certificates.ts';
import {
  ApiKeys,
  type ClientDescription,
  ConnectionIndex,
  fitsToken,
  hasApiKey,
  type OwnedKey,
  type Peer,
  type PresentedKey,
  presentsCertificate,
  type Ranked,
  rankClient,
  TokenIndex,
} from './client-index.ts';
import { forwardedClient, isTrusted, type ProxySettings } from './forwarded.ts';
import type { Tokens } from './tokens.ts';

/** The identity that the fields of a request present. */
export interface Presented {
  readonly key?: PresentedKey;
  /** The Bearer token (RFC 6750 §2.1). */
  readonly token?: string;
  /** The error in the fields; undefined if they can be read in one way only. */
  readonly malformed?: string;
}

const IDENTITY_FIELDS = new FieldNames(['x-api-key', 'authorization', 'proxy-authorization']);
/** RFC 9110 §11.4: a scheme, and behind spaces what belongs to it. */
const CREDENTIALS = /^([!#$%&'*+.^_`|~\w-]+)(?: +([^ ].*))?$/;
/** RFC 6750 §2.1. */
const TOKEN = /^[\w.~+/-]+=*$/;

/** The client of a request that identifies none. */
const UNKNOWN: Client = { id: '', allow: [] };

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

/** The sender of a request, and whether its identity counts. */
export interface Caller {
  /** A configured client, or ANONYMOUS; its id is empty if the request identifies none. */
  readonly client: Client;
  /** Note or first digits of the hash of the API key that identifies it; empty: it presented none. */
  readonly key: string;
  /** The client's own address, also behind trusted proxies; empty if they did not send it. */
  readonly address: string;
  /**
   * True if no credential of the request was needed, so that other programs on that machine could send it.
   */
  readonly ambient: boolean;
  /** `client-unknown`, `identity-unavailable`, or `client-key-expired`. Undefined: the client is identified. */
  readonly refusal: GatewayError | undefined;
}

/** Facts of a connection. */
interface Connection {
  readonly certificate: PresentedCertificate;
  /** When an accepted certificate ends, in Unix milliseconds; undefined: there is none. */
  readonly ends: number | undefined;
  /** Undefined behind a trusted proxy, whose requests come from various clients. */
  readonly origin: Origin | undefined;
}

/** The sender of a request, as far as it is known without the fields of the request. */
interface Origin extends Peer {
  /** The client of requests that present nothing else; undefined: none has this address. */
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

  get tokens(): Tokens {
    return this.#deps.tokens;
  }

  #add(client: Ranked): void {
    const { identify } = client.client;
    if (hasApiKey(identify)) this.#byKey.add(client);
    else if (identify.jwt !== undefined) this.#byToken.add(client);
    else this.#byConnection.add(client);
  }

  /** Returns synchronously unless a token has to be verified. A refusal is returned with the address of the sender. */
  identify(socket: Socket, headers: RawHeaders): Caller | Promise<Caller> {
    let connection = this.#connections.get(socket) ?? this.#inspect(socket);
    const { ends } = connection;
    if (ends !== undefined && ends <= this.#deps.now()) connection = this.#inspect(socket);
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
    const ends = accepted ? certificateEnd(socket) : undefined;
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
    if (token === undefined) {
      if (owned !== undefined && !hasToken(owned.owner)) return this.#callerByKey(owned, origin);
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
    if ('unavailable' in verdict) return unidentified(origin, verdict.unavailable);
    if ('rejected' in verdict) return this.#refuse(origin, presented, verdict.rejected);
    const { payload } = verdict;
    const found = owned === undefined ? this.#byToken.first(payload, origin) : fitting(owned.owner, payload);
    if (found === undefined) return this.#refuse(origin, presented);
    return owned === undefined ? callerOf(found, '', origin) : this.#callerByKey(owned, origin);
  }

  /** Returns the owner of a key, once all else that the owner has to present is there. */
  #callerByKey(owned: OwnedKey, origin: Origin): Caller {
    const caller = callerOf(owned.owner, owned.name, origin);
    if (owned.expires > this.#deps.now()) return caller;
    this.#deps.onRefusal('api-key');
    return { ...caller, refusal: keyExpired(owned) };
  }

  /** Returns the API key if its client may come from there: others do not learn that it has ended. */
  #heldKey(presented: PresentedKey, origin: Origin): OwnedKey | undefined {
    const key = this.#byKey.find(presented);
    return key?.owner.holds(origin) === true ? key : undefined;
  }

  #refuse(origin: Origin, presented: Presented, whyRejected?: string): Caller {
    const evidence = { ...origin, ...presented, whyRejected };
    this.#deps.onRefusal(proofOf(evidence));
    return unidentified(origin, unknownClient(evidence));
  }
}

function unidentified({ address }: Origin, refusal: GatewayError): Caller {
  return { client: UNKNOWN, key: '', address: address?.toString() ?? '', ambient: false, refusal };
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

/**
 * Returns the identity that a request presents; undefined if it presents none. A field that comes twice, a second key
 * or token, and any form but the one of the standard is malformed: somebody before the gateway may have read another
 * identity from it. Schemes but Basic, and Bearer where tokens are accepted, present nothing to the gateway.
 */
export function presentedIdentity(headers: RawHeaders, acceptsTokens: boolean): Presented | undefined {
  let found: Presented | undefined;
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const field = headers[at] ?? '';
    if (!IDENTITY_FIELDS.has(field)) continue;
    const read = readField(headers, field.toLowerCase(), headers[at + 1] ?? '', acceptsTokens);
    if (read !== undefined) found = found === undefined ? read : bothOf(found, read);
    // Each further line would be compared with all: thousands of one field would take seconds.
    if (found?.malformed !== undefined) return found;
  }
  return found;
}

function bothOf(one: Presented, other: Presented): Presented {
  if (one.malformed !== undefined) return one;
  if (other.malformed !== undefined) return other;
  if (one.key !== undefined && other.key !== undefined) return { malformed: 'two API keys' };
  if (one.token !== undefined && other.token !== undefined) return { malformed: 'two Bearer tokens' };
  return { ...one, ...other };
}

function readField(
  headers: RawHeaders,
  name: string,
  value: string,
  acceptsTokens: boolean,
): Presented | undefined {
  if (joinedValue(headers, name) !== value) return { malformed: `${name} twice` };
  return name === 'x-api-key' ? readKey(value) : readCredentials(name, value, acceptsTokens);
}

function readKey(key: string): Presented {
  return key === '' ? { malformed: 'an empty API key' } : { key: { id: undefined, key } };
}

function readCredentials(field: string, value: string, acceptsTokens: boolean): Presented | undefined {
  const [, scheme, credentials = ''] = CREDENTIALS.exec(value) ?? [];
  switch (scheme?.toLowerCase()) {
    case undefined:
      return { malformed: `a malformed ${field}` };
    case 'basic':
      return readBasic(credentials);
    case 'bearer':
      if (!acceptsTokens) return undefined;
      return TOKEN.test(credentials) ? { token: credentials } : { malformed: 'a malformed Bearer token' };
    default:
      return undefined;
  }
}

/** RFC 7617 §2. Base64 has one form for each text: Node.js alone would also read others. */
function readBasic(credentials: string): Presented {
  const bytes = Buffer.from(credentials, 'base64');
  const pair = bytes.toString('utf8');
  const colon = pair.indexOf(':');
  if (colon < 1 || colon === pair.length - 1 || bytes.toString('base64') !== credentials) {
    return { malformed: 'malformed Basic credentials' };
  }
  return { key: { id: pair.slice(0, colon), key: pair.slice(colon + 1) } };
}
