/** Returns the entry of this name; undefined: there is none, whatever every object inherits, such as `constructor`. */
export function ownEntry<T>(entries: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(entries, name) ? entries[name] : undefined;
}
