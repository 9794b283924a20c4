import type { Log } from '../base/log.ts';
import type { Steps } from '../base/steps.ts';
import type { Config } from '../config/schema.ts';
import { Identification } from '../identity/identification.ts';
import { Tokens } from '../identity/tokens.ts';
import type { Metrics } from '../metrics/metrics.ts';

interface IdentityDeps {
  readonly log: Log;
  readonly metrics: Metrics;
}

/** Builds the identification of clients, and starts to fetch the keys of the token issuers. */
export function* buildIdentification(
  { clients, jwt, anonymous, listen }: Config,
  { log, metrics }: IdentityDeps,
): Steps<Identification> {
  const tokens = new Tokens(jwt?.issuers ?? [], (issuer, reachable, reason) => {
    if (reachable) log.info({ issuer }, 'keys of a token issuer fetched again');
    else log.warn({ issuer, reason }, 'keys of a token issuer cannot be fetched; check jwksUrl');
  });
  void tokens.prefetch();
  const { trustedProxies, forwardedHeader } = listen;
  return yield* Identification.build(
    { clients, anonymous, trustedProxies, forwardedHeader },
    { tokens, onRefusal: (proof) => metrics.identificationRefusals.inc({ proof }), now: () => Date.now() },
  );
}
