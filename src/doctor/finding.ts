import type { TlsFaultName } from '../transport/errors.ts';

export type Mark = 'ok' | 'warn' | 'fail';

type Check =
  | 'egress'
  | 'connection'
  | 'tls'
  | 'challenge'
  | 'clock'
  | 'credential'
  | 'nonce'
  | 'access'
  | 'redis'
  | 'revocation'
  | 'sign-in'
  | 'audit';

/** Data of a finding for programs. Times are RFC 3339, durations in milliseconds, sizes in bytes. */
type Facts = Readonly<Record<string, string | number | boolean | null>>;

/** Result of one check. Never contains a secret, a nonce or an Authorization. */
export interface Finding {
  readonly check: Check;
  /** The credential or site that the finding is about. */
  readonly subject?: string;
  readonly mark: Mark;
  /** Undefined if the mark is ok. */
  readonly problem?: ProblemName;
  readonly saw: string;
  /** One sentence with the remedy. */
  readonly advice?: string;
  readonly facts?: Facts;
}

/** Creates a finding with the mark ok. */
export function fine(check: Check, saw: string, facts?: Facts): Finding {
  return { check, mark: 'ok', ...seen(saw, facts) };
}

/** Creates a finding with the mark and the advice of its problem. */
export function wrong(check: Check, problem: keyof typeof problems, saw: string, facts?: Facts): Finding {
  const { mark, advice } = problems[problem];
  return { check, mark, problem, advice, ...seen(saw, facts) };
}

/** Adds the credential or site that a finding is about. */
export function about(subject: string, { check, ...rest }: Finding): Finding {
  return { check, subject, ...rest };
}

function seen(saw: string, facts: Facts | undefined): Pick<Finding, 'saw' | 'facts'> {
  if (facts === undefined) return { saw: printable(saw) };
  const clean = Object.entries(facts).map(([name, value]) => [
    name,
    typeof value === 'string' ? printable(value) : value,
  ]);
  return { saw: printable(saw), facts: Object.fromEntries(clean) };
}

/** Removes control characters: an upstream chooses its realm and issuer, and could send terminal escapes. */
function printable(text: string): string {
  return text.replace(/\p{C}/gu, '?');
}

/** `warn`: it works, but should be changed. */
type Severity = 'warn' | 'fail';

interface Problem {
  readonly mark: Severity;
  /** One sentence with the remedy. A key of the deployment is in braces. */
  readonly advice: string;
}

