import { createHash } from 'node:crypto';

/** A challenge's parameters by lower-case name. */
export type Challenge = ReadonlyMap<string, string>;

export interface AnswerParts {
  readonly method: string;
  readonly target: string;
  readonly username: string;
  readonly password: string;
  readonly nc?: number;
  readonly cnonce?: string;
  readonly body?: string;
  /** The first one offered when left out. */
  readonly qop?: string;
  readonly userhash?: boolean;
  /** Parameters as they are to be sent, whatever would be right; undefined leaves one out. */
  readonly change?: Readonly<Record<string, string | undefined>>;
}

/** The Digest challenges of WWW-Authenticate lines; for tests, so only well-formed ones. */
export function readChallenges(lines: readonly string[]): Challenge[] {
  return lines
    .flatMap((line) => line.split(/(?:^|,\s*)Digest\s+/))
    .filter((text) => text !== '')
    .map((text) => {
      const pairs = text.matchAll(/([\w*]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))/g);
      return new Map(
        Array.from(pairs, ([, name = '', quoted, bare = '']) => [
          name.toLowerCase(),
          quoted?.replace(/\\(.)/g, '$1') ?? bare,
        ]),
      );
    });
}

/** An Authorization value that answers the challenge, with hash code that the gateway does not share. */
export function answer(challenge: Challenge, parts: AnswerParts): string {
  const { method, target, username, password, cnonce = 'c0ffee', nc = 1 } = parts;
  const realm = challenge.get('realm') ?? '';
  const nonce = challenge.get('nonce') ?? '';
  const algorithm = challenge.get('algorithm') ?? 'MD5';
  const qop = parts.qop ?? challenge.get('qop')?.split(',')[0];
  const hash = hashFor(algorithm);
  const plain = hash(`${username}:${realm}:${password}`);
  const secret = algorithm.endsWith('-sess') ? hash(`${plain}:${nonce}:${cnonce}`) : plain;
  const message = hash(`${method}:${target}${qop === 'auth-int' ? `:${hash(parts.body ?? '')}` : ''}`);
  const count = nc.toString(16).padStart(8, '0');
  const middle = qop === undefined ? nonce : `${nonce}:${count}:${cnonce}:${qop}`;
  const fields: Record<string, string | undefined> = {
    username: quote(parts.userhash ? hash(`${username}:${realm}`) : username),
    realm: quote(realm),
    nonce: quote(nonce),
    uri: quote(target),
    algorithm: challenge.get('algorithm'),
    opaque: challenge.has('opaque') ? quote(challenge.get('opaque') ?? '') : undefined,
    ...(parts.userhash && { userhash: 'true' }),
    ...(qop !== undefined && { qop, nc: count, cnonce: quote(cnonce) }),
    response: quote(hash(`${secret}:${middle}:${message}`)),
    ...parts.change,
  };
  const pairs = Object.entries(fields).filter(([, value]) => value !== undefined);
  return `Digest ${pairs.map(([name, value]) => `${name}=${value}`).join(', ')}`;
}

/** The right rspauth for an answer with qop=auth. */
export function serverProof(challenge: Challenge, parts: AnswerParts): string {
  const proof = answer(challenge, { ...parts, method: '' });
  return /response="(\w+)"/.exec(proof)?.[1] ?? '';
}

function hashFor(algorithm: string): (text: string) => string {
  const name = algorithm.toUpperCase().replace('-SESS', '');
  const known: Record<string, string> = { MD5: 'md5', 'SHA-256': 'sha256', 'SHA-512-256': 'sha512-256' };
  return (text) =>
    createHash(known[name] ?? name)
      .update(text, 'utf8')
      .digest('hex');
}

function quote(text: string): string {
  return `"${text.replace(/["\\]/g, '\\$&')}"`;
}
