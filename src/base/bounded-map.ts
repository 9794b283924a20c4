/** Writes the value as the newest of the map. With more than `atMost` keys, the one that was written longest ago goes. */
export function putBounded<T>(map: Map<string, T>, key: string, value: T, atMost: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= atMost) return;
  const [oldest] = map.keys();
  if (oldest !== undefined) map.delete(oldest);
}
