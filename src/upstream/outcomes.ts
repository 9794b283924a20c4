import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../base/clock.ts';
import type { GatewayError } from '../base/errors.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { CredentialUsed, ResponseHandler } from '../handshake/response-handler.ts';
import { BodyStart } from './body-start.ts';
import { type Pause, type PauseNews, Pauses } from './pauses.ts';
import { retryAfterMs } from './retry-after.ts';

/** A named class of responses. */
export interface OutcomeOptions {
  readonly name: string;
  readonly status: readonly number[];
  /** Left out: any body. */
  readonly bodyContains?: string;
  /** How long such a response pauses requests, in milliseconds; left out: it does not. */
  readonly pause?: number;
  /** The scope of the pause; left out: the deployment. */
  readonly scope?: 'deployment' | 'credential';
}

export interface OutcomesOptions {
  readonly deployment: string;
  readonly origins: readonly string[];
  /** The first that matches a response is its outcome. */
  readonly outcomes: readonly OutcomeOptions[];
}

export interface OutcomesDeps {
  readonly clock: Clock;
  /** Called when a pause begins, and with the first request after its end. */
  readonly onPause: (news: PauseNews) => void;
}

interface Rule {
  readonly options: OutcomeOptions;
  /** Undefined: any body. */
  readonly text: Buffer | undefined;
}

/** The outcomes of one deployment, and the pauses that they caused in this process. */
export class Outcomes {
  readonly #options: OutcomesOptions;
  readonly #rules = new Map<number, Rule[]>();
  readonly #pauses: Pauses;

  /**
   * Returns the outcomes of a deployment; undefined: it has none. `before`: those of its upstream so far, which stay with
   * their pauses if they are the same, so that a reload does not end a pause.
   */
  static of(
    options: OutcomesOptions,
    deps: OutcomesDeps,
    before: Outcomes | undefined,
  ): Outcomes | undefined {
    const { deployment, origins, outcomes } = options;
    if (outcomes.length === 0) return undefined;
    const own = { deployment, origins, outcomes };
    return before !== undefined && isDeepStrictEqual(before.#options, own) ? before : new Outcomes(own, deps);
  }

  private constructor(options: OutcomesOptions, { clock, onPause }: OutcomesDeps) {
    this.#options = options;
    this.#pauses = new Pauses(options.deployment, clock, onPause);
    for (const each of options.outcomes) {
      const { bodyContains } = each;
      const rule = {
        options: each,
        text: bodyContains === undefined ? undefined : Buffer.from(bodyContains),
      };
      for (const status of new Set(each.status)) {
        const rules = this.#rules.get(status);
        if (rules === undefined) this.#rules.set(status, [rule]);
        else rules.push(rule);
      }
    }
  }

  get names(): string[] {
    return this.#options.outcomes.map(({ name }) => name);
  }

  /** The pauses that have not ended. */
  get pauses(): Pause[] {
    return this.#pauses.current;
  }

  /**
   * Returns a handler that finds the outcome of a response while it passes on to `handler`, for a request that may be
   * sent with this credential.
   * @throws GatewayError `upstream-paused`
   */
  admit(handler: ResponseHandler, credential: string): ClassifiedResponse {
    const refusal = this.#pauses.refusalOf(credential);
    if (refusal !== undefined) throw refusal;
    return new ClassifiedResponse(handler, credential, this.#rules, this.#pauses);
  }
}

/** A response whose outcome is looked for. */
interface Look {
  /** Those for its status, of which the first has a text. */
  readonly rules: readonly Rule[];
  readonly first: Buffer;
  readonly headers: RawHeaders;
  readonly start: BodyStart;
}

/** Passes a response on at once, and tells its outcome when it is known. */
export class ClassifiedResponse implements ResponseHandler {
  readonly #handler: ResponseHandler;
  readonly #credential: string;
  readonly #rules: ReadonlyMap<number, readonly Rule[]>;
  readonly #pauses: Pauses;
  /** A pause that began while the request waited refuses it. */
  readonly refusal = (): GatewayError | undefined => this.#pauses.refusalOf(this.#credential);
  /** Undefined: no outcome lists the status, or the outcome is settled. */
  #look: Look | undefined;

  constructor(
    handler: ResponseHandler,
    credential: string,
    rules: ReadonlyMap<number, readonly Rule[]>,
    pauses: Pauses,
  ) {
    this.#handler = handler;
    this.#credential = credential;
    this.#rules = rules;
    this.#pauses = pauses;
  }

  attempt(credential: CredentialUsed, address: string): void {
    this.#handler.attempt(credential, address);
  }

  challenged(): void {
    this.#handler.challenged();
  }

  information(status: number, headers: RawHeaders): void {
    this.#handler.information(status, headers);
  }

  head(status: number, reason: string, headers: RawHeaders, isHttp11: boolean): void {
    this.#handler.head(status, reason, headers, isHttp11);
    const rules = this.#rules.get(status);
    const first = rules?.[0];
    if (rules === undefined || first === undefined) return;
    if (first.text === undefined) this.#match(first, headers);
    else this.#look = { rules, first: first.text, headers, start: new BodyStart(headers) };
  }

  data(chunk: Buffer): boolean {
    const more = this.#handler.data(chunk);
    if (this.#look !== undefined) this.#lookAt(this.#look, chunk);
    return more;
  }

  onDrain(resume: () => void): void {
    this.#handler.onDrain(resume);
  }

  outcome(name: string): void {
    this.#handler.outcome(name);
  }

  end(trailers: RawHeaders): void {
    if (this.#look !== undefined) this.#settle(this.#look);
    this.#handler.end(trailers);
  }

  #lookAt(look: Look, chunk: Buffer): void {
    look.start.add(chunk);
    // The first outcome in the list wins: the others have to wait until its text cannot come any more.
    if (look.start.complete || look.start.hasReached(look.first)) this.#settle(look);
  }

  /** No more of the body can change the outcome. */
  #settle({ rules, headers, start }: Look): void {
    this.#look = undefined;
    const body = start.decoded();
    const found = rules.find(({ text }) => text === undefined || body.includes(text));
    if (found !== undefined) this.#match(found, headers);
  }

  #match({ options: { name, pause, scope } }: Rule, headers: RawHeaders): void {
    if (pause !== undefined) {
      const credential = scope === 'credential' ? this.#credential : undefined;
      const ms = retryAfterMs(headers, Date.now()) ?? pause;
      this.#pauses.begin({ credential, outcome: name }, ms);
    }
    this.#handler.outcome(name);
  }
}
