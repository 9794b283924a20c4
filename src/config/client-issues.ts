import { getOrInsert } from '../base/maps.ts';
import { type Network, NetworkMap } from '../base/network.ts';
import { formatInstant } from '../base/units.ts';
import { type ApiKey, apiKeysOf, keyName, SHOWN_DIGITS } from './api-keys.ts';
import type { Client } from './clients.ts';
import {
  type Accepted,
  type CrossIssue,
  isGiven,
  keyList,
  listNames,
  repeatedIssues,
} from './cross-check.ts';
import { formatPath, type Issue, type Path } from './issues.ts';
import type { Config } from './schema.ts';

/** SHA-256 of the empty text, which a shell produces from an unset variable. */
const SHA256_OF_NOTHING = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

/**
 * Checks clients against each other and other sections. `exposed`: other machines can reach the data plane.
 */
export function* clientIssues(config: Accepted<Config>, exposed: boolean): Generator<CrossIssue> {
  yield* lackingClientIssues(config, exposed);
  const twice = 'is listed twice: keep one of the two';
  yield* repeatedIssues(config.jwt?.issuers, 'issuer', ['jwt', 'issuers'], twice);
  const clients = (config.clients ?? []).map((client, index) => new ClientConditions(client, index));
  const earlier = new EarlierClients(clients);
  const issuers = knownIssuers(config);
  for (const conditions of clients) {
    const { path, client } = conditions;
    yield* earlierClientIssues(conditions, earlier);
    yield* identifyIssues(config, path, client.identify);
    yield* issuerNameIssues(issuers, path, client.identify?.jwt?.issuer);
    yield* allowIssues(config, path, client.allow);
    earlier.add(conditions);
  }
}

function* lackingClientIssues(
  { clients, anonymous, deployments = {} }: Accepted<Config>,
  exposed: boolean,
): Generator<CrossIssue> {
  // A configuration without deployments has an issue of its own.
  if (clients?.length !== 0 || anonymous !== false || Object.keys(deployments).length === 0) return;
  const instead = exposed ? '' : ', or set anonymous to true to serve everyone on this machine';
  yield {
    path: ['clients'],
    lacking: true,
    message: `so no request would be served: describe a client (digest-gateway client add NAME prints the lines)${instead}`,
  };
}

/** Returns the names of all issuers; undefined if one of them was refused. */
function knownIssuers(config: Accepted<Config>): ReadonlySet<string> | undefined {
  if (!('jwt' in config)) return new Set();
  const names = config.jwt?.issuers?.map((issuer) => issuer?.issuer) ?? [undefined];
  const known = names.filter((name) => name !== undefined);
  return known.length === names.length ? new Set(known) : undefined;
}

function* issuerNameIssues(
  issuers: ReadonlySet<string> | undefined,
  client: Path,
  issuer: string | undefined,
): Generator<CrossIssue> {
  if (issuers === undefined || issuer === undefined || issuers.has(issuer)) return;
  const remedy = issuers.size === 0 ? 'describe it there' : `there are ${listNames([...issuers])}`;
  yield {
    path: [...client, 'identify', 'jwt', 'issuer'],
    message: `names an issuer that is not under jwt.issuers: ${remedy}`,
  };
}

function* earlierClientIssues(conditions: ClientConditions, earlier: EarlierClients): Generator<CrossIssue> {
  const { path, client } = conditions;
  const namesake = client.id === undefined ? undefined : earlier.ids.get(client.id);
  if (namesake !== undefined) {
    const message = `is the id of ${formatPath(namesake)}, too: give each its own`;
    yield { path: [...path, 'id'], message, other: [...namesake, 'id'] };
  }
  yield* apiKeyIssues(conditions, earlier);
  const covering = earlier.covering(conditions);
  if (covering !== undefined) {
    yield {
      path,
      message: `is never reached: every request that fits it also fits ${covering.name} before it; put it first, or let it require more`,
    };
  }
}

function* apiKeyIssues({ path, keys }: ClientConditions, earlier: EarlierClients): Generator<CrossIssue> {
  const hashes = new Set<string>();
  const names = new Set<string>();
  for (const key of keys) {
    const place = [...path, 'identify', ...key.path];
    const owner = earlier.ownerOf(key);
    if (owner !== undefined) {
      const hash = key.sha256.slice(0, SHOWN_DIGITS);
      const message = `is the key of ${owner.name}, too (${hash}…): make one for each with digest-gateway client add NAME`;
      yield { path: place, message, other: owner.placeOf(key) };
    } else if (key.sha256 === SHA256_OF_NOTHING) {
      const message = 'is the SHA-256 of nothing: make a key with digest-gateway client add NAME';
      yield { path: place, message };
    } else if (hashes.has(key.sha256)) {
      yield { path: place, message: 'is listed twice for this client: keep one of the two' };
    } else if (names.has(keyName(key))) {
      const message = 'has the note of another key of this client: give each its own';
      yield { path: place, message };
    }
    hashes.add(key.sha256);
    names.add(keyName(key));
  }
}

