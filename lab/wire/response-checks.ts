import { type ErrorCode, errorKinds } from '../../src/base/errors.ts';
import { type RawResponse, valuesOf } from '../../test/support/raw-client.ts';

const KINDS = new Map(errorKinds());

const UUID = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/;

/** Fields that say how the gateway authenticates, or that are of its own session with the upstream. */
const NOT_FOR_CLIENTS = [
  'authorization',
  'www-authenticate',
  'authentication-info',
  'proxy-authenticate',
  'set-cookie',
];

/** The rule for every response to a client that this one breaks; undefined: none. */
export function checkForClient(answer: RawResponse): string | undefined {
  const isProblem = valuesOf(answer, 'content-type')[0] === 'application/problem+json';
  const names = [...answer.headers, ...answer.trailers].map(([name]) => name.toLowerCase());
  // The gateway names the schemes by which clients identify themselves.
  const found = names.find(
    (name) => NOT_FOR_CLIENTS.includes(name) && !(isProblem && name === 'www-authenticate'),
  );
  if (found !== undefined) return `a client got the header ${found}`;
  return answer.status === 401 && !isProblem ? 'a client got the 401 of the upstream' : undefined;
}

/**
 * The code of a problem document, undefined for HEAD; or what is wrong with it.
 * @param requestId undefined: any
 */
export function checkProblem(
  answer: RawResponse,
  method: string,
  requestId: string | undefined,
): { readonly code: ErrorCode | undefined } | { readonly fault: string } {
  const fault = (text: string) => ({
    fault: `${text}: ${answer.status} ${JSON.stringify(answer.headers)} ${answer.body}`,
  });
  const [id] = valuesOf(answer, 'x-request-id');
  if (valuesOf(answer, 'content-type')[0] !== 'application/problem+json')
    return fault('a response of nobody');
  if (requestId !== undefined && id !== requestId && !isUnreadable(answer))
    return fault(`a response with another request id than ${requestId}`);
  // A response to HEAD has no document.
  if (method === 'HEAD' && answer.body.length === 0) return { code: undefined };
  const { code, status, requestId: inBody } = documentOf(answer);
  if (KINDS.get(code)?.status !== answer.status || status !== answer.status)
    return fault('a code that does not fit the status');
  if (inBody !== id) return fault('a document with another request id than its header');
  return code === 'internal-error' ? fault('an internal error') : { code };
}

const UNREADABLE: ReadonlySet<number> = new Set([400, 501, 414, 431]);

/** True if it may be that the gateway could not read the request, and so not its id. */
function isUnreadable(answer: RawResponse): boolean {
  const closes = valuesOf(answer, 'connection').includes('close');
  return closes && UNREADABLE.has(answer.status) && UUID.test(valuesOf(answer, 'x-request-id')[0] ?? '');
}

/** A document of no status if it is no JSON. */
function documentOf({ body }: RawResponse): { code: ErrorCode; status?: number; requestId?: string } {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return { code: 'internal-error' };
  }
}

/** Text for people: quoted, with repetitions shortened. */
export function shown(text: string): string {
  return JSON.stringify(
    text.replace(/(.{1,12}?)\1{20,}/gs, (all, part: string) => `${part}… (${all.length} bytes)`),
  );
}
