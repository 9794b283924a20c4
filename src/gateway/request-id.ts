import { randomUUID } from 'node:crypto';
import { isToken } from '../base/raw-headers.ts';

const MAX_LENGTH = 128;

/** Returns the client's X-Request-Id if it is a token (RFC 9110 §5.6.2), else a new one. */
export function requestIdOf(sent: string | undefined): string {
  return sent !== undefined && sent.length <= MAX_LENGTH && isToken(sent) ? sent : randomUUID();
}
