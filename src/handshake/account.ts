import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../base/clock.ts';
import { asGatewayError, GatewayError } from '../base/errors.ts';
import { fieldValues, withoutField } from '../base/raw-headers.ts';
import { cookiePairs } from '../challenges/cookies.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { PendingChallenge } from '../challenges/pending-challenges.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { Credential } from '../credentials/credentials.ts';
import { type AlgorithmName, bodyHash, hash } from '../digest/algorithms.ts';
import {
  checkProof,
  parseAuthenticationInfo,
  proofNeedsBody,
  type SentRequest,
} from '../digest/authentication-info.ts';
import { chooseFor } from '../digest/authorization.ts';
import { type Challenge, parseChallenges } from '../digest/challenge.ts';
import type { AttemptResult, ChallengeReason } from '../metrics/deployment-metrics.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import type { CredentialHealth } from './credential-health.ts';
import { outOfBodyMemory } from './errors.ts';
import type {
  AnsweredNonce,
  Exchange,
  ExchangeFacts,
  Message,
  Refusal,
  RequestBody,
  UpstreamRequest,
} from './exchange.ts';
import type { FlightRecorder, RecordedCredential } from './flight-recorder.ts';
import type { Lost, UpstreamResponse } from './response.ts';

/** Header field of the credentials: for an upstream, or for a proxy (RFC 9110 §11.6.2, §11.7.2). */
export type CredentialsField = 'authorization' | 'proxy-authorization';

/** RFC 9110 §11.6, §11.7: what stands in responses, of an upstream and of a proxy. */
export const RESPONSES = {
  authorization: { challenged: 401, challenges: 'www-authenticate', proof: 'authentication-info' },
  'proxy-authorization': {
    challenged: 407,
    challenges: 'proxy-authenticate',
    proof: 'proxy-authentication-info',
  },
} as const;

/** So often another nonce is asked for: for more than a second, whatever the pauses. */
const TIMES = 8;
/**
 * The shortest pause before each time, in milliseconds. It is up to twice as long, so that gateways that were refused
 * at the same time do not ask, and collide, at the same time again.
 */
const PAUSE_MS = 130;

/** Counts one event. */
interface Counter {
  inc(): void;
}

/** Counters of a deployment; each is counted where the result is seen. */
export interface HandshakeMetrics {
  readonly upstreamAttempts: Readonly<Record<AttemptResult, Counter>>;
  readonly challenges: Readonly<Record<ChallengeReason, Counter>>;
}

/** One version of a credential at one server, as a handshake needs it. It is passive: its owner decides. */
export interface Account {
  readonly credential: Credential;
  readonly pool: NoncePool;
  readonly health: CredentialHealth;
  readonly clock: Clock;
  /** Algorithms that may be used. */
  readonly algorithms: readonly AlgorithmName[];
  /** True: a challenge without qop is not answered; left out: it is. */
  readonly requireQop?: boolean;
  readonly field: CredentialsField;
  /** Host and port of the server. */
  readonly address: string;
  /** Sends messages to the server. */
  readonly exchange: Exchange;
  readonly metrics: HandshakeMetrics;
  /** For the spans of exchanges. */
  readonly deployment: string;
  /** True: the trace is passed on to the server. */
  readonly forwardTrace: boolean;
  /** Left out: exchanges with a proxy are not recorded. */
  readonly recorder?: FlightRecorder;
  readonly recorded?: RecordedCredential;
}

/** True if the server asks for authentication, or refuses it. */
export function isChallenge({ field }: Account, { status }: UpstreamResponse): boolean {
  return status === RESPONSES[field].challenged;
}

/** Returns the challenge to answer in a response; undefined: none may be answered. */
export function chooseChallenge(
  { credential, algorithms, requireQop = false, field }: Account,
  { headers }: UpstreamResponse,
): Challenge | undefined {
  const lines = fieldValues(headers, RESPONSES[field].challenges);
  const challenges = parseChallenges(lines).filter(({ qop }) => !requireQop || qop.length > 0);
  return chooseFor(credential, challenges, algorithms);
}

