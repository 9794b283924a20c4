import { type Network, NetworkMap } from '../base/network.ts';
import type { Client } from './clients.ts';
import type { Accepted } from './cross-check.ts';
import type { Path } from './issues.ts';

/** The conditions under which a request is from a client, in a form that can be compared. */
export class ClientConditions {
  readonly index: number;
  readonly path: Path;
  readonly client: Partial<Accepted<Client>>;
  /** Hashes of its API keys. */
  readonly hashes: readonly string[];
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
    this.hashes = others.apiKeySha256?.filter((hash) => hash !== undefined) ?? [];
    this.networks = networks?.length === addresses?.length ? networks : undefined;
    this.facts = new Set(factsIn(others, [], index));
  }

  /** The id, or the path of a client without a valid one. */
  get name(): string {
    return this.client.id ?? `clients[${this.index}]`;
  }

  /** True if every request that matches `other` matches this client, too. A client matches no proof that it does not list. */
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
export class EarlierClients {
  readonly ids = new Set<string>();
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
    const { client, hashes, networks, facts } = added;
    if (client.id !== undefined) this.ids.add(client.id);
    for (const hash of hashes) if (!this.#owners.has(hash)) this.#owners.set(hash, added);
    const share = (mark: string): number => this.#shares.get(mark) ?? 0;
    const [rarest] = [...facts].sort((a, b) => share(a) - share(b));
    const nearby = Math.max(...(networks ?? []).map((network) => share(String(network))));
    if (networks !== undefined && (rarest === undefined || nearby < share(rarest))) {
      for (const network of networks) this.#byNetwork.add(network, added);
    } else if (rarest !== undefined) {
      const filed = this.#byFact.get(rarest);
      if (filed === undefined) this.#byFact.set(rarest, [added]);
      else filed.push(added);
    }
  }

  /** Returns the first client with one of these API keys. */
  ownerOf(hashes: readonly string[]): ClientConditions | undefined {
    return first(hashes.map((hash) => this.#owners.get(hash)));
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
