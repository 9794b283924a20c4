import { Cancellation } from '../base/cancellation.ts';
import { asGatewayError } from '../base/errors.ts';
import { reportError } from '../base/report-error.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import {
  cannotRepeat,
  credentialRefused,
  noDigest,
  refusedAgain,
  targetRefused,
} from '../handshake/errors.ts';
import type { UpstreamRequest } from '../handshake/exchange.ts';
import { type HandshakeOptions, handshake, type Refused } from '../handshake/handshake.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { CredentialCircuit, RefusedTargets } from './credential-circuit.ts';
import type { CredentialVersion, Reply, Transport } from './credential-version.ts';
import { Questions } from './questions.ts';
import { canAnswer, errorAfter, evidenceOf, optionsAfter } from './refusal.ts';
import { Trials } from './trial.ts';
import { PATIENCE_MS, type Sending, Verifier, Waiting } from './verification.ts';
import { Versions, type VersionsDeps } from './versions.ts';

/**
 * Result of a test that an operator asked for. `unknown`: there is no such version; `spent`: the upstream has seen as
 * many refused attempts in this minute as it may.
 */
export type VersionTest = Reply['kind'] | 'unknown' | 'spent';

export interface CredentialDeps extends VersionsDeps {
  /** Bounds the attempts with a credential of which every version is refused. */
  readonly circuit: CredentialCircuit;
  readonly refusedTargets: RefusedTargets;
}

const FROM_POOL: HandshakeOptions = {};
const ASK_FIRST: HandshakeOptions = { freshNonce: true };

/**
 * All that is known of one credential at one upstream: its versions, which of them is in use, and whether the upstream
 * accepts it. Requests are sent with the version in use; when one is refused, they wait for one verification.
 */
export class UpstreamCredential {
  readonly versions: Versions;
  readonly #deps: CredentialDeps;
  readonly #questions: Questions;
  readonly #trials: Trials;
  readonly #waiting = new Waiting();
  /** Of requests that were refused a nonce that they had just obtained. */
  readonly #turns = new Waiting();
  readonly #verifier: Verifier;
  /** True while a nonce is being renewed. */
  #isRenewing = false;

