import { createHash, hash as hashOnce } from 'node:crypto';

export type AlgorithmName = 'MD5' | 'SHA-256' | 'SHA-512-256';

/** One entry of the algorithm registry that RFC 7616 §6.1 set up. */
export interface Algorithm {
  readonly name: AlgorithmName;
  /** The `-sess` form: HA1 also covers nonce and cnonce. */
  readonly session: boolean;
  /** As registered; servers spell it in any case. */
  readonly token: string;
}

/** The SHA-512/256 of FIPS 180-4 has its own initial values; it is not a SHA-512 cut to half. */
const CRYPTO_NAMES = { MD5: 'md5', 'SHA-256': 'sha256', 'SHA-512-256': 'sha512-256' } as const;

const STRENGTHS: Record<AlgorithmName, number> = { MD5: 1, 'SHA-256': 2, 'SHA-512-256': 3 };

const ALGORITHMS: readonly Algorithm[] = [
  { name: 'MD5', session: false, token: 'MD5' },
  { name: 'MD5', session: true, token: 'MD5-sess' },
  { name: 'SHA-256', session: false, token: 'SHA-256' },
  { name: 'SHA-256', session: true, token: 'SHA-256-sess' },
  { name: 'SHA-512-256', session: false, token: 'SHA-512-256' },
  { name: 'SHA-512-256', session: true, token: 'SHA-512-256-sess' },
];

/** The algorithm of a challenge's token, in any case; undefined when it is unknown. */
export function findAlgorithm(token: string): Algorithm | undefined {
  const wanted = token.toLowerCase();
  return ALGORITHMS.find((algorithm) => algorithm.token.toLowerCase() === wanted);
}

/** A higher number is a stronger algorithm. */
export function strength(name: AlgorithmName): number {
  return STRENGTHS[name];
}

/** Lower-case hex. A string is Latin-1 text, one byte for each character. */
export function hash(name: AlgorithmName, data: Buffer | string): string {
  // Node hashes a string as UTF-8, the same bytes only for ASCII; the way over a Buffer is much slower.
  const bytes =
    typeof data === 'string' && Buffer.byteLength(data) !== data.length ? Buffer.from(data, 'latin1') : data;
  return hashOnce(CRYPTO_NAMES[name], bytes);
}

/** H(entity-body) of RFC 7616 §3.4.3, as the body goes by. */
export interface BodyHash {
  update(chunk: Buffer): void;
  /** Lower-case hex; once only. */
  digest(): string;
}

/** Starts H(entity-body) of a body that comes in pieces (RFC 7616 §3.4.3). */
export function bodyHash(name: AlgorithmName): BodyHash {
  const running = createHash(CRYPTO_NAMES[name]);
  return {
    update: (chunk) => {
      running.update(chunk);
    },
    digest: () => running.digest('hex'),
  };
}
