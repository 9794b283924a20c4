import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type BlockList, isIPv6, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { reportDefect } from '../base/expected-errors.ts';
import { isFieldValue } from '../base/raw-headers.ts';
import { type Authentication, type Decision, refusals } from './authentication.ts';
import { authenticationInfo, challengeLines, setCookieOf } from './challenges.ts';
import { deliver, hasBody, type ResponseTarget } from './delivery.ts';
import { type ConnectionFault, type Faults, FaultyConnection, type ReplyFault } from './faults.ts';
import { failure, type Reply, RequestBody, type SimulatedRequest, throttled } from './messages.ts';
import type { NonceUse } from './nonces.ts';
import { type Operation, perform } from './operations.ts';
import { addressList, type Behaviour, faultKinds } from './settings.ts';
import { Accounts, hashOf, type Proof } from './verification.ts';

/** Observes the requests of a deployment. */
export interface Observer {
  /** Called when the head of a request has arrived. */
  arrived(request: IncomingMessage): void;
  /** Called after the check of Digest. */
  decided(request: IncomingMessage, decision: Decision): void;
}

/** A request with everything that its response depends on. */
interface ExchangeDeps {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Sends 100 Continue to a client that waits for it. */
  readonly permit: () => void;
  readonly address: string;
  readonly raw: Socket | undefined;
  readonly rules: Rules;
  readonly operation: Operation;
  readonly authentication: Authentication;
  readonly tally: Tally;
  readonly now: () => number;
  readonly observer: Observer | undefined;
}

// 33 bytes, as in the specification.
const unauthorized = Buffer.from('Digest authentication is required');

/** One request from its head to the end of its response. */
export class Exchange {
  readonly #deps: ExchangeDeps;
  readonly #request: SimulatedRequest;
  readonly #target: ResponseTarget;

  constructor(deps: ExchangeDeps) {
    const { request, response, permit, raw, tally } = deps;
    const { method = '', url = '' } = request;
    const mark = url.indexOf('?');
    this.#deps = deps;
    this.#request = {
      request,
      method,
      path: mark < 0 ? url : url.slice(0, mark),
      query: new URLSearchParams(mark < 0 ? '' : url.slice(mark)),
      body: new RequestBody(request, permit),
    };
    const connection = new FaultyConnection(response, raw);
    const leaving = new AbortController();
    response.once('close', () => {
      if (!response.writableFinished && !connection.broken) tally.aborted += 1;
      leaving.abort();
    });
    // A client that leaves during a body must not end the process.
    response.on('error', () => {});
    response.setHeader('Server', 'Simulator');
    this.#target = { response, connection, head: method === 'HEAD', gone: leaving.signal };
  }

  /** Handles the request. Never rejects. */
  async run(): Promise<void> {
    const { response, connection, gone } = this.#target;
    try {
      await this.#respond();
    } catch (error) {
      reportDefect(error);
      if (gone.aborted || connection.broken) return;
      if (response.headersSent) connection.reset();
      else await deliver(failure(500, 500, 'The simulator failed.'), this.#target, {});
    }
  }

  async #respond(): Promise<void> {
    const { rules, tally } = this.#deps;
    tally.requests += 1;
    const decision = await this.#decide();
    const faults = rules.faults.take(decision.kind === 'accepted');
    for (const fault of Object.values(faults)) if (fault !== undefined) tally.faults[fault.kind] += 1;
    if (faults.delay !== undefined) await sleep(faults.delay.ms, undefined, { signal: this.#target.gone });
    if (faults.connection !== undefined) return this.#break(faults.connection);
    if (decision.kind === 'locked-out' && rules.behaviour.lockout?.answer === 'drop') {
      return this.#target.connection.reset();
    }
    const reply = faults.reply === undefined ? await this.#replyTo(decision) : this.#replaced(faults.reply);
    await deliver(reply, this.#target, faults);
  }

  async #decide(): Promise<Decision> {
    const { request, address, authentication, rules, tally, observer } = this.#deps;
    observer?.arrived(request);
    const decision = await authentication.decide(
      {
        method: this.#request.method,
        target: request.url ?? '',
        address,
        authorization: request.headers.authorization,
        cookie: request.headers.cookie,
        bodyHash: async (hash) => (await this.#request.body.summary(hash)).digest,
      },
      rules.behaviour,
      rules.accounts,
    );
    if (decision.kind === 'accepted') tally.accepted += 1;
    else if (decision.kind === 'asked') tally.unauthenticated += 1;
    else if (decision.kind === 'locked-out') tally.lockedOut += 1;
    else tally.refused[decision.reason] += 1;
    observer?.decided(request, decision);
    return decision;
  }

  #break(fault: ConnectionFault): void {
    const { connection } = this.#target;
    if (fault.kind === 'reset-before-head') connection.reset();
    else if (fault.kind === 'garbage') connection.garble();
  }

  /** Makes the response by the checks of the specification, in its order: Digest, address, site. */
  async #replyTo(decision: Decision): Promise<Reply> {
    const { rules, address, tally } = this.#deps;
    const { behaviour } = rules;
    if (decision.kind === 'locked-out') return failure(403, 403, 'Too many failures.');
    if (decision.kind === 'asked') return this.#challenge(false);
    if (decision.kind === 'refused') {
      return decision.reason === 'uri' && behaviour.uriMismatchStatus === 400
        ? failure(400, 400, 'The uri of the answer is not the request target.')
        : this.#challenge(decision.stale);
    }
    if (!rules.isRegistered(address)) {
      tally.refusedByAddress += 1;
      return this.#proven(
        failure(behaviour.addressRefusalStatus, 403, 'The address is not registered.'),
        decision.proof,
      );
    }
    return this.#proven(await this.#content(decision.proof), decision.proof);
  }

  async #content({ account }: Proof): Promise<Reply> {
    const { operation, rules, tally } = this.#deps;
    if (this.#request.path === operation.path) {
      const reply = perform(operation, this.#request, account.sites, rules.behaviour);
      if (reply !== 'wrong-site') return reply;
      tally.refusedBySite += 1;
      return failure(500, 500, 'The authentication information is incorrect.');
    }
    const reply = rules.behaviour.testPaths ? await respondToTestPath(this.#request) : undefined;
    return reply ?? failure(404, 404, 'No such operation.');
  }

  #challenge(stale: boolean): Reply {
    const { authentication, rules, address, tally } = this.#deps;
    const { behaviour } = rules;
    const { nonce, cookie, opaque } = authentication.issue(behaviour, address);
    tally.challenges += 1;
    if (stale) tally.stale += 1;
    return refusal({
      'www-authenticate': challengeLines(behaviour, nonce, stale, opaque),
      ...(behaviour.requireCookie && { 'set-cookie': setCookieOf(cookie) }),
    });
  }

  /** Adds Authentication-Info to a response, and the cookie of its nextnonce. */
  #proven(reply: Reply, proof: Proof): Reply {
    const { authentication, rules, address } = this.#deps;
    const { behaviour } = rules;
    if (behaviour.nextnonce === 'never' && behaviour.rspauth === 'none') return reply;
    const next = behaviour.nextnonce === 'always' ? authentication.issue(behaviour, address) : undefined;
    const sent = hasBody(reply.status, this.#target.head) ? reply.body : Buffer.alloc(0);
    const bodyHash = Buffer.isBuffer(sent) ? hashOf(proof.hash, sent.toString('latin1')) : undefined;
    const info = authenticationInfo(behaviour, proof, next?.nonce, bodyHash);
    return {
      ...reply,
      headers: {
        ...reply.headers,
        ...(info !== undefined && { 'authentication-info': info }),
        ...(next !== undefined && behaviour.requireCookie && { 'set-cookie': setCookieOf(next.cookie) }),
      },
    };
  }

  #replaced(fault: ReplyFault): Reply {
    switch (fault.kind) {
      case 'endless-401':
        return this.#challenge(fault.stale);
      case 'no-digest':
        return refusal(fault.offer === 'basic' ? { 'www-authenticate': 'Basic realm="Simulator"' } : {});
      case 'status':
        return failure(fault.status, fault.errorCode, 'The service is not available.');
      case 'throttle': {
        const callAt = new Date(this.#deps.now() + fault.retryAfterSeconds * 1000);
        return throttled(fault.status, fault.retryAfterSeconds, callAt);
      }
    }
  }
}

