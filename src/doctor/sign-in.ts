import { errorCode } from '../base/error-code.ts';
import { discover, type OpenIdProvider, reasonOf } from '../identity/openid-provider.ts';
import { type Finding, fine, wrong } from './finding.ts';

const PKCE = 'S256';

/** Reads the discovery document of the provider at which operators sign in. */
export async function examineSignIn(provider: OpenIdProvider): Promise<Finding> {
  try {
    const configuration = await discover(provider);
    const server = configuration.serverMetadata();
    const endsSessions = server.end_session_endpoint !== undefined;
    const facts = { issuer: server.issuer, endsSessions };
    const saw = `the discovery document is of ${server.issuer}, ${endsSessions ? 'with' : 'without'} a place to sign out`;
    // RFC 8414 §2: without a list it is not known.
    const methods = server.code_challenge_methods_supported;
    if (methods?.includes(PKCE) !== false) return fine('sign-in', saw, facts);
    return wrong('sign-in', 'sign-in-without-pkce', `${saw}, and PKCE without ${PKCE}`, facts);
  } catch (error) {
    const problem = PROBLEMS[errorCode(error)] ?? 'sign-in-unreachable';
    return wrong('sign-in', problem, reasonOf(error));
  }
}

/** Findings by codes of openid-client; other errors are those of the network. */
const PROBLEMS: Readonly<Record<string, 'sign-in-issuer' | 'sign-in-unusable'>> = {
  OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED: 'sign-in-issuer',
  OAUTH_INVALID_RESPONSE: 'sign-in-unusable',
  OAUTH_PARSE_ERROR: 'sign-in-unusable',
  OAUTH_RESPONSE_IS_NOT_JSON: 'sign-in-unusable',
  OAUTH_RESPONSE_IS_NOT_CONFORM: 'sign-in-unusable',
  OAUTH_INVALID_SERVER_METADATA: 'sign-in-unusable',
};
