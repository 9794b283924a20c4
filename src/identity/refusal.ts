import { GatewayError } from '../base/errors.ts';
import type { Address } from '../base/network.ts';
import type { PresentedKey } from './api-keys.ts';
import type { Shown } from './certificates.ts';

/** What a request shows of who sent it. */
export interface Evidence {
  /** undefined: a trusted proxy did not tell. */
  readonly address: Address | undefined;
  readonly certificate: Shown;
  readonly key: PresentedKey | undefined;
  readonly token: string | undefined;
  /** Why the token proves nothing; undefined: it is right, or was not looked at. */
  readonly tokenFault?: string | undefined;
}

/** What a request that was refused had tried to prove itself with, beside its address. */
export type Proof = 'none' | 'api-key' | 'token' | 'certificate';

export function proofOf({ key, token, certificate }: Evidence): Proof {
  if (key !== undefined) return 'api-key';
  if (token !== undefined) return 'token';
  return certificate === undefined ? 'none' : 'certificate';
}

/**
 * Says what the request showed, so that its sender can see what is missing; not which part of it was right,
 * and nothing of the clients that there are.
 */
export function unknownClient(evidence: Evidence): GatewayError {
  const shown = [...shownOf(evidence)].join(', ');
  return new GatewayError(
    'client-unknown',
    `The request does not identify a configured client. It has ${shown}. Send everything that the configuration lists for the client under identify.`,
  );
}

function* shownOf({ address, key, token, tokenFault, certificate }: Evidence): Generator<string> {
  yield address === undefined ? 'no address (the proxy did not send it)' : `the address ${address}`;
  if (key === undefined) yield 'no API key';
  else yield key.id === undefined ? 'an API key' : 'a client id with an API key';
  if (token !== undefined) yield `a Bearer token${tokenFault === undefined ? '' : ` that ${tokenFault}`}`;
  if (certificate === undefined) return;
  yield 'refused' in certificate
    ? `a certificate that was not accepted (${certificate.refused})`
    : 'a certificate';
}
