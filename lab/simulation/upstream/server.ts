import { hashOf } from '../../../src/simulator/verification.ts';
import type { SimulatedProcess } from '../world.ts';
import type { Profile } from './profiles.ts';

/** A request as it reaches the server. */
export interface UpstreamMessage {
  /** Where it comes from. */
  readonly address: string;
  readonly method: string;
  readonly uri: string;
  /** Flat list of names and values. */
  readonly headers: readonly string[];
}

export interface UpstreamReply {
  readonly status: number;
  readonly headers: readonly string[];
  readonly verdict: Verdict;
}

/** Why the server answers so. */
export type Verdict =
  | 'accepted'
  | 'busy'
  | 'not-authenticated'
  | 'password'
  | 'expired'
  | 'unknown'
  | 'count'
  | 'address'
  | 'state';

interface IssuedNonce {
  readonly nonce: string;
  readonly issuedAt: number;
  readonly address: string;
  readonly opaque: string;
  readonly cookie: string;
  firstUsedAt: number | undefined;
  uses: number;
  highest: number;
  readonly counts: Set<number>;
  killed: boolean;
}

/** The parameters of an Authorization field. */
type Answer = ReadonlyMap<string, string>;

export const REALM = 'simulation';
export const USERNAME = 'gateway';
/** Share of a lifetime, or of the uses, after which a server that does so names the next nonce. */
const NEAR_END = 0.9;

/** A server of HTTP Digest, with hash code of its own (RFC 7616 §3.4). */
export class UpstreamServer {
  readonly profile: Profile;
  readonly #nonces = new Map<string, IssuedNonce>();
  /** The latest nonce of each opaque. */
  readonly #latest = new Map<string, string>();
  readonly #ha1 = new Map<string, string>();
  /** Passwords that it accepts. */
  passwords: readonly string[];
  /** Until then it is too busy to look at credentials. */
  busyUntil = 0;
  /** Servers with different ones have nonces of their own. */
  readonly #key: string;
  /** Nonces that were issued more than once, within a millisecond. */
  readonly #reissued: Set<string>;
  #issued = 0;

  constructor(profile: Profile, password: string, key: string, reissued: Set<string>) {
    this.profile = profile;
    this.passwords = [password];
    this.#key = key;
    this.#reissued = reissued;
  }

  /** Forgets all nonces; a server that keeps nothing of them does so only if its key changes. */
  forget(changesKey: boolean): void {
    if (this.profile.stateless === true && !changesKey) return;
    this.#nonces.clear();
    this.#latest.clear();
  }

  handle(message: UpstreamMessage, process: SimulatedProcess): UpstreamReply {
    const { now } = process.world;
    if (now < this.busyUntil) return { status: 503, headers: [], verdict: 'busy' };
    const answer = answerIn(message.headers);
    if (answer === undefined) return this.#challenge(message, process, 'not-authenticated');
    const verdict = this.#judge(message, answer, now);
    if (verdict !== 'accepted') return this.#challenge(message, process, verdict, answer);
    return this.#accept(message, answer, process);
  }

  #judge(message: UpstreamMessage, answer: Answer, now: number): Verdict {
    const { stale } = this.profile;
    const issued = this.#nonces.get(answer.get('nonce') ?? '');
    const age = this.#ageVerdict(issued, now);
    if (stale === 'first' && age !== 'accepted') return age;
    if (!this.#isRight(message, answer)) return 'password';
    if (issued === undefined || age !== 'accepted') return age;
    const binding = this.#bindingVerdict(issued, message, answer);
    return binding === 'accepted' ? this.#countVerdict(issued, answer) : binding;
  }

