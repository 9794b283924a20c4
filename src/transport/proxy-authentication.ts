import { randomBytes } from 'node:crypto';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { checkProof, parseAuthenticationInfo } from '../digest/authentication-info.ts';
import {
  type Credential,
  canAnswer,
  chooseFor,
  type PreparedAnswer,
  prepareAnswer,
} from '../digest/authorization.ts';
import { type Challenge, offersScheme, parseChallenges, withNonce } from '../digest/challenge.ts';
import {
  basicNotAllowed,
  noCredential,
  passwordNeeded,
  proxyProofInvalid,
  proxyRefusesCredential,
  unusableProxyChallenge,
} from './proxy-errors.ts';

/** RFC 7616 §3.4: nc is eight hex digits. */
const LAST_COUNT = 0xffffffff;
const ALGORITHMS: readonly AlgorithmName[] = ['SHA-512-256', 'SHA-256', 'MD5'];

type PasswordCredential = Extract<Credential, { readonly password: unknown }>;

export interface ProxyAccount {
  /** undefined: the proxy is expected not to ask. */
  readonly credential: Credential | undefined;
  /** Whether the password may be sent as it is. */
  readonly basicAllowed: boolean;
}

/** A nonce of the proxy, and how many answers went out with it. */
interface ProxyNonce {
  readonly prepared: PreparedAnswer;
  readonly cnonce: string;
  count: number;
}

/** One `Proxy-Authorization`, for one CONNECT. */
export interface ProxyAnswer {
  readonly header: string;
  /** Answers a challenge that was obtained for this CONNECT: if it is refused, so is the credential. */
  readonly own: boolean;
  /** undefined: Basic. */
  readonly nonce: ProxyNonce | undefined;
}

/** What authenticates to one proxy, for every connection to one upstream. */
export class ProxyAuthentication {
  readonly #account: ProxyAccount;
  /** `host:port`, the target of every CONNECT. */
  readonly #uri: string;
  /** Nonces that no CONNECT is using. One at a time: proxies refuse counts that come out of order. */
  readonly #free: ProxyNonce[] = [];
  #basicAccepted = false;

  constructor(account: ProxyAccount, uri: string) {
    this.#account = account;
    this.#uri = uri;
  }

  get credential(): Credential | undefined {
    return this.#account.credential;
  }

  /** What can be sent without being asked; undefined: nothing is known yet. */
  known(): ProxyAnswer | undefined {
    const { credential } = this.#account;
    const nonce = this.#free.pop();
    if (nonce !== undefined) return this.#digest(nonce, false);
    return this.#basicAccepted && credential !== undefined && 'password' in credential
      ? basic(credential)
      : undefined;
  }

  /**
   * The answer to the `Proxy-Authenticate` field lines of a 407; `refused`: what the CONNECT carried.
   * @throws GatewayError when there is nothing to answer, or no sense in it
   */
  answer(lines: readonly string[], refused: ProxyAnswer | undefined): ProxyAnswer {
    const { credential, basicAllowed } = this.#account;
    if (credential === undefined) throw noCredential();
    const challenge = chooseFor(credential, parseChallenges(lines), ALGORITHMS);
    if (refused?.own === true && challenge?.stale !== true) throw proxyRefusesCredential();
    if (challenge !== undefined && !canAnswer(challenge, credential)) throw passwordNeeded();
    if (challenge !== undefined) return this.#digest(newNonce(challenge, credential), true);
    if (!offersScheme(lines, 'basic')) throw unusableProxyChallenge();
    if (!basicAllowed) throw basicNotAllowed();
    if (!('password' in credential)) throw passwordNeeded();
    return basic(credential);
  }

  /** The proxy looked at the answer and had something else to say than 407. */
  release({ nonce }: ProxyAnswer): void {
    if (nonce !== undefined && nonce.count < LAST_COUNT) this.#free.push(nonce);
  }

  /**
   * The proxy made the tunnel; `info`: its `Proxy-Authentication-Info` field lines.
   * @throws GatewayError when it could not prove that it knows the credential
   */
  accepted(answer: ProxyAnswer, lines: readonly string[]): void {
    const { nonce } = answer;
    if (nonce === undefined) {
      this.#basicAccepted = true;
      return;
    }
    const { prepared, cnonce, count: nc } = nonce;
    const info = parseAuthenticationInfo(lines);
    if (checkProof(info, prepared, { uri: this.#uri, nc, cnonce }) === 'invalid') throw proxyProofInvalid();
    const { credential } = this.#account;
    if (info.nextnonce === undefined || credential === undefined) this.release(answer);
    else this.#free.push(newNonce(withNonce(prepared.challenge, info.nextnonce), credential));
  }

  #digest(nonce: ProxyNonce, own: boolean): ProxyAnswer {
    nonce.count += 1;
    const header = nonce.prepared.authorize({ method: 'CONNECT', uri: this.#uri, nc: nonce.count });
    return { header, own, nonce };
  }
}

function newNonce(challenge: Challenge, credential: Credential): ProxyNonce {
  const cnonce = randomBytes(16).toString('hex');
  return { prepared: prepareAnswer(challenge, credential, cnonce), cnonce, count: 0 };
}

/** RFC 7617 §2. */
function basic({ username, password }: PasswordCredential): ProxyAnswer {
  const pair = Buffer.from(`${username}:${password.reveal()}`.normalize('NFC'));
  return { header: `Basic ${pair.toString('base64')}`, own: true, nonce: undefined };
}