/** Problems that doctor reports, except TLS errors, which have their own advice. */
export const problems = {
  'address-not-here': {
    mark: 'fail',
    advice: 'Add the address to an interface of this host, or correct {egress.localAddress}.',
  },
  'name-not-found': {
    mark: 'fail',
    advice:
      'Check the host in {baseUrl} for misspelling, and whether the DNS of this host knows outside names.',
  },
  'name-not-answered': {
    mark: 'fail',
    advice:
      'Check the name servers of this host (/etc/resolv.conf), and whether a firewall lets DNS through.',
  },
  'connection-refused': {
    mark: 'fail',
    advice: 'Check host and port in {baseUrl}, and ask the operator of the upstream whether it runs.',
  },
  'connection-timeout': {
    mark: 'fail',
    advice:
      'Check host and port in {baseUrl}, and ask the operators of the firewalls in between to let this host through.',
  },
  'no-route': {
    mark: 'fail',
    advice: 'Check the network of this host: it has no route to the address of the upstream.',
  },
  'not-permitted': {
    mark: 'fail',
    advice:
      'Let this user connect to host and port in {baseUrl}: a firewall or a security policy of this host refuses it.',
  },
  'no-files-left': {
    mark: 'fail',
    advice: 'Raise the limit of open files (ulimit -n, or LimitNOFILE of systemd), and run doctor again.',
  },
  'connection-broken': {
    mark: 'fail',
    advice:
      'Try again; if it happens again, ask the operator of the upstream whether this address is locked out, and the operators of the firewalls in between.',
  },
  'answer-timeout': {
    mark: 'fail',
    advice: 'Try again later; if it happens again, ask the operator of the upstream.',
  },
  proxy: { mark: 'fail', advice: 'Check {egress.proxy}, or ask the operator of the proxy.' },
  'proxy-plaintext': {
    mark: 'warn',
    advice:
      'Write https:// in {egress.proxy.url}: everyone on the network can read the password in Basic, and guess it from Digest.',
  },
  'not-https': { mark: 'fail', advice: 'Write the port in {baseUrl} on which the upstream speaks HTTPS.' },
  'not-http': {
    mark: 'fail',
    advice:
      'Check host and port in {baseUrl}; if this is the upstream, ask its operator for responses that are valid HTTP/1.1.',
  },
  plaintext: {
    mark: 'warn',
    advice: 'Write https:// in {baseUrl}: everyone on the network can read requests and responses.',
  },
  'tls-pin-mismatch': {
    mark: 'fail',
    advice:
      'Ask the operator of the upstream whether its key has changed and what the new pin is ({tls.pinSha256}); if not, another server is answering in its place.',
  },
  'certificate-expires-soon': {
    mark: 'warn',
    advice: 'Ask the operator of the upstream when the certificate will be renewed.',
  },
  'no-challenge': {
    mark: 'fail',
    advice:
      'Check {baseUrl}, and name a request that wants authentication in {digest.renewAhead.path} or under {operations}.',
  },
  'no-digest': {
    mark: 'fail',
    advice:
      'Check {baseUrl}; if this is the upstream, ask its operator for HTTP Digest, the only scheme that the gateway answers.',
  },
  'realm-missing': {
    mark: 'fail',
    advice:
      'Ask the operator of the upstream for a realm in its challenge: the gateway answers with an empty one, which the upstream may count as a failed log-in.',
  },
  'challenge-unusable': {
    mark: 'fail',
    advice: 'Ask the operator of the upstream for a challenge with MD5, SHA-256 or SHA-512-256.',
  },
  'algorithm-not-allowed': {
    mark: 'fail',
    advice: 'Add the algorithm that it offers to {digest.algorithms}, if you accept it.',
  },
  'clock-difference': {
    mark: 'warn',
    advice: 'Set the clock of this host by NTP, or tell the operator of the upstream that theirs is off.',
  },
  'credential-refused': {
    mark: 'fail',
    advice:
      'Check user name and password of this credential, or ask the operator of the upstream; each further attempt may get this address locked out.',
  },
  'credential-unsuitable': {
    mark: 'fail',
    advice: 'Give the password instead of ha1, or the hash for the realm and the algorithm that it asks for.',
  },
  'proof-invalid': {
    mark: 'fail',
    advice:
      'Do not trust its responses until its operator has explained this: another server may be answering in its place.',
  },
  'nonce-always-stale': {
    mark: 'fail',
    advice: 'Ask the operator of the upstream: it calls a nonce stale that it has just issued.',
  },
  'nonce-not-reusable': {
    mark: 'warn',
    advice:
      'Set {digest.noncePolicy} to single-use, or let auto learn it: each request costs two upstream requests unless the operator of the upstream lets nonces be reused.',
  },
  'refused-afterwards': {
    mark: 'fail',
    advice:
      'Ask the operator of the upstream whether this address is registered; behind NAT or a proxy it is the outer address that counts.',
  },
  'refused-unasked': {
    mark: 'fail',
    advice:
      'Ask the operator of the upstream whether this address is registered, and wait some minutes if it failed too often lately.',
  },
  'site-refused': {
    mark: 'fail',
    advice:
      'Check the name of this site under {sites} with the operator of the upstream: it may be wrong, or not belong to this credential.',
  },
  'probe-not-served': {
    mark: 'warn',
    advice:
      'Name a path that exists in {digest.renewAhead.path} or under {operations}, so that access to it can be seen.',
  },
  'upstream-unavailable': {
    mark: 'fail',
    advice: 'Try again later: the upstream is overloaded, under maintenance, or limits the rate.',
  },
  'upstream-error': {
    mark: 'fail',
    advice: 'Ask the operator of the upstream, or name a request that succeeds in {digest.renewAhead.path}.',
  },
  'not-examined': {
    mark: 'warn',
    advice: 'Give the site a credential of its own, or try one of its requests through the gateway.',
  },
  'redis-unreachable': {
    mark: 'fail',
    advice: 'Check the address and TLS settings under redis, and whether Redis runs.',
  },
  'redis-not-tls': {
    mark: 'fail',
    advice:
      'Write redis:// in redis.url and leave redis.tls out if this Redis has no TLS, or name its TLS port.',
  },
  'redis-refused': {
    mark: 'fail',
    advice: 'Check username and password under redis, and what the ACL of Redis lets this user do.',
  },
  'redis-not-writable': {
    mark: 'fail',
    advice: 'Name the master under redis, not a replica, and see that Redis has memory and disk left.',
  },
  'redis-unsigned': {
    mark: 'warn',
    advice:
      'Give redis.keyFile the same key on all gateways, or make sure that no one else can write to this Redis (docs/operate/redis.md).',
  },
  'audit-missing': {
    mark: 'warn',
    advice: 'Correct audit.directory if you mean another one: the gateway creates it at its start.',
  },
  'audit-not-writable': {
    mark: 'fail',
    advice: 'Let the user of the gateway write to audit.directory, and see that the disk is not read-only.',
  },
  'audit-disk-full': {
    mark: 'warn',
    advice: 'Free space on the disk of audit.directory, or shorten audit.segment.keep.',
  },
  'crl-expired': {
    mark: 'fail',
    advice:
      'Replace the list in listen.tls.crlFile by the next one of its authority: until then all of its certificates are refused.',
  },
  'sign-in-unreachable': {
    mark: 'fail',
    advice:
      'Check control.oidc.issuer and control.oidc.caFile, and whether this host reaches the provider; until then only the token opens the console.',
  },
  'sign-in-issuer': {
    mark: 'fail',
    advice: 'Write control.oidc.issuer exactly as the discovery document of the provider has it.',
  },
  'sign-in-unusable': {
    mark: 'fail',
    advice:
      'Check that control.oidc.issuer, with /.well-known/openid-configuration behind it, is the discovery document of an OpenID provider with https:// endpoints.',
  },
  'sign-in-without-pkce': {
    mark: 'warn',
    advice: 'Ask the operator of the provider to allow PKCE with S256 for this client.',
  },
  unknown: { mark: 'fail', advice: 'Report this to the maintainers of digest-gateway, with what was seen.' },
} as const satisfies Record<string, Problem>;

/** Stable names, for scripts. */
type ProblemName = keyof typeof problems | `tls-${TlsFaultName}`;
