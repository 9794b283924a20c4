import type { ErrorKind } from '../../src/base/error-kind.ts';
import { type ErrorCode, errorKinds } from '../../src/base/errors.ts';
import { generatedFrom, page, wrap } from './markdown.ts';

const INTRODUCTION = [
  generatedFrom('the table of error codes'),
  '# Errors',
  wrap(
    'A request that the gateway refuses, or that fails between gateway and upstream, gets a problem document (`application/problem+json`, RFC 9457) with `status`, `code`, `title`, `detail` and `requestId`, and `Proxy-Status: digest-gateway; error=…` (RFC 9209). Errors of the upstream itself, such as its own 404 or 500, reach the client unchanged and have no code.',
  ),
  wrap(
    'Programs should read `code`, which is stable; `detail` is a sentence for people and may change. The code is also in the log, in the metric `digest_gateway_requests_total` and in the audit record. Find the log line of a request by its `requestId`, which every response has as `X-Request-Id`.',
  ),
];

/** The text of docs/configure/errors.md. */
export function errorsPage(): string {
  const kinds = errorKinds().sort(([, a], [, b]) => a.status - b.status);
  const byStatus = Map.groupBy(kinds, ([, { status }]) => status);
  const table = ['| Status | Codes |', '|---|---|'];
  for (const [status, list] of byStatus) {
    table.push(`| ${status} | ${list.map(([code]) => `[\`${code}\`](#${code})`).join(', ')} |`);
  }
  return page([...INTRODUCTION, table.join('\n'), ...kinds.flatMap(section)]);
}

function section([code, { status, title, proxyError, knownProxyErrors = [], headers = [], cause, remedy }]: [
  ErrorCode,
  ErrorKind,
]): string[] {
  const fields = pairs(headers).map(([name, value]) => `\`${name}: ${value}\``);
  const unsent = status === 499 ? ['never sent, since the client no longer reads'] : undefined;
  const known = knownProxyErrors.map((type) => `\`${type}\``).join(', ');
  const types = `\`${proxyError}\`${known === '' ? '' : ` (or, if that is known, ${known})`}`;
  const sent = unsent ?? [`\`Proxy-Status\` error ${types}`, ...fields];
  return [
    `## ${code}`,
    wrap(`${status}, "${title}", ${sent.join(', ')}.`),
    wrap(`**Cause.** ${cause}`),
    wrap(`**What to do.** ${remedy}`),
  ];
}

function pairs(flat: readonly string[]): [string, string][] {
  return flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : []));
}
