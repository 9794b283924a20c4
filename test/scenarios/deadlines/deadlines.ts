import { expect } from '@jest/globals';
import { auditOptions } from '../../support/audit-log.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { type RunningGateway, startGateway } from '../../support/gateway.ts';
import { startConnections, type UpstreamConnection } from '../../support/scripted-upstream.ts';

/** The timeout that a test is about, and the others: each fault has to end by its own one. */
export const OWN_MS = 500;
export const OWN = `${OWN_MS}ms`;
/** In place of it for `timeouts.total`, which counts from the start of the request: the fault has to be reached in it. */
const OWN_TOTAL_MS = 3_000;
export const OTHERS_MS = 60_000;
export const OTHERS = `${OTHERS_MS}ms`;

export const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

/** A 401. `rest`: its framing, and the start of its body. */
export const challenge = (nonce: string, rest = 'Content-Length: 0\r\n\r\n'): string =>
  `HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Digest realm="x", nonce="${nonce}", qop="auth"\r\n${rest}`;

export const isSigned = (head: string): boolean => /^authorization: digest /im.test(head);

/** Answers every request, after a challenge. */
export async function answering(connection: UpstreamConnection): Promise<void> {
  for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
    await connection.write(isSigned(head) ? OK : challenge('first'));
  }
}

export type Timeout = 'connect' | 'response' | 'idle' | 'total';

export interface AuditedGateway {
  readonly gateway: RunningGateway;
  /** Of the audit log. */
  readonly directory: string;
  /** The timeout that the test is about, in milliseconds. */
  readonly ownMs: number;
}

export interface DeadlineOptions {
  readonly origin: string;
  /** PEM of the authority of the upstream. */
  readonly ca?: string;
  readonly settings: object;
  /** The one that is short. */
  readonly timeout: Timeout;
  /** Of the audit log. */
  readonly directory: string;
}

/**
 * A gateway with the deployments `up`, which has two connections, and `other`, whose upstream has no faults. Both have
 * a nonce and a free connection.
 */
export async function startDeadlines(options: DeadlineOptions): Promise<AuditedGateway> {
  const { origin, ca, settings, timeout, directory } = options;
  const other = await closedAtEnd(startConnections(answering));
  const ownMs = timeout === 'total' ? OWN_TOTAL_MS : OWN_MS;
  const timeouts = {
    connect: OTHERS,
    response: OTHERS,
    idle: OTHERS,
    total: OTHERS,
    [timeout]: `${ownMs}ms`,
  };
  const gateway = await startGateway(
    {
      up: {
        origin,
        ...(ca !== undefined && { ca }),
        settings: { match: { pathPrefix: '/up/' }, connections: 2, timeouts, ...settings },
      },
      other: {
        origin: other.origin,
        settings: { match: { pathPrefix: '/other/' }, tls: { allowPlaintext: true } },
      },
    },
    {},
    { audit: auditOptions(directory) },
  );
  closing.push(() => gateway.close());
  await expectOthersServed(gateway);
  return { gateway, directory, ownMs };
}

/** Sends one request to each deployment. */
export async function expectOthersServed(gateway: RunningGateway): Promise<void> {
  const others = await Promise.all([ask(gateway, '/up/ok'), ask(gateway, '/other/ok')]);
  expect(others).toEqual(['200 ok', '200 ok']);
}

/** Status and body, code of the problem, or how the response ended. */
export async function ask({ origin }: RunningGateway, path: string): Promise<string> {
  const response = await fetch(`${origin}${path}`, {
    headers: { 'x-request-id': path.replaceAll('/', '.') },
  });
  const text = await response.text().catch(() => 'broken off');
  if (response.headers.get('content-type') !== 'application/problem+json')
    return `${response.status} ${text}`;
  return `${response.status} ${JSON.parse(text).code}`;
}

/** The lines about errors. */
export const errorsLogged = ({ logged }: RunningGateway) =>
  logged.filter((line) => line['code'] !== undefined);