  #ageVerdict(issued: IssuedNonce | undefined, now: number): Verdict {
    if (issued === undefined) return 'unknown';
    const { lifetimeMs, usedLifetimeMs, uses } = this.profile;
    const isOver =
      issued.killed ||
      issued.uses >= (uses ?? Number.POSITIVE_INFINITY) ||
      (usedLifetimeMs === undefined || issued.firstUsedAt === undefined
        ? now - issued.issuedAt >= lifetimeMs
        : now - issued.firstUsedAt >= usedLifetimeMs);
    return isOver ? 'expired' : 'accepted';
  }

  #bindingVerdict(issued: IssuedNonce, { address, headers }: UpstreamMessage, answer: Answer): Verdict {
    const { boundToAddress, cookie, opaque } = this.profile;
    if (boundToAddress === true && issued.address !== address) return 'address';
    if (cookie === true && !valuesOf(headers, 'cookie').some((value) => value.includes(issued.cookie))) {
      return 'state';
    }
    if (opaque !== 'none' && answer.get('opaque') !== issued.opaque) return 'state';
    if (opaque === 'state' && this.#latest.get(issued.opaque) !== issued.nonce) return 'expired';
    return 'accepted';
  }

  #countVerdict(issued: IssuedNonce, answer: Answer): Verdict {
    const { counted, count, countsBelow, killsDisorder } = this.profile;
    if (!counted || count === 'ignored') return 'accepted';
    const nc = countOf(answer);
    if (nc >= (countsBelow ?? Number.POSITIVE_INFINITY)) return 'expired';
    const isRefused =
      count === 'rising'
        ? nc <= issued.highest
        : issued.counts.has(nc) || (count === 'window' && nc > issued.highest + 50);
    if (isRefused && killsDisorder === true) issued.killed = true;
    return isRefused ? 'count' : 'accepted';
  }

  #isRight({ method, uri }: UpstreamMessage, answer: Answer): boolean {
    if (answer.get('username') !== USERNAME || answer.get('uri') !== uri) return false;
    const response = answer.get('response');
    return this.passwords.some(
      (password) => this.#response(password, `${method}:${uri}`, answer) === response,
    );
  }

  #response(password: string, a2: string, answer: Answer): string {
    const name = this.#hash;
    let ha1 = this.#ha1.get(password);
    if (ha1 === undefined) {
      ha1 = hashOf(name, USERNAME, REALM, password);
      this.#ha1.set(password, ha1);
    }
    const ha2 = hashOf(name, a2);
    const { nonce = '', nc = '', cnonce = '', qop } = Object.fromEntries(answer);
    if (qop === undefined) return hashOf(name, ha1, nonce, ha2);
    return hashOf(name, ha1, nonce, nc, cnonce, qop, ha2);
  }

  get #hash(): 'md5' | 'sha256' {
    return this.profile.algorithm === 'MD5' ? 'md5' : 'sha256';
  }

  #accept(message: UpstreamMessage, answer: Answer, process: SimulatedProcess): UpstreamReply {
    const issued = this.#nonces.get(answer.get('nonce') ?? '');
    if (issued === undefined) throw new TypeError('a nonce that is not known was accepted');
    const { now } = process.world;
    const nc = countOf(answer);
    issued.uses += 1;
    issued.firstUsedAt ??= now;
    issued.highest = Math.max(issued.highest, nc);
    issued.counts.add(nc);
    const info = [this.#nextNonce(issued, message.address, process), this.#proof(message, answer)].filter(
      (part) => part !== '',
    );
    const headers = info.length === 0 ? [] : ['authentication-info', info.join(', ')];
    return { status: 200, headers, verdict: 'accepted' };
  }

  #nextNonce(issued: IssuedNonce, address: string, process: SimulatedProcess): string {
    const { nextnonce, lifetimeMs, uses = Number.POSITIVE_INFINITY } = this.profile;
    if (nextnonce === 'never') return '';
    const isNearEnd =
      issued.uses >= NEAR_END * uses || process.world.now - issued.issuedAt >= NEAR_END * lifetimeMs;
    if (nextnonce === 'near-end' && !isNearEnd) return '';
    return `nextnonce="${this.#issue(address, issued.opaque, issued.cookie, process).nonce}"`;
  }

  #proof({ method, uri }: UpstreamMessage, answer: Answer): string {
    if (!this.profile.rspauth) return '';
    const response = answer.get('response');
    const password = this.passwords.find(
      (each) => this.#response(each, `${method}:${uri}`, answer) === response,
    );
    const proof = this.#response(password ?? '', `:${uri}`, answer);
    return `rspauth="${proof}", cnonce="${answer.get('cnonce')}", nc=${answer.get('nc')}, qop=auth`;
  }

  #issue(address: string, opaque: string, cookie: string, process: SimulatedProcess): IssuedNonce {
    this.#issued += 1;
    const { timed, lifetimeMs } = this.profile;
    const nonce =
      timed === true
        ? Buffer.from(
            `${process.epoch + lifetimeMs}:${hashOf('md5', this.#key, String(process.epoch))}`,
          ).toString('base64')
        : process.random.bytes(12).toString('hex');
    const known = this.#nonces.get(nonce);
    if (known !== undefined) {
      this.#reissued.add(nonce);
      return known;
    }
    const issuedAt = process.world.now;
    const state = { firstUsedAt: undefined, uses: 0, highest: 0, counts: new Set<number>(), killed: false };
    const issued = { nonce, issuedAt, address, opaque, cookie, ...state };
    this.#nonces.set(nonce, issued);
    this.#latest.set(opaque, nonce);
    return issued;
  }

  #challenge(
    message: UpstreamMessage,
    process: SimulatedProcess,
    verdict: Verdict,
    answer?: Answer,
  ): UpstreamReply {
    const { algorithm, counted, opaque: kind, cookie: hasCookie } = this.profile;
    const opaque = this.#opaqueFor(kind, answer);
    const cookie = hasCookie === true ? `session=${process.random.bytes(8).toString('hex')}` : '';
    const { nonce } = this.#issue(message.address, opaque, cookie, process);
    const parts = [`realm="${REALM}"`, `nonce="${nonce}"`, `algorithm=${algorithm}`];
    if (counted) parts.push('qop="auth"');
    if (kind !== 'none') parts.push(`opaque="${opaque}"`);
    if (this.#isStale(verdict)) parts.push('stale="true"');
    const headers = ['www-authenticate', `Digest ${parts.join(', ')}`];
    if (cookie !== '') headers.push('set-cookie', `${cookie}; Path=/; HttpOnly`);
    return { status: 401, headers, verdict };
  }

  /** A server that keeps state by opaque goes on with the one that a client sends. */
  #opaqueFor(kind: Profile['opaque'], answer: Answer | undefined): string {
    if (kind !== 'state') return 'opaque';
    const sent = answer?.get('opaque');
    if (sent !== undefined && this.#latest.has(sent)) return sent;
    return `state-${this.#issued}`;
  }

  #isStale(verdict: Verdict): boolean {
    const { stale, unknown } = this.profile;
    if (stale === 'never') return false;
    return verdict === 'expired' || (verdict === 'unknown' && unknown === 'stale');
  }
}

function countOf(answer: Answer): number {
  return Number.parseInt(answer.get('nc') ?? '0', 16);
}

export function valuesOf(headers: readonly string[], name: string): string[] {
  return headers.filter((_, at) => at % 2 === 1 && headers[at - 1]?.toLowerCase() === name);
}

/** The parameters of the answer to a challenge; undefined: there is none. */
export function answerIn(headers: readonly string[]): Answer | undefined {
  const [field] = valuesOf(headers, 'authorization');
  if (field === undefined) return undefined;
  const parameters = field.matchAll(/([a-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))/g);
  return new Map(Array.from(parameters, ([, name = '', quoted, token]) => [name, quoted ?? token ?? '']));
}