  constructor(set: CredentialSet, deps: CredentialDeps) {
    this.#deps = deps;
    this.versions = new Versions(set, deps, (version, nonce) => this.#renew(version, nonce));
    this.#questions = new Questions(deps.circuit, this.versions);
    deps.recorder.offer(deps.recorded, set, deps.circuit.perMinute);
    const { versions } = this;
    this.#verifier = new Verifier({ ...deps, versions, questions: this.#questions, waiting: this.#waiting });
    this.#trials = new Trials(this.versions, this.#questions, deps.clock);
  }

  /** The nonces of the version in use, for requests over this transport; undefined: it is not attached. */
  poolOn(transport: Transport): NoncePool | undefined {
    return this.versions.transports.has(transport) ? this.versions.inUse.on(transport).pool : undefined;
  }

  /** Takes over the versions that the sources of the credential hold now. A new one is tried before it is used. */
  offer(set: CredentialSet): void {
    const { recorder, recorded, circuit } = this.#deps;
    recorder.offer(recorded, set, circuit.perMinute);
    this.versions.offer(set);
    this.#trials.expedite();
    this.#tryCandidates();
  }

  /** Takes over what other processes have seen: `SharedEvidence.catchUp`. */
  async catchUp(): Promise<void> {
    await this.versions.shared.catchUp();
    this.#tryCandidates();
  }

  /**
   * Tests a version with a request of the gateway's own, which does not reach the clients. `target`: of that request,
   * unless a better one is known.
   */
  async test(name: string, target: string, transport: Transport): Promise<VersionTest> {
    const version = this.versions.named(name);
    if (version === undefined) return 'unknown';
    if (!this.#deps.circuit.hasRoom) return 'spent';
    const requests = this.versions.transports.get(transport);
    requests?.enter();
    try {
      const reply = await this.#questions.withDeadline((each) =>
        this.#questions.probe(version, target, each),
      );
      this.#questions.count(reply);
      this.versions.noteReply(version, reply, 'test');
      const isInUse = version === this.versions.inUse;
      if (reply.kind === 'accepted' && isInUse) this.versions.accept(version);
      if (reply.kind !== 'refused') return reply.kind;
      if (!isInUse || version.health.refused) this.versions.refuse(version, reply.attempt, 'test');
      // One refusal is not enough against a version that clients use.
      else if (!this.#waiting.busy) this.#verifier.begin(version, target, reply);
      return reply.kind;
    } finally {
      requests?.leave();
    }
  }

  /** Puts a version in use that is known to be accepted, if it is there; if it is in use, its refusal ends. */
  promote(name: string): void {
    const version = this.versions.named(name);
    if (version === undefined) return;
    if (version.health.refused) this.versions.reset(version, 'operator');
    this.versions.promote(version, 'operator');
  }

  /**
   * Sends a client's request, in handshakes with the version that is usable then, until there is a response.
   * @throws GatewayError when there is no response; `upstream-credential-refused`, `upstream-target-refused`
   * @throws TypeError when the transport is not attached
   */
  async send(request: UpstreamRequest, transport: Transport): Promise<UpstreamResponse> {
    const { refusedTargets, recorder, recorded: credential } = this.#deps;
    const { count } = refusedTargets;
    if (refusedTargets.bars(request)) throw targetRefused();
    const requests = this.versions.transports.get(transport);
    if (requests === undefined) throw new TypeError('the credential has no such transport');
    const call: Sending = {
      request,
      transport,
      flight: undefined,
      turn: undefined,
      version: undefined,
      isLate: false,
    };
    requests.enter();
    const recorded = recorder.request(credential, request);
    let options = FROM_POOL;
    try {
      for (;;) {
        const version = this.#usableNow(call) ?? (await this.#usable(call));
        if (version !== call.version) options = this.#firstOptions(version, request);
        call.version = version;
        if (call.isLate) options = { ...options, ignoresDoubt: true };
        const result = await handshake(version.on(transport), request, options);
        if (result === 'interrupted') this.#interrupted(call);
        else if (result.kind === 'refused') options = await this.#afterRefusal(version, result, call);
        else {
          recorder.ended(recorded, result.status);
          return this.#responded(version, call, result);
        }
      }
    } catch (error) {
      recorder.ended(recorded, asGatewayError(error).code);
      this.#failed(call, error, count);
      throw error;
    } finally {
      call.turn?.land('check');
      requests.leave();
    }
  }

  /** A request ends with this error. `count`: of refused targets, when it began. */
  #failed(call: Sending, error: unknown, count: number): void {
    const { request } = call;
    const { refusedTargets } = this.#deps;
    refusedTargets.note(request, error, count);
    if (request.budget.bodySent && request.budget.answered > 0) refusedTargets.suspect(request);
    const isTest = call.flight !== undefined;
    this.#waiting.endTest(call);
    if (asGatewayError(error).code === 'client-closed')
      void this.#goOnAlone(call, isTest, count).catch(reportError);
  }

  /**
   * The client of a request has left, and its attempts may have been refused: the gateway finds out by itself. Clients
   * that leave before the verdict would otherwise have a wrong password, or a refused target, sent without end.
   */
  async #goOnAlone({ request, version }: Sending, isTest: boolean, count: number): Promise<void> {
    const { budget, facts, target } = request;
    const isRefused = budget.answered > 0 && !budget.onlyStale;
    const isOpen = isRefused || (isTest && facts?.credential !== undefined);
    if (!isOpen || version === undefined || version.health.refused || this.versions.hasLeft(version)) return;
    if (!this.#waiting.busy) this.#verifier.begin(version, target);
    if (!isRefused) return;
    await this.#waiting.follow(new Cancellation(), PATIENCE_MS);
    if (version.health.accepted)
      this.#deps.refusedTargets.note(request, targetRefused(), count, budget.ownRefused);
  }

  /**
   * Waits until no other such request is under way, as long as it may. Some servers have few places for nonces
   * (libmicrohttpd: four), and drop that of one request when another one asks: at once, each would be refused again.
   */
  async #takeTurn(call: Sending): Promise<void> {
    while (this.#turns.busy) if ((await this.#turns.waitFor(call)) === 'late') return;
    call.turn = this.#turns.lead();
  }

  /** The version was refused, or began to be verified, before an attempt went out. */
  #interrupted(call: Sending): void {
    this.#waiting.endTest(call);
    call.version = undefined;
  }

