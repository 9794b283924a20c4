import { GatewayError } from '../base/errors.ts';
import type { Peer } from './client-index.ts';
import type { Presented } from './presented.ts';

/** The data of a request that can identify its sender. */
export interface Evidence extends Peer, Presented {
  /** The reason why the token is invalid; undefined if it is valid or was not checked. */
  readonly whyRejected: string | undefined;
}

/** The kind of proof in a refused request, beside its address. */
export type Proof = 'none' | 'malformed' | 'api-key' | 'token' | 'certificate';

/** Returns the kind of proof that a request contained, for metrics. */
export function proofOf({ key, token, malformed, certificate }: Evidence): Proof {
  if (malformed !== undefined) return 'malformed';
  if (key !== undefined) return 'api-key';
  if (token !== undefined) return 'token';
  return certificate === undefined ? 'none' : 'certificate';
}

/**
 * Creates the error for an unidentified request. It lists the kinds of proof in the request, so that the
 * sender can see the missing one. It does not reveal which of them was right, or anything about configured
 * clients.
 */
export function unknownClient(evidence: Evidence): GatewayError {
  const shown = [...shownOf(evidence)].join(', ');
  return new GatewayError(
    'client-unknown',
    `The request does not identify a configured client. It has ${shown}. Send everything that the configuration lists for the client under identify, and no other key, token or certificate.`,
  );
}

function* shownOf({ address, key, token, malformed, whyRejected, certificate }: Evidence): Generator<string> {
  yield address === undefined ? 'no address (the proxy did not send it)' : `the address ${address}`;
  if (malformed !== undefined) yield malformed;
  else if (key === undefined) yield 'no API key';
  else yield key.id === undefined ? 'an API key' : 'a client id with an API key';
  if (token !== undefined) yield `a Bearer token${whyRejected === undefined ? '' : ` that ${whyRejected}`}`;
  if (certificate === undefined) return;
  yield 'refused' in certificate
    ? `a certificate that was not accepted (${certificate.refused})`
    : 'a certificate';
}
