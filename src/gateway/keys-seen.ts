/** When a key was last seen, in Unix milliseconds. An object, which a request changes instead of making another one. */
interface Seen {
  at: number;
}

export type SeenKey = readonly [client: string, key: string, lastSeen: number];

/** When requests with the API keys of a client ended last, since the start. Clients and keys are of the configuration. */
export class KeysSeen {
  readonly #clients = new Map<string, Map<string, Seen>>();

  /** Notes that a request with this key of the client has ended. */
  happened(client: string, key: string): void {
    this.#seen(client, key).at = Date.now();
  }

  /** Adds those that another process has seen. */
  keep(seen: readonly SeenKey[]): void {
    for (const [client, key, lastSeen] of seen) {
      const known = this.#seen(client, key);
      known.at = Math.max(known.at, lastSeen);
    }
  }

  get all(): SeenKey[] {
    return Array.from(this.#clients, ([client, keys]) =>
      Array.from(keys, ([key, { at }]): SeenKey => [client, key, at]),
    ).flat();
  }

  /** The keys of a client that were seen. */
  of(client: string): { readonly name: string; readonly lastSeen: number }[] {
    return Array.from(this.#clients.get(client) ?? [], ([name, { at }]) => ({ name, lastSeen: at }));
  }

  #seen(client: string, key: string): Seen {
    return this.#clients.get(client)?.get(key) ?? this.#add(client, key);
  }

  #add(client: string, key: string): Seen {
    const seen = { at: 0 };
    const keys = this.#clients.get(client) ?? new Map<string, Seen>();
    this.#clients.set(client, keys.set(key, seen));
    return seen;
  }
}
