import { Random } from '../simulation/random.ts';
import {
  type Answer,
  brokenAnswer,
  challengeAnswer,
  cleanAnswer,
  oddChallenge,
  oddProof,
} from './answers.ts';

/** Deployments whose upstream refuses good credentials now and then: each has its own, which may count as refused. */
export const REFUSING = 16;
/** One exchange of so many goes over TLS. */
const TLS_SHARE = 20;

/** One request of a client, and what the upstream answers to it. */
export interface ExchangeScript {
  readonly seed: number;
  /** Name of the deployment, with which the target begins. */
  readonly deployment: string;
  readonly method: 'GET' | 'HEAD' | 'POST';
  readonly version: '1.0' | '1.1';
  /** Undefined: none. */
  readonly body: string | undefined;
  /**
   * The answer to an attempt.
   * @param number from 0
   * @param method of the attempt: HEAD where the gateway asks for a challenge only
   */
  answerTo(number: number, method: string, isAuthenticated: boolean): Answer;
  /** True if the client must get the response of the upstream. */
  readonly isClean: boolean;
}

type Kind = 'clean' | 'broken' | 'challenge' | 'refusal' | 'proof';

/** Larger than what the gateway keeps: it asks for a challenge before it sends such a body. */
export const STREAMED_BYTES = 2_000;
export const KEPT_BYTES = 1_024;

export function scriptOf(seed: number): ExchangeScript {
  const random = new Random(`upstream ${seed}`);
  const kind = kindOf(random);
  const method = kind === 'challenge' ? 'POST' : random.pick(['GET', 'GET', 'GET', 'HEAD', 'POST'] as const);
  const body = bodyOf(random, kind, method);
  const isClean = kind === 'clean' && method !== 'POST';
  return {
    seed,
    deployment: deploymentOf(random, seed, kind),
    method,
    version: random.next() < 0.03 ? '1.0' : '1.1',
    body,
    isClean,
    answerTo: (number, asked, isAuthenticated) =>
      answerTo({ seed, kind, number, method: asked, isAuthenticated }),
  };
}

function kindOf(random: Random): Kind {
  const value = random.next();
  if (value < 0.25) return 'clean';
  if (value < 0.7) return 'broken';
  if (value < 0.85) return 'challenge';
  return value < 0.95 ? 'refusal' : 'proof';
}

function bodyOf(random: Random, kind: Kind, method: string): string | undefined {
  if (method !== 'POST') return undefined;
  return 'x'.repeat(kind === 'challenge' || random.next() < 0.2 ? STREAMED_BYTES : random.whole(0, 100));
}

function deploymentOf(random: Random, seed: number, kind: Kind): string {
  if (kind === 'refusal') return `refusing-${random.whole(0, REFUSING - 1)}`;
  return seed % TLS_SHARE === 0 ? 'tls' : 'plain';
}

interface Attempt {
  readonly seed: number;
  readonly kind: Kind;
  readonly method: string;
  readonly number: number;
  readonly isAuthenticated: boolean;
}

function answerTo({ seed, kind, method, number, isAuthenticated }: Attempt): Answer {
  const random = new Random(`answer ${seed} ${number} ${isAuthenticated}`);
  const marker = `s${seed}a${number}`;
  if (!isAuthenticated) {
    return kind === 'challenge' || (kind === 'refusal' && random.next() < 0.2)
      ? oddChallenge(random, marker, method)
      : challengeAnswer(random, marker, method, number > 0);
  }
  if (kind === 'refusal' && random.next() < 0.6) {
    return random.next() < 0.5
      ? challengeAnswer(random, marker, method, random.next() < 0.5)
      : oddChallenge(random, marker, method);
  }
  if (kind === 'proof') return oddProof(random, method, marker);
  // A request that is repeated meets a better answer, mostly.
  const breaks = kind === 'broken' && (number === 0 || random.next() < 0.4);
  return breaks ? brokenAnswer(random, method, marker) : cleanAnswer(random, method, marker);
}
