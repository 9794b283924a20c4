import type { Secret } from '../base/secret.ts';
import type { Config } from '../config/schema.ts';
import type { OpenIdProvider } from '../identity/openid-provider.ts';
import type { ContentReading } from './content.ts';

/** The values that sign-in with OpenID Connect reads from outside the configuration. */
export interface OidcContent {
  /** Undefined: the console is a public client. */
  readonly clientSecret: Secret | undefined;
  /** PEM; undefined: the authorities that Node.js has. */
  readonly ca: string | undefined;
}

/** Reads secret and authorities of `control.oidc`; undefined without that section. */
export async function readOidc(
  section: Config['control']['oidc'],
  reading: ContentReading,
): Promise<OidcContent | undefined> {
  if (section === undefined) return undefined;
  const path = ['control', 'oidc'];
  return {
    clientSecret: await reading.secret(section.clientSecret, [...path, 'clientSecret']),
    ca: await reading.authority(section.caFile, path),
  };
}

interface OidcSetup {
  readonly config: Config;
  readonly oidc: OidcContent | undefined;
}

/** The provider at which operators sign in; undefined: there is none. */
export function openIdProvider({ config, oidc: content }: OidcSetup): OpenIdProvider | undefined {
  const { oidc } = config.control;
  return oidc && content && { issuer: oidc.issuer, clientId: oidc.clientId, ...content };
}