/** Returns the nonce with which a challenge is answered, that came in this response, and counts the challenge. */
export function takeChallenge(
  { pool, metrics }: Account,
  pending: PendingChallenge,
  challenge: Challenge,
  { headers }: UpstreamResponse,
  { reason, trace }: { readonly reason: ChallengeReason; readonly trace: TracedWork | undefined },
): Nonce {
  metrics.challenges[reason].inc();
  trace?.event('challenge', { 'digest_gateway.reason': reason });
  return pool.offer(pending, { challenge, cookies: cookiePairs(fieldValues(headers, 'set-cookie')) });
}

/**
 * Asks until a nonce comes that is not this one, with pauses, a few times. Servers that give one nonce to all who ask
 * within a second refuse it to all but the first, so the refusal says nothing of the credential. Returns what was asked for
 * last. `nonceOf`: its nonce; undefined: it has none.
 */
export async function anotherNonce<Asked>(
  known: string,
  ask: () => Promise<Asked>,
  nonceOf: (asked: Asked) => string | undefined,
): Promise<Asked> {
  for (let left = TIMES; ; left -= 1) {
    await sleep(PAUSE_MS * (1 + Math.random()));
    const asked = await ask();
    if (nonceOf(asked) !== known || left <= 1) return asked;
  }
}

/** Reads a response that no client gets, as far as that is worth it, and counts the attempt. */
export async function discard(
  { metrics }: Pick<Account, 'metrics'>,
  response: UpstreamResponse,
): Promise<void> {
  await response.discard();
  metrics.upstreamAttempts[response.isWhole ? 'ok' : 'error'].inc();
}

/**
 * Sends one message and traces it. It counts an attempt without a response; others are counted by who reads the
 * response. A challenge is returned when its body was read, or its connection closed.
 * @throws GatewayError as `Exchange` does
 */
export async function sendMessage(account: Account, message: Message): Promise<UpstreamResponse | Lost> {
  const { recorder } = account;
  const { facts, trace } = message.request;
  const span = trace && spanOf(account, message, trace);
  if (facts !== undefined) noteAttempt(account, message, facts);
  const recorded = recorder?.sent(account, message) ?? 0;
  try {
    const isTraced = span !== undefined && account.forwardTrace;
    const sent = isTraced ? { ...message, headers: [...message.headers, ...span.headers()] } : message;
    const result = await account.exchange(sent);
    recorder?.received(recorded, result);
    if (result.kind === 'lost') {
      account.metrics.upstreamAttempts.error.inc();
      span?.end(result.error.code);
      return result;
    }
    if (isChallenge(account, result)) {
      if (facts !== undefined) facts.challenged = true;
      if (!result.isWhole) await discardChallenge(message, result);
    }
    span?.describe({ 'http.response.status_code': result.status });
    span?.end();
    return result;
  } catch (error) {
    recorder?.failed(recorded, error);
    account.metrics.upstreamAttempts.error.inc();
    span?.end(asGatewayError(error).code);
    throw error;
  }
}

/** @throws the reason of the cancellation; not behind a refusal, which counts although the client has left */
async function discardChallenge({ request, answers }: Message, response: UpstreamResponse): Promise<void> {
  await response.discard();
  const { reason } = request.cancellation;
  if (reason !== undefined && answers === undefined) throw reason;
}

function noteAttempt(
  { clock, credential, address }: Account,
  { answers }: Message,
  facts: ExchangeFacts,
): void {
  facts.lastAttemptAt = clock.now();
  if (facts.attempts === 0) facts.firstAttemptAt = facts.lastAttemptAt;
  facts.attempts += 1;
  if (answers !== undefined) facts.credential = credential;
  facts.upstreamAddress = address;
}

function spanOf({ deployment }: Account, { method, answers }: Message, trace: TracedWork): TracedWork {
  return trace.call('exchange', {
    'http.request.method': method,
    'digest_gateway.deployment': deployment,
    'digest_gateway.authenticated': answers !== undefined,
  });
}

