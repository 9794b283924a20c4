/**
 * Removes the prefix that only clients see from a target (path and query). Targets without it are returned
 * unchanged, because requests for the upstream's URL or a deployment's own host need no prefix.
 */
export function withoutPrefix(target: string, prefix: string | undefined): string {
  if (prefix === undefined || !target.startsWith(prefix)) return target;
  const rest = target.slice(prefix.length);
  if (rest === '' || rest.startsWith('?')) return `/${rest}`;
  return rest.startsWith('/') ? rest : target;
}