  /** How the first handshake with a version begins. */
  #firstOptions({ health }: CredentialVersion, request: UpstreamRequest): HandshakeOptions {
    // A known nonce may cost an attempt, and one is left then: too few to try two versions.
    if (!health.accepted && this.versions.rotation.others.length > 0) return ASK_FIRST;
    return request.body.kind === 'streamed' && this.#deps.refusedTargets.suspects(request)
      ? ASK_FIRST
      : FROM_POOL;
  }

  /** Undefined: the request has to wait, or begins to test the version. */
  #usableNow(call: Sending): CredentialVersion | undefined {
    const { flight, version } = call;
    const { inUse } = this.versions;
    if (version !== undefined && this.versions.hasLeft(version)) this.#waiting.endTest(call);
    else if (flight !== undefined) return version;
    return inUse.health.accepted && !this.#waiting.busy ? inUse : undefined;
  }

  /**
   * The version for a request: waits while another request tests it, or a verification runs. An unknown one is tested by
   * the first request.
   * @throws GatewayError `upstream-credential-refused` when every version is
   */
  async #usable(call: Sending): Promise<CredentialVersion> {
    for (;;) {
      if (this.#waiting.busy && (await this.#waiting.enter(call)) === 'check') continue;
      const { inUse, rotation } = this.versions;
      const version = inUse.health.refused ? rotation.others.find(({ health }) => !health.refused) : inUse;
      if (version === undefined) {
        await this.#verifier.tryRefused(call);
        continue;
      }
      if (version.health.refusedInDoubt) {
        await this.#waiting.waitOut(call);
        continue;
      }
      if (this.#hasToBeDue(version)) this.#deps.circuit.admit();
      if (!version.health.accepted && !this.#waiting.busy) this.#waiting.beginTest(call);
      return version;
    }
  }

  /** Each attempt can extend a lock-out. All whose wait for a slow test is over would be as many failed log-ins. */
  #hasToBeDue({ health }: CredentialVersion): boolean {
    return health.isHeld || (health.wasRefused && this.#waiting.busy);
  }

  #responded(version: CredentialVersion, call: Sending, response: UpstreamResponse): UpstreamResponse {
    const { request } = call;
    this.#deps.refusedTargets.accepted(request);
    if (!version.health.accepted) {
      const { health } = version;
      health.inconclusive += 1;
      // All who wait would be as many failed log-ins if the password is wrong; one at a time, they would wait for ever. A
      // version that was refused before is tested by one request at a time.
      this.#waiting.endTest(call, health.wasRefused ? 0 : health.inconclusive);
      return response;
    }
    // Nearly always nobody waits, and each request comes here.
    if (this.#waiting.busy) this.#waiting.endAnyTest();
    // Nearly always a target is known, and the nonce.
    const isNews = this.#questions.lastTarget === undefined || request.facts?.challenged === true;
    if (isNews && response.status < 300 && request.method === 'GET')
      this.#questions.served(request, this.#deps.clock.now());
    this.versions.accept(version);
    if (this.versions.rotation.others.length > 0) this.#tryCandidates();
    return response;
  }

  /**
   * Decides what follows a refusal: returns how the next handshake of the request begins.
   * @throws GatewayError when none can follow
   */
  async #afterRefusal(
    version: CredentialVersion,
    refused: Refused,
    call: Sending,
  ): Promise<HandshakeOptions> {
    const { clock, circuit } = this.#deps;
    const { budget } = call.request;
    const since = clock.now();
    if (refused.isEvidence && !version.health.refused) circuit.attempted();
    if (!refused.isStale && !this.versions.hasLeft(version)) await this.#explain(version, refused, call);
    if (version.health.refused || this.versions.isReplaced(version)) return this.#goOn(version, call);
    if (refused.challenge === undefined) throw noDigest();
    const isDropped = refused.isNamedAgain && refused.isOwn;
    if (isDropped) budget.extendForNonce();
    // Found good, but by others: servers behind one address can have nonces of their own.
    else if (refused.isGoodNonce && !refused.isOwn) budget.extendForNonce(1);
    if (budget.spent) throw errorAfter(refused, budget);
    if (isDropped && call.turn === undefined) await this.#takeTurn(call);
    if (this.versions.hasLeft(version)) return FROM_POOL;
    const { pool } = version.on(call.transport);
    return optionsAfter(refused, { pool, since, now: clock.now(), tests: call.flight !== undefined });
  }

  /** The version is refused or replaced. @throws GatewayError when the request has no attempt for another one */
  async #goOn(version: CredentialVersion, call: Sending): Promise<HandshakeOptions> {
    const { budget } = call.request;
    this.#waiting.endTest(call);
    if (!this.versions.isReplaced(version) && budget.spent) await this.#verifier.tryUnknown(call);
    // The attempts that are added go out with another version, which the upstream has accepted.
    if (this.versions.isReplaced(version)) budget.extendForRotation();
    if (!budget.spent) return FROM_POOL;
    if (this.versions.areRefused) {
      this.versions.note('failed', []);
      throw credentialRefused();
    }
    throw budget.bodySent ? cannotRepeat() : refusedAgain();
  }

  /** Waits until it is known whether the version is refused, or something else explains the refusal. */
  async #explain(version: CredentialVersion, refused: Refused, call: Sending): Promise<void> {
    const { health } = version;
    const { budget } = call.request;
    const hasOthers = this.versions.rotation.others.length > 0;
    // A second refusal of a credential that was found good in between says nothing new of it.
    if (budget.spent && budget.confirmed && !hasOthers && !health.refused) return;
    // A version without a verdict confirms nothing.
    if (await this.#verifyFor(version, refused, call)) budget.confirmed ||= refused.isOwn && health.accepted;
    // The request does not fail while another version may be accepted.
    const isOpen = (): boolean => budget.left <= 0 && hasOthers && !health.accepted && !health.refused;
    if (isOpen() && this.#waiting.busy) await this.#waiting.waitFor(call);
    if (!isOpen() || this.#waiting.busy) return;
    this.#verifier.begin(version, call.request.target);
    await this.#waiting.waitFor(call);
  }

  /** False: nothing has been found out for as long as the request may wait. */
  async #verifyFor(version: CredentialVersion, refused: Refused, call: Sending): Promise<boolean> {
    const { health } = version;
    while (!this.#isExplained(version, refused)) {
      if (this.#isAlone(call) && canAnswer(refused, this.#deps.clock.now())) {
        if (call.flight === undefined) this.#waiting.beginTest(call);
        return true;
      }
      this.#waiting.endTest(call);
      const { request } = call;
      if (!this.#waiting.busy) this.#verifier.begin(version, request.target, evidenceOf(refused, request));
      if ((await this.#waiting.waitFor(call)) !== 'check') return false;
      call.request.budget.confirmed = health.accepted;
    }
    return true;
  }

  /** True if it is known what a refusal says, or nothing more can be found out. */
  #isExplained(version: CredentialVersion, { number, isOwn }: Refused): boolean {
    const { accepted, refused } = version.health;
    if (refused || version.health.isSuperseded(number) || this.versions.isReplaced(version)) return true;
    // A nonce that others have used says nothing of a version that is unknown.
    return !accepted && !isOwn;
  }

  /** True if no other request and no other version can be hit by what this request does. */
  #isAlone({ flight }: Sending): boolean {
    if ((this.#waiting.busy && flight === undefined) || this.versions.rotation.others.length > 0)
      return false;
    let underWay = 0;
    for (const { count } of this.versions.transports.values()) underWay += count;
    return underWay <= 1;
  }

  #tryCandidates(): void {
    if (this.versions.rotation.candidates.length > 0) void this.#trials.run().catch(reportError);
  }

  /** Replaces a nonce before the upstream refuses it. */
  async #renew(version: CredentialVersion, replaces: Nonce): Promise<void> {
    const { health } = version;
    if (this.#isRenewing || version !== this.versions.inUse) return;
    if (!health.accepted || this.#waiting.busy) return;
    this.#isRenewing = true;
    const reply = await this.#questions.renew(version, replaces).finally(() => {
      this.#isRenewing = false;
    });
    if (reply?.kind !== 'refused' || !health.accepted) return;
    this.#questions.count(reply);
    if (!this.#waiting.busy) this.#verifier.begin(version, '/', reply);
  }
}