function refusal(headers: Reply['headers']): Reply {
  return { status: 401, headers: { ...text, ...headers }, body: unauthorized };
}

/** A behaviour with values that are derived once, not for each request. */
export class Rules {
  readonly behaviour: Behaviour;
  readonly accounts: Accounts;
  readonly faults: Faults;
  readonly #addresses: BlockList | undefined;

  constructor(behaviour: Behaviour, faults: Faults) {
    const { accounts, realm, allowedAddresses } = behaviour;
    this.behaviour = behaviour;
    this.accounts = new Accounts(accounts, realm);
    this.faults = faults;
    this.#addresses = allowedAddresses === null ? undefined : addressList(allowedAddresses);
  }

  /** True if the address is registered for the customer. */
  isRegistered(address: string): boolean {
    return this.#addresses?.check(address, isIPv6(address) ? 'ipv6' : 'ipv4') ?? true;
  }
}

const block = Buffer.alloc(65_536, 'digest gateway ');
const json = { 'content-type': 'application/json' };
const text = { 'content-type': 'text/plain;charset=UTF-8' };
const maxBytes = 2 ** 40;

/** Responds on paths for tests of a gateway; undefined for any other path. */
async function respondToTestPath(request: SimulatedRequest): Promise<Reply | undefined> {
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

/** Creates counts of the events of a deployment since its start or reset, which are zero. */
export const createTally = () => ({
  /** TCP connections, including those with a failed TLS handshake. */
  connections: 0,
  requests: 0,
  /** Requests without an Authorization header. */
  unauthenticated: 0,
  /** Requests with a correct digest and a valid nonce, whatever the response. */
  accepted: 0,
  /** Requests with an Authorization header that got 401 (or 400), by reason. */
  refused: zeroOfEach(refusals),
  /** Requests refused during a lock-out of their address. */
  lockedOut: 0,
  /** 401 responses with a Digest challenge; `stale` counts those with stale="true". */
  challenges: 0,
  stale: 0,
  refusedByAddress: 0,
  refusedBySite: 0,
  /** Requests whose client left before the end of the response. */
  aborted: 0,
  faults: zeroOfEach(faultKinds),
});

type Tally = ReturnType<typeof createTally>;

function zeroOfEach<Name extends string>(names: readonly Name[]): Record<Name, number> {
  return Object.fromEntries(names.map((name) => [name, 0])) as Record<Name, number>;
}

export interface Counts extends Tally {
  /** Number of distinct nonces that were used with a correct digest. */
  distinctNonces: number;
  /** Uses of each of them, ordered by first use; never the nonces themselves. */
  nonces: NonceUse[];
  /** Correct digests whose nc was not higher than every earlier one of their nonce. */
  ncViolations: number;
}
