import { isNativeError } from 'node:util/types';
import type { ClientAuth, Configuration, CustomFetch } from 'openid-client';
import { messageOf } from '../base/error-code.ts';
import { isGuardedUrl } from '../base/network.ts';
import { withoutQuotes } from '../base/report-error.ts';
import type { Secret } from '../base/secret.ts';
import { loadUndici } from '../base/undici.ts';

/** Time limit of each request to a provider, in seconds, and size of its response, in bytes. */
const TIMEOUT_S = 10;
const MAX_RESPONSE = 2 ** 20;
/** Tolerated clock difference, in seconds. */
const CLOCK_TOLERANCE_S = 30;

/** An OpenID provider, and the client that the gateway is there. */
export interface OpenIdProvider {
  readonly issuer: string;
  readonly clientId: string;
  /** Undefined: a public client. */
  readonly clientSecret: Secret | undefined;
  /** PEM: the authorities of the provider; undefined: those that Node.js has. */
  readonly ca: string | undefined;
}

/**
 * Reads the discovery document of a provider.
 * @throws Error if it cannot be read, is of another issuer, or lacks what the sign-in needs
 */
export async function discover({
  issuer,
  clientId,
  clientSecret,
  ca,
}: OpenIdProvider): Promise<Configuration> {
  const client = await import('openid-client');
  const url = new URL(issuer);
  const metadata = { [client.clockTolerance]: CLOCK_TOLERANCE_S };
  const execute = [client.enableNonRepudiationChecks];
  // The configuration accepts http for loopback addresses only.
  if (url.protocol === 'http:') execute.push(client.allowInsecureRequests);
  const found = await client.discovery(url, clientId, metadata, clientAuth(client, clientSecret), {
    [client.customFetch]: boundedFetch(ca),
    execute,
    timeout: TIMEOUT_S,
  });
  const { authorization_endpoint: endpoint = '' } = found.serverMetadata();
  if (!isGuardedUrl(endpoint)) {
    const message = 'the discovery document has no usable authorization_endpoint';
    throw Object.assign(new Error(message), { code: 'OAUTH_INVALID_SERVER_METADATA' });
  }
  return found;
}

/** Proves the client in the way that the provider supports; without a list that is Basic (OpenID Connect Core 1.0 §9). */
function clientAuth(client: typeof import('openid-client'), secret: Secret | undefined): ClientAuth {
  if (secret === undefined) return client.None();
  const basic = client.ClientSecretBasic(secret.reveal());
  const post = client.ClientSecretPost(secret.reveal());
  return (server, ...rest) => {
    const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    const auth = methods.includes('client_secret_basic') ? basic : post;
    return auth(server, ...rest);
  };
}

/** The fetch of undici, with a bound on the bytes of a response, which a compressed one would go round. */
function boundedFetch(ca: string | undefined): CustomFetch {
  const { Agent, fetch } = loadUndici();
  const dispatcher = new Agent({
    maxResponseSize: MAX_RESPONSE,
    connect: { minVersion: 'TLSv1.2', ...(ca !== undefined && { ca }) },
  });
  return async (url, { body, headers, ...options }) => {
    const sent = { ...headers, 'accept-encoding': 'identity' };
    const response = await fetch(url, { ...options, headers: sent, body: body as string, dispatcher });
    if (response.headers.has('content-encoding')) {
      await response.body?.cancel();
      throw new Error('the response is compressed, which the request did not accept');
    }
    return response as unknown as Response;
  };
}

/** Longest text of the provider in a reason, in characters. */
const MAX_QUOTED = 100;

/** The messages of an error and of its causes, with the code that the provider gave. They quote no token. */
export function reasonOf(error: unknown): string {
  const { cause, error: given } = error instanceof Error ? (error as Error & { error?: unknown }) : {};
  const quoted = typeof given === 'string' ? ` (${given.slice(0, MAX_QUOTED).replace(/\p{C}/gu, '?')})` : '';
  const message = messageOf(error);
  // The TypeError of a header field quotes the value, such as an access token with a line break.
  const own = `${isNativeError(error) && error.name === 'TypeError' ? withoutQuotes(message) : message}${quoted}`;
  // The message of a SyntaxError quotes the text, which can hold a token.
  return cause instanceof Error && !(cause instanceof SyntaxError) ? `${own}: ${reasonOf(cause)}` : own;
}
