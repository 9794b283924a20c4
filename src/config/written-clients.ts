import { Network } from '../base/network.ts';
import { NetworkMap } from '../base/network-map.ts';
import type { Path } from './issues.ts';
import { itemsAt, keysAt, textAt, valueAt } from './tree.ts';

/** A client of an unchecked tree; its values may be invalid. */
export interface WrittenClient {
  readonly index: number;
  readonly path: Path;
  readonly id: string | undefined;
  /** Hashes of its API keys, in lower case. */
  readonly hashes: readonly string[];
  /** Undefined if there are none, or one is invalid. */
  readonly networks: readonly Network[] | undefined;
  /** True if `identify` has addresses, valid or not. */
  readonly asksForAddress: boolean;
  /** The other conditions, each value with its path under `identify`. */
  readonly facts: ReadonlySet<string>;
}

/** Reads the clients of an unchecked tree. */
export function readClients(tree: unknown): WrittenClient[] {
  return itemsAt(tree, ['clients']).map((_, index) => {
    const path = ['clients', index];
    const identify = [...path, 'identify'];
    const asked = keysAt(tree, identify);
    const facts = asked
      .filter((key) => key !== 'addresses')
      .flatMap((key) => [...factsIn(valueAt(tree, [...identify, key]), [key])]);
    return {
      index,
      path,
      id: textAt(tree, [...path, 'id']),
      hashes: hashesAt(tree, [...identify, 'apiKeySha256']),
      networks: networksAt(tree, [...identify, 'addresses']),
      asksForAddress: asked.includes('addresses'),
      facts: new Set(facts),
    };
  });
}

/**
 * The clients before the current one. Each is indexed by its rarest fact or network, so that clients that
 * could cover another one are found without a scan.
 */
export class EarlierClients {
  readonly ids = new Set<string>();
  readonly #owners = new Map<string, WrittenClient>();
  readonly #byFact = new Map<string, WrittenClient[]>();
  readonly #byNetwork = new NetworkMap<WrittenClient>();
  /** Number of clients with a fact or a network. */
  readonly #shares = new Map<string, number>();

  /** @param all the clients that will be added */
  constructor(all: readonly WrittenClient[]) {
    for (const { facts, networks = [] } of all) {
      for (const mark of [...facts, ...networks.map(String)]) {
        this.#shares.set(mark, (this.#shares.get(mark) ?? 0) + 1);
      }
    }
  }

  add(client: WrittenClient): void {
    const { id, hashes, networks, facts } = client;
    if (id !== undefined) this.ids.add(id);
    for (const hash of hashes) if (!this.#owners.has(hash)) this.#owners.set(hash, client);
    const share = (mark: string): number => this.#shares.get(mark) ?? 0;
    const [rarest] = [...facts].sort((a, b) => share(a) - share(b));
    const nearby = Math.max(...(networks ?? []).map((network) => share(String(network))));
    if (networks !== undefined && (rarest === undefined || nearby < share(rarest))) {
      for (const network of networks) this.#byNetwork.add(network, client);
    } else if (rarest !== undefined) {
      const filed = this.#byFact.get(rarest);
      if (filed === undefined) this.#byFact.set(rarest, [client]);
      else filed.push(client);
    }
  }

  /** Returns the first client with one of these API keys. */
  ownerOf(hashes: readonly string[]): WrittenClient | undefined {
    return first(hashes.flatMap((hash) => this.#owners.get(hash) ?? []));
  }

  /** Returns the first client that matches every request that `later` matches. */
  covering(later: WrittenClient): WrittenClient | undefined {
    const found: WrittenClient[] = [];
    for (const fact of later.facts) {
      const covering = this.#byFact.get(fact)?.find((each) => covers(each, later));
      if (covering !== undefined) found.push(covering);
    }
    const [network] = later.networks ?? [];
    if (network !== undefined) {
      for (const filed of this.#byNetwork.holding(network.first, network.bits)) {
        const covering = filed.find((each) => covers(each, later));
        if (covering !== undefined) found.push(covering);
      }
    }
    return first(found);
  }
}

function first(clients: readonly WrittenClient[]): WrittenClient | undefined {
  return clients.toSorted((a, b) => a.index - b.index)[0];
}

function covers(earlier: WrittenClient, later: WrittenClient): boolean {
  const { facts, networks, asksForAddress } = earlier;
  if (facts.size === 0 && !asksForAddress) return false;
  for (const fact of facts) if (!later.facts.has(fact)) return false;
  return !asksForAddress || coversNetworks(networks, later.networks);
}

function coversNetworks(wide: WrittenClient['networks'], narrow: WrittenClient['networks']): boolean {
  if (wide === undefined || narrow === undefined) return false;
  return narrow.every((network) => wide.some((other) => other.covers(network)));
}

function* factsIn(value: unknown, path: Path): Generator<string> {
  if (typeof value !== 'object' || value === null) yield JSON.stringify([...path, value ?? null]);
  else for (const [key, inner] of Object.entries(value)) yield* factsIn(inner, [...path, key]);
}

function hashesAt(tree: unknown, path: Path): string[] {
  return [valueAt(tree, path), ...itemsAt(tree, path)]
    .filter((hash) => typeof hash === 'string')
    .map((hash) => hash.toLowerCase());
}

function networksAt(tree: unknown, path: Path): Network[] | undefined {
  const networks = itemsAt(tree, path).map(readNetwork);
  return networks.length > 0 && networks.every((network) => network !== undefined) ? networks : undefined;
}

/** Undefined if it is not a network. */
export function readNetwork(written: unknown): Network | undefined {
  try {
    return Network.parse(String(written));
  } catch {
    return undefined;
  }
}
