import type { Behaviour } from './settings.ts';
import { digestOf, type Proof, wireText } from './verification.ts';

const cookieName = 'SIMULATOR';

/** Returns the qop values of the setting. */
export function offeredQop({ qop }: Pick<Behaviour, 'qop'>): readonly string[] {
  if (qop === 'none') return [];
  return qop === 'both' ? ['auth', 'auth-int'] : [qop];
}

/** Returns the values of WWW-Authenticate: a challenge for each algorithm, all with the same nonce. */
export function challengeLines(
  behaviour: Behaviour,
  nonce: string,
  stale: boolean,
  opaque: string,
): string[] {
  const qop = offeredQop(behaviour);
  const implied = behaviour.algorithms.length === 1 && behaviour.algorithms[0] === 'MD5' && qop.length === 0;
  const lines = behaviour.algorithms.map((algorithm) =>
    [
      `Digest realm=${quoted(wireText(behaviour.realm))}`,
      `nonce="${nonce}"`,
      `stale="${stale}"`,
      ...(qop.length === 0 ? [] : [`qop="${qop.join(',')}"`]),
      ...(implied ? [] : [`algorithm=${algorithm}`]),
      ...(behaviour.opaque ? [`opaque="${opaque}"`] : []),
      ...(behaviour.userhash ? ['userhash=true'] : []),
      ...(behaviour.charset ? ['charset=UTF-8'] : []),
    ].join(', '),
  );
  return behaviour.challenges === 'joined' ? [lines.join(', ')] : lines;
}

/**
 * Returns the value of Authentication-Info (RFC 7615), or undefined if it would be empty.
 * @param body hex hash of the response's body; undefined if not known yet, as for a streamed body, in which
 * case auth-int has no rspauth.
 */
export function authenticationInfo(
  { rspauth }: Pick<Behaviour, 'rspauth'>,
  proof: Proof,
  nextnonce: string | undefined,
  body: string | undefined,
): string | undefined {
  const parts = nextnonce === undefined ? [] : [`nextnonce="${nextnonce}"`];
  const { count } = proof;
  const whole = count?.qop === 'auth-int';
  if (rspauth !== 'none' && !(whole && body === undefined)) {
    const right = digestOf(proof, '', whole ? body : undefined);
    const shown = rspauth === 'right' ? right : `${right.startsWith('0') ? '1' : '0'}${right.slice(1)}`;
    parts.push(`rspauth="${shown}"`);
    if (count !== undefined)
      parts.push(`qop=${count.qop}`, `cnonce=${quoted(count.cnonce)}`, `nc=${count.nc}`);
  }
  return parts.length === 0 ? undefined : parts.join(', ');
}

/** Returns the value of Set-Cookie for the simulator's cookie. */
export function setCookieOf(value: string): string {
  return `${cookieName}=${value}; Path=/; HttpOnly`;
}

/** Returns the simulator's cookie in a Cookie field. */
export function cookieIn(field: string | undefined): string | undefined {
  const pair = field?.split(';').find((part) => part.trim().startsWith(`${cookieName}=`));
  return pair?.trim().slice(cookieName.length + 1);
}

function quoted(text: string): string {
  return `"${text.replace(/["\\]/g, '\\$&')}"`;
}
