/** Returns the value of a key, which is made at first: `getOrInsertComputed` of maps, which Node.js 24 does not have. */
export function getOrInsert<Key, Value>(
  map: { get(key: Key): Value | undefined; set(key: Key, value: Value): unknown },
  key: Key,
  make: () => Value,
): Value {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}

/** Writes the value as the newest of the map. With more than `atMost` keys, the one that was written longest ago goes. */
export function putBounded<K, T>(map: Map<K, T>, key: K, value: T, atMost: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= atMost) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    return;
  }
}

/** Returns the entry of this name; undefined: there is none, whatever every object inherits, such as `constructor`. */
export function ownEntry<T>(entries: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(entries, name) ? entries[name] : undefined;
}