function* identifyIssues(
  { listen }: Accepted<Config>,
  client: Path,
  identify: Accepted<Client['identify']> | undefined,
): Generator<CrossIssue> {
  if (identify === undefined) return;
  const path = [...client, 'identify'];
  const verifies =
    listen?.some((each) => isGiven(each, 'tls') && isGiven(each?.tls, 'clientCaFile')) !== false;
  if ('certificate' in identify && !verifies) {
    yield {
      path: [...path, 'certificate'],
      message: 'needs listen.tls.clientCaFile: name the authority that signs the certificates of clients',
    };
  }
  const everywhere = identify.addresses?.some((network) => network?.bits === 0) === true;
  if (everywhere && Object.keys(identify).length === 1) {
    yield {
      path: [...path, 'addresses'],
      message:
        'is every address, so that this client would be everyone: let it ask for more, or name its networks',
    };
  }
}

/** Checks that the names in a client's rules exist. */
function* allowIssues(
  { deployments }: Accepted<Config>,
  client: Path,
  allow: Accepted<Client['allow']> | undefined,
): Generator<CrossIssue> {
  if (deployments === undefined) return;
  for (const [index, rule] of (allow ?? []).entries()) {
    if (rule?.deployment === undefined) continue;
    const path = [...client, 'allow', index];
    if (!Object.hasOwn(deployments, rule.deployment)) {
      const message = `names a deployment that does not exist: deployments has ${keyList(deployments, rule.deployment)}`;
      yield { path: [...path, 'deployment'], message };
      continue;
    }
    const deployment = deployments[rule.deployment];
    if (deployment === undefined) continue;
    const owner = `the deployment ${rule.deployment}`;
    const sites = 'sites' in deployment ? deployment.sites : {};
    yield* nameIssues(rule.sites, [...path, 'sites'], { kind: 'a site', owner, known: sites });
    const known = deployment.operations;
    yield* nameIssues(rule.operations, [...path, 'operations'], { kind: 'an operation', owner, known });
  }
}

const DAY_MS = 86_400_000;
const MAX_OBSERVED_DAYS = 90;

/**
 * Finds clients whose rules are observed for too long. `now`: Unix milliseconds, by the latest time that is known: a clock
 * that is behind must not refuse a date that was near enough when it was written.
 */
export function observationIssues(clients: readonly Client[], now: number): Issue[] {
  const latest = now + MAX_OBSERVED_DAYS * DAY_MS;
  return clients.flatMap(({ mode }, index) => {
    if (mode === undefined || mode.until <= latest) return [];
    const message = `is more than ${MAX_OBSERVED_DAYS} days ahead, and the rules of this client protect nothing until then: name a day up to ${formatInstant(latest - (latest % DAY_MS))}`;
    return [{ path: ['clients', index, 'mode', 'until'], message }];
  });
}

interface Named {
  /** A noun with its article, for messages. */
  readonly kind: string;
  /** The mapping whose keys are the valid names; undefined if it was refused. */
  readonly known: object | undefined;
  readonly owner: string;
}

function* nameIssues(
  names: Client['allow'][number]['sites'] | undefined,
  path: Path,
  { kind, known, owner }: Named,
): Generator<CrossIssue> {
  if (names === undefined || names === '*' || known === undefined) return;
  for (const name of names) {
    if (Object.hasOwn(known, name)) continue;
    const list = keyList(known, name);
    yield {
      path,
      item: name,
      message:
        list === ''
          ? `names ${kind}, and ${owner} describes none: write "*"`
          : `names ${kind} that does not exist: ${owner} has ${list}`,
    };
  }
}

/** The conditions under which a request is from a client, in a form that can be compared. */
class ClientConditions {
  readonly index: number;
  readonly path: Path;
  readonly client: Partial<Accepted<Client>>;
  /** Its API keys, each with its path below `identify`. */
  readonly keys: readonly (ApiKey & { readonly path: Path })[];
  /** Undefined without addresses, or if one was refused. */
  readonly networks: readonly Network[] | undefined;
  /** Every condition but the addresses: a value with its path. A refused one equals no other. */
  readonly facts: ReadonlySet<string>;

