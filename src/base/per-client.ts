/** States above which unused ones are dropped. */
const DROP_ABOVE = 4096;

/** State of one client. */
export interface ClientState {
  /** True if nothing would be lost with it. */
  readonly isUnused: boolean;
}

/**
 * State for each client, kept between its requests: entries of a Map that came and went with each request would become
 * old garbage, since an outgrown table of a Map refers to the next one. There are as many clients as the configuration
 * has; unused states are dropped, so that clients of former configurations do not add up.
 */
export class PerClient<T extends ClientState> {
  readonly #create: () => T;
  readonly #states = new Map<string, T>();
  #dropAt = DROP_ABOVE;

  constructor(create: () => T) {
    this.#create = create;
  }

  /** Returns the state of a client; undefined: it has none. */
  find(client: string): T | undefined {
    return this.#states.get(client);
  }

  /** Returns the state of a client, a new one if it has none. */
  of(client: string): T {
    return this.#states.get(client) ?? this.#add(client);
  }

  #add(client: string): T {
    if (this.#states.size >= this.#dropAt) this.#dropUnused();
    const state = this.#create();
    this.#states.set(client, state);
    return state;
  }

  #dropUnused(): void {
    for (const [client, state] of this.#states) if (state.isUnused) this.#states.delete(client);
    // If most states are in use, the next look at all of them must not come soon.
    this.#dropAt = Math.max(DROP_ABOVE, 2 * this.#states.size);
  }
}
