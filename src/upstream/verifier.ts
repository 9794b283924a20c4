import type { Cancellation } from '../base/cancellation.ts';
import { reportError } from '../base/report-error.ts';
import { credentialRefused } from '../handshake/errors.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { CredentialCircuit } from './credential-circuit.ts';
import type { CredentialVersion, Reply } from './credential-version.ts';
import type { Questions } from './questions.ts';
import { type Evidence, firstAccepted, verify } from './verification.ts';
import type { Versions } from './versions.ts';
import type { Sending, Waiting } from './waiting.ts';

export interface VerifierDeps {
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
   * Begins to find out, in the background, whether the upstream accepts a version; if it does not, which other one. Must not
   * be called while another verification runs.
   */
  begin(version: CredentialVersion, target: string, evidence?: Evidence): void {
    const { versions, circuit } = this.#deps;
    this.#lead(version, async (cancellation) => {
      const others = version === versions.inUse ? versions.rotation.others : [];
      const questions = this.#questionsAbout(others, target, cancellation);
      const verdict = await verify({ ...questions, version, evidence, hasRoom: () => circuit.hasRoom });
      if (verdict.kind === 'accepted') {
        version.dropIdle();
        versions.accept(version);
      } else if (verdict.kind === 'unclear') {
        version.health.reset();
      } else {
        this.#admitted = 0;
        versions.refuse(version, verdict.attempt);
        if (verdict.successor !== undefined) versions.promote(verdict.successor);
      }
    });
  }

  /**
   * Every version is refused: if an attempt is due, the gateway asks with a request of its own, since that of a client may
   * be refused for its target.
   * @throws GatewayError `upstream-credential-refused`
   */
  async tryRefused(call: Sending): Promise<void> {
    const { versions, questions, circuit } = this.#deps;
    circuit.admit();
    const version = versions.all[this.#admitted % versions.all.length] ?? versions.inUse;
    this.#admitted += 1;
    const { target } = call.request;
    await this.#leadOrFollow(version, call, async (cancellation) =>
      this.#settle(version, await questions.probe(version, target, cancellation)),
    );
    if (version.health.refused) throw credentialRefused();
  }

  /** For a request without an attempt left: asks about versions of which nothing is known, so that it does not fail. */
  async tryUnknown(call: Sending): Promise<void> {
    const { inUse, rotation } = this.#deps.versions;
    const unknown = rotation.others.filter(({ health }) => !health.refused);
    if (call.budget.bodySent || unknown.length === 0) return;
    const { target } = call.request;
    await this.#leadOrFollow(inUse, call, async (cancellation) => {
      await firstAccepted(this.#questionsAbout(unknown, target, cancellation));
    });
  }

  async #leadOrFollow(
    version: CredentialVersion,
    call: Sending,
    work: (cancellation: Cancellation) => Promise<void>,
  ): Promise<void> {
    const { waiting } = this.#deps;
    if (!waiting.isBusy) this.#lead(version, work);
    await waiting.follow(call);
  }

  /** Requests wait while `work` finds out about this version; it has a deadline of its own. */
  #lead(version: CredentialVersion, work: (cancellation: Cancellation) => Promise<void>): void {
    const { waiting, questions } = this.#deps;
    const end = waiting.beginVerification();
    version.health.inDoubt = true;
    void questions
      .withDeadline(work)
      .catch((error: unknown) => {
        reportError(error);
        // Nothing is known now, so that no request waits for more.
        version.health.reset();
      })
      .finally(() => {
        version.health.inDoubt = false;
        end();
      });
  }

  #questionsAbout(others: readonly CredentialVersion[], target: string, cancellation: Cancellation) {
    const { questions } = this.#deps;
    return {
      others,
      ask: async (version: CredentialVersion, inHand?: UpstreamResponse): Promise<Reply> => {
        const reply = await questions.probe(version, target, cancellation, inHand);
        questions.count(reply);
        return reply;
      },
      settle: (other: CredentialVersion, reply: Reply) => this.#settle(other, reply),
    };
  }

  /** Takes over the reply to a question about a version. */
  #settle(version: CredentialVersion, reply: Reply): void {
    const { versions } = this.#deps;
    // An earlier refusal says nothing of now: the next request shows it.
    if (reply.kind === 'unclear') version.health.reset();
    else if (reply.kind === 'refused') versions.refuse(version, reply.attempt);
    else versions.accept(version);
  }
}
