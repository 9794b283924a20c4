import { createHash } from 'node:crypto';
import { isFieldValue } from '../base/raw-headers.ts';
import { failure, type Reply, type SimulatedRequest } from './messages.ts';

const block = Buffer.alloc(65_536, 'digest gateway ');
const json = { 'content-type': 'application/json' };
const text = { 'content-type': 'text/plain;charset=UTF-8' };
const maxBytes = 2 ** 40;

/** Responds on paths for tests of a gateway; undefined for any other path. */
export async function respondToTestPath(request: SimulatedRequest): Promise<Reply | undefined> {
  const [, name = '', argument = ''] = request.path.split('/');
  if (name === 'echo') return echo(request);
  if (name === 'bytes') return bytes(argument, request.query.has('chunked'));
  if (name === 'status') return status(argument);
  if (name === 'headers') return headers(request.query);
  if (name === 'early-hints') {
    return {
      status: 200,
      headers: text,
      body: Buffer.from('after 103\n'),
      earlyLink: '</style.css>; rel=preload',
    };
  }
  return undefined;
}

/** Returns the request as received; the body as length and hash. */
async function echo({ request, body }: SimulatedRequest): Promise<Reply> {
  const { length, sha256 } = await body.summary('sha256');
  const { method, url, rawHeaders, rawTrailers } = request;
  const seen = { method, url, rawHeaders, rawTrailers, body: { length, sha256 } };
  return { status: 200, headers: json, body: Buffer.from(`${JSON.stringify(seen)}\n`) };
}

/** Returns `argument` bytes, at most one block in memory; if chunked, with their SHA-256 as a trailer. */
function bytes(argument: string, chunked: boolean): Reply {
  const length = Number(argument);
  if (!Number.isInteger(length) || length < 0 || length > maxBytes) return failure(400, 400, 'Not a length.');
  const headers = { 'content-type': 'application/octet-stream' };
  if (!chunked)
    return { status: 200, headers: { ...headers, 'content-length': length }, body: blocks(length) };
  const hash = createHash('sha256');
  return {
    status: 200,
    headers: { ...headers, trailer: 'X-Checksum' },
    body: blocks(length, (chunk) => hash.update(chunk)),
    trailers: () => ({ 'X-Checksum': hash.digest('hex') }),
  };
}

async function* blocks(length: number, seen?: (chunk: Buffer) => void): AsyncGenerator<Buffer> {
  for (let left = length; left > 0; left -= block.length) {
    const chunk = left < block.length ? block.subarray(0, left) : block;
    seen?.(chunk);
    yield chunk;
  }
}

function status(argument: string): Reply {
  const code = Number(argument);
  if (!Number.isInteger(code) || code < 200 || code > 599) return failure(400, 400, 'Not a status.');
  return { status: code, headers: text, body: Buffer.from(`status ${code}\n`) };
}

/** Sets every query parameter as a response header; a repeated one becomes several lines. */
function headers(query: URLSearchParams): Reply {
  const fields: Record<string, string[]> = {};
  for (const name of query.keys()) fields[name] = query.getAll(name);
  if (!Object.values(fields).flat().every(isFieldValue)) return failure(500, 500, 'Not a value of a field.');
  return { status: 200, headers: { ...text, ...fields }, body: Buffer.from('headers\n') };
}
