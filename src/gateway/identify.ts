import type { IncomingMessage } from 'node:http';
import { GatewayError } from '../base/errors.ts';
import { ANONYMOUS, type Client } from '../policy/client.ts';

/** Tells which client sent a request. The function that it gives throws GatewayError `client-unknown`. */
export function identifier(anonymous: boolean): (request: IncomingMessage) => Client {
  return () => {
    if (anonymous) return ANONYMOUS;
    throw new GatewayError(
      'client-unknown',
      'This gateway serves known clients only, and this request does not say which client sent it.',
    );
  };
}
