import type { Config } from '../config/schema.ts';
import { withoutPrefix } from '../policy/rewrite.ts';
import { withSite } from '../policy/site.ts';

type DeploymentSettings = Config['deployments'][string];

/** A request that does nothing. */
export interface Probe {
  readonly method: string;
  readonly target: string;
}

/**
 * What the configuration says does nothing, or a HEAD of an operation or of whatever comes first under the prefix.
 * `site`: named in it, if it is not yet.
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
