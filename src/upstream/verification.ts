import type { Cancellation } from '../base/cancellation.ts';
import { monotonicClock } from '../base/clock.ts';
import { reportError } from '../base/report-error.ts';
import { type Flight, SingleFlight } from '../base/single-flight.ts';
import { credentialRefused } from '../handshake/errors.ts';
import type { UpstreamRequest } from '../handshake/exchange.ts';
import type { CredentialCircuit } from './credential-circuit.ts';
import type { CredentialVersion, InHand, Reply, Transport } from './credential-version.ts';
import type { Questions } from './questions.ts';
import type { Versions } from './versions.ts';

/** The attempt of a client's request that was refused with a nonce of its own. */
export type Evidence = Extract<Reply, { readonly kind: 'refused' }>;

/** The verdict of a verification on a version. */
export type Verdict<V> =
  | { readonly kind: 'accepted' }
  /** Nothing is known. */
  | { readonly kind: 'unclear' }
  /** The attempt of this number showed it. `successor`: another version that the upstream accepts; undefined: none. */
  | { readonly kind: 'refused'; readonly attempt: number; readonly successor: V | undefined };

export interface VerificationOptions<V> {
  readonly version: V;
  /** True: the upstream accepted it before, and the evidence may speak of a target only. */
  readonly wasAccepted: boolean;
  /**
   * The refusal for which the gateway asks: of a client's request, or of an attempt of its own; undefined: there is
   * none.
   */
  readonly evidence: Evidence | undefined;
  /** Versions that can take its place, in this order. */
  readonly others: readonly V[];
  /** True if the upstream may see more than one refused attempt in a minute. */
  readonly asksTwice: boolean;
  /** True if the upstream may see another refused attempt in this minute. */
  readonly hasRoom: () => boolean;
  /**
   * Asks whether the upstream accepts a version; `inHand`: a refusal whose challenge is answered, without a question.
   */
  readonly ask: (version: V, inHand?: InHand) => Promise<Reply>;
  /** Takes over the reply to another version than the one that is verified. */
  readonly settle: (other: V, reply: Reply) => void;
}

/**
 * Finds out whether the upstream accepts a version, with requests of the gateway's own; if it does not, whether it
 * accepts another one. Before all count as refused, each that was refused once only is asked again: an upstream can drop
 * the nonce of one answer within a round trip.
 */
export async function verify<V>(options: VerificationOptions<V>): Promise<Verdict<V>> {
  const { version, wasAccepted, evidence, asksTwice, hasRoom, ask } = options;
  const isAsked = wasAccepted || evidence === undefined;
  const first = isAsked ? await ask(version) : evidence;
  if (first.kind !== 'refused') return first;
  const { attempt } = first;
  const { successor, refusedOnce } = await askInTurn(options, first.inHand);
  if (successor !== undefined) return { kind: 'refused', attempt, successor };
  const refusals = first.attempts + (isAsked ? (evidence?.attempts ?? 0) : 0);
  if (!isAsked || (asksTwice && refusals === 1)) {
    const second = await ask(version);
    if (second.kind === 'accepted') return second;
    // An upstream that restarts drops a nonce and then does not respond.
    if (second.kind === 'unclear' && hasRoom()) return second;
  }
  if (!asksTwice) return { kind: 'refused', attempt, successor };
  const again = await askInTurn({ ...options, others: refusedOnce });
  return { kind: 'refused', attempt, successor: again.successor };
}

/**
 * Asks the other versions in order, each with the challenge that came with the refusal before, if it can be answered,
 * until one is accepted. `refusedOnce`: those that one answer refused.
 */
async function askInTurn<V>(
  { others, ask, settle }: Pick<VerificationOptions<V>, 'others' | 'ask' | 'settle'>,
  first?: InHand,
): Promise<{ readonly successor: V | undefined; readonly refusedOnce: readonly V[] }> {
  const refusedOnce: V[] = [];
  let inHand = first;
  for (const other of others) {
    const reply = await ask(other, inHand);
    inHand = reply.kind === 'refused' ? reply.inHand : undefined;
    settle(other, reply);
    if (reply.kind === 'accepted') return { successor: other, refusedOnce };
    if (reply.kind === 'refused' && reply.attempts === 1) refusedOnce.push(other);
  }
  return { successor: undefined, refusedOnce };
}

/** The longest that a request waits for others that find out about a credential, in milliseconds. */
export const PATIENCE_MS = 10_000;

