import { createHash, X509Certificate } from 'node:crypto';
import type { DetailedPeerCertificate } from 'node:tls';
import { GatewayError } from '../base/errors.ts';

/** Longer chains than that are nobody's. */
const MAX_CHAIN = 16;

/** No key of the peer's chain is pinned. */
export class PinMissing extends GatewayError {
  constructor() {
    super(
      'upstream-tls',
      'The TLS connection to the upstream cannot be trusted: no key in its certificate chain is in tls.pinSha256. Ask its operator whether its key has changed and what the new pin is; if not, another server is answering in its place.',
      undefined,
      { proxyError: 'tls_certificate_error' },
    );
  }
}

/** Base64 of the SHA-256 of a certificate's SubjectPublicKeyInfo, as RFC 7469 §2.4 has it. */
export function pinOf(certificate: X509Certificate): string {
  const key = certificate.publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(key).digest('base64');
}

/** True if the certificate of the peer, or one that vouches for it, has one of these keys. */
export function showsPin(peer: DetailedPeerCertificate, pins: readonly string[]): boolean {
  try {
    return signedChain(peer).some((each) => pins.includes(pinOf(each)));
  } catch {
    // The peer sent a certificate with a kind of key that OpenSSL does not know.
    return false;
  }
}

/**
 * The certificates from the peer's own up, as far as each is signed by the next. Node links them by name only,
 * and the peer chooses what it sends: without the signatures anybody could append the pinned certificate.
 */
function signedChain(peer: DetailedPeerCertificate): X509Certificate[] {
  const chain: X509Certificate[] = [];
  let next: DetailedPeerCertificate | undefined = peer;
  while (next?.raw !== undefined && chain.length < MAX_CHAIN) {
    const certificate = new X509Certificate(next.raw);
    const below = chain.at(-1);
    if (below !== undefined && !below.verify(certificate.publicKey)) break;
    chain.push(certificate);
    // A root names itself as its issuer.
    next = next.issuerCertificate === next ? undefined : next.issuerCertificate;
  }
  return chain;
}
