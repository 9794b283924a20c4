/**
 * A target (path and query, byte for byte) without the prefix that only clients see; as it is when it does
 * not start with it, since a request that names the upstream or a host of its own needs none.
 */
export function withoutPrefix(target: string, prefix: string | undefined): string {
  if (prefix === undefined || !target.startsWith(prefix)) return target;
  const rest = target.slice(prefix.length);
  if (rest === '' || rest.startsWith('?')) return `/${rest}`;
  return rest.startsWith('/') ? rest : target;
}
