import { METHODS } from 'node:http';
import { type ReadRequest, valuesOf } from '../wire/request-reading.ts';

/** Paths of the deployment that serves everything. */
export const OPEN_PREFIX = '/open/';
/** The one operation, a GET, of the deployment that serves nothing else. */
export const CLOSED_PATH = '/closed/items';
/** Requests under this path are to be served by nobody. */
export const HIDDEN_PREFIX = '/closed/hidden-';
/** `body.max` and `body.replayUpTo` of the gateway. */
export const LARGEST_BODY = 64 * 1024;
export const KEPT_BODY = 4 * 1024;
/** `listen.limits.headerSize` of the gateway. */
export const LARGEST_HEAD = 16 * 1024;

const HOST = /^(?:\[[\da-f:.]+\]|[\w\-.~!$&'()*+,;=%]*)(?::\d*)?$/i;
/** Methods of other protocols in the list of Node.js. */
const NOT_HTTP = new Set(['SOURCE']);

/** Path and query that the upstream is to get; undefined: no target of a request that may reach it. */
export function upstreamTarget({ target }: ReadRequest, host: string): string | undefined {
  if (target.includes('#')) return undefined;
  if (target.startsWith('/')) return target;
  const [, authority, path = ''] = /^https?:\/\/([^/?]*)(.*)$/i.exec(target) ?? [];
  if (authority?.toLowerCase() !== host) return undefined;
  return path.startsWith('/') ? path : `/${path}`;
}

/**
 * True if a request must not reach the upstream. It may be that the gateway refuses more: what servers read
 * differently.
 */
export function isForbidden(request: ReadRequest, host: string): boolean {
  const target = upstreamTarget(request, host);
  return (
    target === undefined ||
    isMalformed(request) ||
    presentsIdentity(request) ||
    isForbiddenMethod(request) ||
    isForbiddenTarget(request, target)
  );
}

function isMalformed(request: ReadRequest): boolean {
  const [host, ...hosts] = valuesOf(request, 'host');
  return (
    (host === undefined && request.version === '1.1') ||
    (host !== undefined && !HOST.test(host)) ||
    hosts.length > 0 ||
    /["\\\x80-\xff]/.test(request.target)
  );
}

/** True if it presents an identity, or what cannot be read as one: the client has its address only. */
function presentsIdentity(request: ReadRequest): boolean {
  if (valuesOf(request, 'x-api-key').length > 0) return true;
  return ['authorization', 'proxy-authorization'].some((name) => {
    const [value, ...others] = valuesOf(request, name);
    if (value === undefined) return false;
    const [scheme = ''] = value.split(' ', 1);
    return others.length > 0 || scheme.toLowerCase() === 'basic' || !/^[!#$%&'*+.^_`|~\w-]+$/.test(scheme);
  });
}

function isForbiddenMethod(request: ReadRequest): boolean {
  const { method, version } = request;
  if (!METHODS.includes(method) || NOT_HTTP.has(method) || method === 'CONNECT' || method === 'TRACE')
    return true;
  if (method === 'OPTIONS' && valuesOf(request, 'max-forwards').some((value) => /^0+$/.test(value)))
    return true;
  const lists = (name: string, option: string): boolean =>
    valuesOf(request, name)
      .join(',')
      .split(',')
      .some((item) => item.split('/', 1)[0]?.trim().toLowerCase() === option);
  return version === '1.1' && lists('upgrade', 'websocket') && lists('connection', 'upgrade');
}

function isForbiddenTarget({ method }: ReadRequest, target: string): boolean {
  const [path = ''] = target.split('?', 1);
  if (path === CLOSED_PATH) return method !== 'GET' && method !== 'HEAD';
  return !path.startsWith(OPEN_PREFIX) || leadsOut(path);
}

/** True if a server could read a path of the open deployment as one that is not. */
function leadsOut(path: string): boolean {
  let text = path;
  for (let pass = 0; pass < 3; pass += 1) {
    text = text.replace(/%([\da-f]{2})/gi, (_, digits: string) =>
      String.fromCharCode(Number.parseInt(digits, 16)),
    );
  }
  const kept: string[] = [];
  for (const segment of text.replaceAll('\\', '/').toLowerCase().split('/')) {
    if (segment === '..') kept.pop();
    else if (segment !== '' && segment !== '.') kept.push(segment);
  }
  return kept[0] !== 'open';
}