  constructor(client: Accepted<Client> | undefined, index: number) {
    const { addresses, ...others } = client?.identify ?? {};
    const networks = addresses?.filter((network) => network !== undefined);
    this.index = index;
    this.path = ['clients', index];
    this.client = client ?? {};
    this.keys = [...apiKeysOf(others)];
    this.networks = networks?.length === addresses?.length ? networks : undefined;
    this.facts = new Set(factsIn(others, [], index));
  }

  /** The id, or the path of a client without a valid one. */
  get name(): string {
    return this.client.id ?? `clients[${this.index}]`;
  }

  /** Returns the path of one of its API keys. */
  placeOf({ sha256 }: ApiKey): Path {
    const own = this.keys.find((key) => key.sha256 === sha256);
    return [...this.path, 'identify', ...(own?.path ?? [])];
  }

  /**
   * True if every request that matches `other` matches this client, too. A client matches no proof that it does not
   * list.
   */
  covers(other: ClientConditions): boolean {
    const { identify = {} } = this.client;
    const asksForAddress = 'addresses' in identify;
    for (const kind of Object.keys(other.client.identify ?? {})) {
      if (kind !== 'addresses' && !(kind in identify)) return false;
    }
    if (this.facts.size === 0 && !asksForAddress) return false;
    for (const fact of this.facts) if (!other.facts.has(fact)) return false;
    return !asksForAddress || coversNetworks(this.networks, other.networks);
  }
}

/**
 * The clients before the current one. Each is indexed by its rarest fact or network, so that clients that
 * could cover another one are found without a scan.
 */
class EarlierClients {
  /** Paths by id. */
  readonly ids = new Map<string, Path>();
  readonly #owners = new Map<string, ClientConditions>();
  readonly #byFact = new Map<string, ClientConditions[]>();
  readonly #byNetwork = new NetworkMap<ClientConditions>();
  /** Number of clients with a fact or a network. */
  readonly #shares = new Map<string, number>();

  /** @param all the clients that will be added */
  constructor(all: readonly ClientConditions[]) {
    for (const { facts, networks = [] } of all) {
      for (const mark of [...facts, ...networks.map(String)]) {
        this.#shares.set(mark, (this.#shares.get(mark) ?? 0) + 1);
      }
    }
  }

  add(added: ClientConditions): void {
    const { client, keys, networks, facts } = added;
    if (client.id !== undefined && !this.ids.has(client.id)) this.ids.set(client.id, added.path);
    for (const { sha256 } of keys) if (!this.#owners.has(sha256)) this.#owners.set(sha256, added);
    const share = (mark: string): number => this.#shares.get(mark) ?? 0;
    const [rarest] = [...facts].sort((a, b) => share(a) - share(b));
    const nearby = Math.max(...(networks ?? []).map((network) => share(String(network))));
    if (networks !== undefined && (rarest === undefined || nearby < share(rarest))) {
      for (const network of networks) this.#byNetwork.add(network, added);
    } else if (rarest !== undefined) {
      getOrInsert(this.#byFact, rarest, (): ClientConditions[] => []).push(added);
    }
  }

  /** Returns the first client with this API key. */
  ownerOf({ sha256 }: ApiKey): ClientConditions | undefined {
    return this.#owners.get(sha256);
  }

  /** Returns the first client that matches every request that `later` matches. */
  covering(later: ClientConditions): ClientConditions | undefined {
    const candidates = [...later.facts].map((fact) => this.#byFact.get(fact) ?? []);
    const [network] = later.networks ?? [];
    const around = network === undefined ? [] : this.#byNetwork.holding(network.first, network.bits);
    return first([...candidates, ...around].map((filed) => filed.find((each) => each.covers(later))));
  }
}

function first(found: readonly (ClientConditions | undefined)[]): ClientConditions | undefined {
  return found.filter((client) => client !== undefined).sort((a, b) => a.index - b.index)[0];
}

function coversNetworks(wide: ClientConditions['networks'], narrow: ClientConditions['networks']): boolean {
  if (wide === undefined || narrow === undefined) return false;
  return narrow.every((network) => wide.some((other) => other.covers(network)));
}

function* factsIn(value: unknown, path: Path, index: number): Generator<string> {
  const isList = Array.isArray(value);
  if (value === undefined || (isList && value.includes(undefined))) {
    yield JSON.stringify([...path, 'refused', index]);
  } else if (isList) {
    // One of the items has to hold, so that only an equal list asks for the same.
    yield JSON.stringify([...path, value.toSorted()]);
  } else if (typeof value === 'object' && value !== null) {
    for (const [key, inner] of Object.entries(value)) yield* factsIn(inner, [...path, key], index);
  } else {
    yield JSON.stringify([...path, value]);
  }
}