/** Time after a refusal, in milliseconds, from which a client's request may test the version again, as after a start. */
const FORGOTTEN_MS = 15 * 60_000;

/** A client's request under way. */
export interface Sending {
  readonly request: UpstreamRequest;
  readonly transport: Transport;
  /** Held while this request tests an unknown version, for which others wait; undefined: it does not. */
  flight: Flight | undefined;
  /** Held while no other request answers a challenge after a refusal of its own nonce; undefined: it does not. */
  turn: Flight | undefined;
  /** The version of its last handshake; undefined: there was none. */
  version: CredentialVersion | undefined;
  /** True: it has waited for others as long as it may. */
  isLate: boolean;
}

/** How a wait ended; `proceed`: the leader reached no verdict; `late`: it took longer than the request may wait. */
export type WaitEnd = 'check' | 'proceed' | 'late';

/** Requests with one credential wait for this: a request that tests an unknown version, or a verification. */
export class Waiting extends SingleFlight {
  /** Of the last request that tested an unknown version; undefined: none has. */
  #test: Flight | undefined;

  /** This request tests an unknown version, while others wait. */
  beginTest(call: Sending): void {
    call.flight = this.lead();
    this.#test = call.flight;
  }

  /**
   * Ends the test of this request, if it makes one. While the version is unknown, the next one tests it, and others wait on.
   * `released`: so many go out now, the first of them as that test.
   */
  endTest(call: Sending, released = 0): void {
    for (let left = released; left > 0 && call.flight?.passOn('proceed') === true; left -= 1);
    call.flight?.land('check');
    call.flight = undefined;
  }

  /** Some request has shown what is to be tested. */
  endAnyTest(): void {
    this.#test?.land('check');
  }

  /** Waits as `waitFor`, and no longer than the wait may have lasted for all. */
  async enter(call: Sending): Promise<WaitEnd> {
    const end = await this.waitFor(call, this.age);
    call.isLate ||= end === 'late';
    return end;
  }

  /**
   * Waits for what finds out about a version, in all as long as a request may wait. `since`: how long others have waited.
   * @throws the reason of the cancellation
   */
  async waitFor(call: Sending, since = 0): Promise<WaitEnd> {
    const left = patienceOf(call) - Math.max(call.request.budget.waitedMs, since);
    return left <= 0 ? 'late' : this.#wait(call, left);
  }

  /**
   * Waits for a verdict that is likely to be a refusal, however long the request has waited: its own deadline and that of
   * the verification end this.
   * @throws the reason of the cancellation
   */
  async waitOut(call: Sending): Promise<void> {
    await this.#wait(call, 2 * call.transport.options.timeouts.response);
  }

  async #wait(call: Sending, patienceMs: number): Promise<WaitEnd> {
    const { budget, cancellation } = call.request;
    const begun = monotonicClock.now();
    const landing = await this.follow(cancellation, patienceMs);
    budget.waitedMs += monotonicClock.now() - begun;
    if (cancellation.reason !== undefined) throw cancellation.reason;
    return landing;
  }
}

function patienceOf({ transport }: Sending): number {
  return Math.min(PATIENCE_MS, transport.options.timeouts.response);
}

interface VerifierDeps {
  readonly versions: Versions;
  readonly questions: Questions;
  readonly waiting: Waiting;
  /** Bounds the attempts with a credential of which every version is refused. */
  readonly circuit: CredentialCircuit;
}

/** Runs verifications of one credential, one at a time, while requests wait, and applies what they find. */
export class Verifier {
  readonly #deps: VerifierDeps;
  /** Attempts with a refused credential that the circuit admitted; they take the versions in turn. */
  #admitted = 0;

  constructor(deps: VerifierDeps) {
    this.#deps = deps;
  }

