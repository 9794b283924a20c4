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
  | 'certificate'
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
export function wrong(check: Check, problem: keyof typeof ADVICE, saw: string, facts?: Facts): Finding {
  const mark = problem in WARNINGS ? 'warn' : 'fail';
  return { check, mark, problem, advice: ADVICE[problem], ...seen(saw, facts) };
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

/*
 * The problems that doctor reports, except TLS errors, which have their own advice: one sentence with the remedy for
 * each. A key of the deployment is in braces.
 */

const FAILURES = {
  'address-not-here': 'Add the address to an interface of this host, or correct {egress.localAddress}.',
  'name-not-found':
    'Check the host in {baseUrl} for misspelling, and whether the DNS of this host knows outside names.',
  'name-not-answered':
    'Check the name servers of this host (/etc/resolv.conf), and whether a firewall lets DNS through.',
  'name-of-other-family':
    'Name an address of the other family (IPv4 or IPv6) in {egress.localAddress}, and have the upstream register it.',
  'connection-refused':
    'Check host and port in {baseUrl}, and ask the operator of the upstream whether it runs.',
  'connection-timeout':
    'Check host and port in {baseUrl}, and ask the operators of the firewalls in between to let this host through.',
  'handshake-timeout':
    'Ask the operator of the upstream whether it is overloaded, and those of the network whether large packets are lost on the way (path MTU).',
  'no-route': 'Check the network of this host: it has no route to the address of the upstream.',
  'not-permitted':
    'Let this user connect to host and port in {baseUrl}: a firewall or a security policy of this host refuses it.',
  'no-files-left':
    'Raise the limit of open files (ulimit -n, or LimitNOFILE of systemd), and run doctor again.',
  'connection-broken':
    'Try again; if it happens again, ask the operator of the upstream whether this address is locked out, and the operators of the firewalls in between.',
  'answer-timeout': 'Try again later; if it happens again, ask the operator of the upstream.',
  proxy: 'Check {egress.proxy}, or ask the operator of the proxy.',
  'not-https': 'Write the port in {baseUrl} on which the upstream speaks HTTPS.',
  'not-http':
    'Check host and port in {baseUrl}; if this is the upstream, ask its operator for responses that are valid HTTP/1.1.',
  'tls-pin-mismatch':
    'Ask the operator of the upstream whether its key has changed and what the new pin is ({tls.pinSha256}); if not, another server is answering in its place.',
  'no-challenge':
    'Check {baseUrl}, and name a request that wants authentication in {digest.renewAhead.path} or under {operations}.',
  'no-digest':
    'Check {baseUrl}; if this is the upstream, ask its operator for HTTP Digest, the only scheme that the gateway answers.',
  'realm-missing':
    'Ask the operator of the upstream for a realm in its challenge: the gateway answers with an empty one, which the upstream may count as a failed log-in.',
  'challenge-unusable': 'Ask the operator of the upstream for a challenge with MD5, SHA-256 or SHA-512-256.',
  'challenge-too-long':
    'Ask the operator of the upstream for a nonce and an opaque of at most 4096 characters, a realm of at most 1024, and WWW-Authenticate of at most 16 KiB.',
  'algorithm-not-allowed': 'Add the algorithm that it offers to {digest.algorithms}, if you accept it.',
  'credential-refused':
    'Check user name and password of this credential, or ask the operator of the upstream; each further attempt may get this address locked out.',
  'credential-unproven':
    'Ask the operator of the upstream whether this address is registered (behind NAT or a proxy it is the outer address that counts), and whether a wrong password gets 403, too: then check user name and password, which each request tries.',
  'credential-unsuitable':
    'Give the password instead of ha1, or the hash for the realm and the algorithm that it asks for.',
  'proof-invalid':
    'Do not trust its responses until its operator has explained this: another server may be answering in its place.',
  'nonce-always-stale': 'Ask the operator of the upstream: it calls a nonce stale that it has just issued.',
  'refused-afterwards':
    'Ask the operator of the upstream whether this address is registered; behind NAT or a proxy it is the outer address that counts.',
  'refused-unasked':
    'Ask the operator of the upstream whether this address is registered, and wait some minutes if it failed too often lately.',
  'site-refused':
    'Check the name of this site under {sites} with the operator of the upstream: it may be wrong, or not belong to this credential.',
  'upstream-locked':
    'Ask the operator of the upstream to unlock the account or this address, and do not try again before: each further attempt may lock it for longer.',
  'upstream-rate-limited':
    'Wait some minutes, and ask the operator of the upstream for a higher limit if the gateway meets it, too.',
  'upstream-unavailable': 'Try again later: the upstream is overloaded or under maintenance.',
  'upstream-error':
    'Ask the operator of the upstream, or name a request that succeeds in {digest.renewAhead.path}.',
  'redis-unreachable': 'Check the address and TLS settings under redis, and whether Redis runs.',
  'redis-not-tls':
    'Write redis:// in redis.url and leave redis.tls out if this Redis has no TLS, or name its TLS port.',
  'redis-refused': 'Check username and password under redis, and what the ACL of Redis lets this user do.',
  'redis-not-ready':
    'Run doctor again when Redis has loaded its data, and see that each slot of a Cluster is served (redis-cli --cluster check).',
  'redis-full': 'Raise maxclients of Redis, or find out who keeps its connections (CLIENT LIST).',
  'redis-not-writable':
    'Name the master under redis, not a replica, and see that Redis has memory and disk left.',
  'audit-not-writable':
    'Let the user of the gateway write to audit.directory and all that is in it (chown -R), and see that the disk is neither read-only nor full.',
  'listen-certificate-expired':
    'Replace the files of listen.tls: clients that check the certificate do not connect any more.',
  'listen-certificate-not-yet-valid':
    'Replace the files of listen.tls, or correct the clock of this host: until then clients that check the certificate do not connect.',
  'crl-expired':
    'Replace the list in listen.tls.crlFile by the next one of its authority: until then all of its certificates are refused.',
  'sign-in-unreachable':
    'Check control.oidc.issuer and control.oidc.caFile, and whether this host reaches the provider; until then only the token opens the console.',
  'sign-in-issuer': 'Write control.oidc.issuer exactly as the discovery document of the provider has it.',
  'sign-in-unusable':
    'Check that control.oidc.issuer, with /.well-known/openid-configuration behind it, is the discovery document of an OpenID provider with https:// endpoints.',
  unknown: 'Report this to the maintainers of digest-gateway, with what was seen.',
} as const;

/** It works, but should be changed. */
const WARNINGS = {
  'proxy-plaintext':
    'Write https:// in {egress.proxy.url}: everyone on the network can read the password in Basic, and guess it from Digest.',
  plaintext: 'Write https:// in {baseUrl}: everyone on the network can read requests and responses.',
  'certificate-expires-soon': 'Ask the operator of the upstream when the certificate will be renewed.',
  'listen-certificate-expires-soon':
    'Replace the files of listen.tls in time; the gateway reads them again when they change.',
  'clock-difference':
    'Set the clock of this host by NTP, or tell the operator of the upstream that theirs is off.',
  'nonce-not-reusable':
    'Set {digest.noncePolicy} to single-use, or let auto learn it: each request costs two upstream requests unless the operator of the upstream lets nonces be reused.',
  'probe-not-served':
    'Name a path that exists in {digest.renewAhead.path} or under {operations}, so that access to it can be seen.',
  'not-examined': 'Give the site a credential of its own, or try one of its requests through the gateway.',
  'not-reached':
    'Try a request with this credential through the gateway: the upstream responds too slowly for doctor to test every credential in 8 s.',
  'redis-unsigned':
    'Give redis.keyFile the same key on all gateways, or make sure that no one else can write to this Redis (docs/operate/redis.md).',
  'audit-missing': 'Correct audit.directory if you mean another one: the gateway creates it at its start.',
  'audit-disk-full': 'Free space on the disk of audit.directory, or shorten audit.segment.keep.',
  'sign-in-without-pkce': 'Ask the operator of the provider to allow PKCE with S256 for this client.',
} as const;

/** The advice for each problem but TLS errors. */
export const ADVICE = { ...FAILURES, ...WARNINGS };

/** Stable names, for scripts. */
type ProblemName = keyof typeof ADVICE | `tls-${TlsFaultName}`;
