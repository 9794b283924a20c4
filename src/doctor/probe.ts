import type { Config } from '../config/schema.ts';
import { withoutPrefix, withSite } from '../policy/path.ts';

type DeploymentSettings = Config['deployments'][string];

/** A request without side effects. */
export interface Probe {
  readonly method: string;
  readonly target: string;
}

/**
 * Returns the request of `renewAhead` if configured, else a HEAD of a listed GET operation, or of the
 * deployment's prefix. Adds `site` if the request does not contain one.
 */
export function probeOf(settings: DeploymentSettings, site: string | undefined): Probe {
  const { siteParameter } = settings;
  const { method, target } = withoutSite(settings);
  const query = new URLSearchParams(target.split('?')[1] ?? '');
  const missing = site !== undefined && siteParameter !== undefined && !query.has(siteParameter);
  return { method, target: missing ? withSite(target, siteParameter, site) : target };
}

function withoutSite({ digest: { renewAhead }, operations, match, rewrite }: DeploymentSettings): Probe {
  if (typeof renewAhead === 'object') return { method: renewAhead.method, target: renewAhead.path };
  const readable = Object.values(operations).find(
    ({ method, path }) => method === 'GET' && !path.includes('{'),
  );
  const first = withoutPrefix(match.pathPrefix ?? '/', rewrite?.stripPrefix);
  return { method: 'HEAD', target: readable?.path ?? first };
}