/**
 * Returns the request as it is: the upstream asks for authentication if it wants any. `wantsFresh`: it goes out on a new
 * connection, as all messages do after one was lost.
 */
export function unsigned(request: UpstreamRequest, wantsFresh = false): Message {
  const { method, target, headers, body, refusal, budget } = request;
  const freshConnection = wantsFresh || budget.repeats > 0;
  const answers = undefined;
  return { request, method, target, headers, body: body.content, answers, refusal, freshConnection };
}

/**
 * Returns the request with the answer to a challenge, and the cookies that came with it. `refusal`: asked before it
 * leaves. `follows`: the response that brought the challenge, if that came to this request.
 * @throws GatewayError `body-too-large` or `overloaded` when the answer needs a body that is not in memory
 */
export function signed(
  request: UpstreamRequest,
  answers: AnsweredNonce,
  field: CredentialsField = 'authorization',
  refusal?: Refusal,
  follows?: UpstreamResponse,
): Message {
  const { method, target, body, budget } = request;
  const { nonce, nc } = answers;
  const bodyHash = nonce.answer.qop === 'auth-int' ? hashOf(body, nonce) : undefined;
  const answer = nonce.answer.authorize({ method, uri: target, nc, bodyHash });
  // A list that a spread makes has room for many more.
  const headers = request.headers.concat(field, answer);
  if (nonce.cookies.length > 0) headers.push('cookie', nonce.cookies.join('; '));
  const freshConnection = budget.repeats > 0;
  return { request, method, target, headers, body: body.content, answers, refusal, follows, freshConnection };
}

/** Returns a request without a body that makes the upstream ask for authentication. Its interim responses are dropped. */
export function challengeRequest(request: UpstreamRequest, method: string): Message {
  const headers = withoutField(request.headers, 'content-length');
  return { ...unsigned(request), request: { ...request, interim: undefined }, method, headers, body: null };
}

/** H(entity-body) for auth-int, RFC 7616 §3.4.3. */
function hashOf(body: RequestBody, nonce: Nonce): string | undefined {
  if (body.kind === 'none') return undefined;
  if (body.kind === 'kept') return hash(nonce.challenge.algorithm.name, body.content);
  if (body.spilled) throw outOfBodyMemory();
  throw new GatewayError(
    'body-too-large',
    'The upstream asks for auth-int, which needs the whole body in memory, and the body is larger than body.replayUpTo.',
  );
}

/**
 * Checks the upstream's proof that it knows the password, too (rspauth, RFC 7616 §3.5), then calls `accept` with the
 * nonce to use next, if one is named. With auth-int the proof covers the body of the response: then it is checked, and
 * `accept` called, once the last byte has come; a reader gets the last piece afterwards.
 * @param field that has the proof
 * @throws GatewayError `upstream-proof-invalid` when the proof is wrong; the response is abandoned
 */
export function proveResponse(
  response: UpstreamResponse,
  field: string,
  nonce: Nonce,
  sent: Pick<SentRequest, 'uri' | 'nc'>,
  accept: (nextnonce: string | undefined) => void,
): void {
  const info = parseAuthenticationInfo(fieldValues(response.headers, field));
  const check = (responseBodyHash?: string): void => {
    const request = { ...sent, cnonce: nonce.cnonce, bodyHash: responseBodyHash };
    if (checkProof(info, nonce.answer, request) === 'invalid') throw proofInvalid();
    accept(info.nextnonce);
  };
  if (proofNeedsBody(info, nonce.answer)) {
    const hash = bodyHash(nonce.challenge.algorithm.name);
    response.inspect({ update: (piece) => hash.update(piece), finish: () => check(hash.digest()) }, true);
    return;
  }
  try {
    check();
  } catch (error) {
    response.abandon();
    throw error;
  }
}

function proofInvalid(): GatewayError {
  return new GatewayError(
    'upstream-proof-invalid',
    'The upstream did not prove that it knows the credential (rspauth), so its response is withheld. Another server may be answering in its place.',
  );
}