  /**
   * Begins to find out, in the background, whether the upstream accepts a version; if it does not, which other one.
   * Must not be called while another verification runs. `evidence`: the refusal for which it begins.
   */
  begin(version: CredentialVersion, target: string, evidence?: Evidence): void {
    const { versions, circuit } = this.#deps;
    const wasAccepted = version.health.accepted;
    const others = version === versions.inUse ? versions.rotation.others : [];
    const { perMinute } = circuit;
    const recorded = { by: 'verdict' as const, count: evidence?.attempts ?? 0 };
    this.#lead(version, recorded, async (cancellation) => {
      const verdict = await verify({
        ...this.#questionsAbout(others, target, cancellation),
        version,
        wasAccepted,
        evidence,
        asksTwice: perMinute > 1,
        hasRoom: () => circuit.hasRoom,
      });
      versions.note('verdict', [version], { result: verdict.kind, count: perMinute });
      if (verdict.kind === 'accepted') {
        version.dropIdle();
        versions.accept(version);
      } else if (verdict.kind === 'unclear') {
        versions.reset(version, 'verdict');
      } else {
        this.#admitted = 0;
        versions.refuse(version, verdict.attempt, 'verdict');
        if (verdict.successor !== undefined) versions.promote(verdict.successor, 'verdict');
      }
    });
  }

  /**
   * Every version is refused: if an attempt is due, the gateway asks with a request of its own, since that of a client
   * may be refused for its target. Now and then it leaves the attempt to this request: the account may not be allowed to
   * use the gateway's own target.
   * @throws GatewayError `upstream-credential-refused`
   */
  async tryRefused(call: Sending): Promise<void> {
    const { versions, questions, circuit } = this.#deps;
    const at = circuit.admit();
    const version = versions.all[this.#admitted % versions.all.length] ?? versions.inUse;
    this.#admitted += 1;
    versions.note('admitted', [version], { count: circuit.perMinute, at });
    if (at - version.refusedAt >= FORGOTTEN_MS) return versions.reset(version, 'age');
    const { target } = call.request;
    await this.#leadOrFollow(version, call, async (cancellation) => {
      const reply = await questions.probe(version, target, cancellation);
      // One is counted: a refusal that names the nonce which it refuses costs another one.
      if (reply.kind === 'refused') circuit.attempted(reply.attempts - 1);
      versions.noteReply(version, reply, 'verification');
      this.#settle(version, reply);
    });
    if (version.health.refused) throw credentialRefused();
  }

  /** For a request without an attempt left: asks about versions of which nothing is known, so that it does not fail. */
  async tryUnknown(call: Sending): Promise<void> {
    const { inUse, rotation } = this.#deps.versions;
    const unknown = rotation.others.filter(({ health }) => !health.refused);
    const { target, budget } = call.request;
    if (budget.bodySent || unknown.length === 0) return;
    await this.#leadOrFollow(inUse, call, async (cancellation) => {
      await askInTurn(this.#questionsAbout(unknown, target, cancellation));
    });
  }

  async #leadOrFollow(
    version: CredentialVersion,
    call: Sending,
    work: (cancellation: Cancellation) => Promise<void>,
  ): Promise<void> {
    const { waiting } = this.#deps;
    if (!waiting.busy) this.#lead(version, { by: 'question' }, work);
    await waiting.waitFor(call);
  }

  /** Requests wait while `work` finds out about this version; it has a deadline of its own. */
  #lead(
    version: CredentialVersion,
    recorded: { readonly by: 'verdict' | 'question'; readonly count?: number },
    work: (cancellation: Cancellation) => Promise<void>,
  ): void {
    const { versions, waiting, questions } = this.#deps;
    const flight = waiting.lead();
    version.health.inDoubt = true;
    versions.note('verifies', [version], recorded);
    void questions
      .withDeadline(work)
      .catch((error: unknown) => {
        reportError(error);
        // Nothing is known now, so that no request waits for more.
        versions.reset(version, 'failure');
      })
      .finally(() => {
        version.health.inDoubt = false;
        version.health.refusedInDoubt = false;
        versions.note('settled', [version]);
        flight.land('check');
      });
  }

  #questionsAbout(others: readonly CredentialVersion[], target: string, cancellation: Cancellation) {
    const { versions, questions } = this.#deps;
    return {
      others,
      ask: async (version: CredentialVersion, inHand?: InHand): Promise<Reply> => {
        const reply = await questions.probe(version, target, cancellation, inHand);
        questions.count(reply);
        // Each attempt of a late request would be a failed log-in.
        if (reply.kind === 'refused' && version.health.inDoubt) version.health.refusedInDoubt = true;
        versions.noteReply(version, reply, 'verification');
        return reply;
      },
      settle: (other: CredentialVersion, reply: Reply) => this.#settle(other, reply),
    };
  }

  /** Takes over the reply to a question about a version. */
  #settle(version: CredentialVersion, reply: Reply): void {
    const { versions } = this.#deps;
    // An earlier refusal says nothing of now: the next request shows it.
    if (reply.kind === 'unclear') versions.reset(version, 'reply');
    else if (reply.kind === 'refused') versions.refuse(version, reply.attempt, 'reply');
    else versions.accept(version);
  }
}
