import { printable, printableLines } from '../../../base/printable.ts';
import type { RequestRow } from '../../audit-view.ts';
import type { ExplanationView } from '../../client-view.ts';
import type { State } from '../../view.ts';
import { bytes, latency, momentWithSeconds } from '../format.ts';
import { ObservedRefusal, useExplanation } from '../parts/explanation.tsx';
import { clientLink, codeLink, deploymentLink, type PageProps, searchLink } from '../parts/links.tsx';
import { Panel } from '../parts/panel.tsx';
import { MoreButton, SearchProgress, useSearch } from '../parts/search.tsx';
import { type Fact, Facts } from '../parts/table.tsx';

/** Around the time of a record that a link names, in milliseconds. Records of one request are near to each other. */
const NEAR_MS = 3_600_000;

/** The records of one request: how it ended, where its time went, its trace. */
export function RequestPage({ params, query }: PageProps) {
  const { id = '' } = params;
  const near = rangeAround(query.get('at'));
  const search = useSearch(`/api/requests/${encodeURIComponent(id)}${near}`);
  const rows = search.rows.filter((row) => row.kind === 'access');
  return (
    <>
      <section class="leads small muted" aria-label="Search">
        <SearchProgress
          search={search}
          noun="request"
          range={near === '' ? 'The whole log' : 'The hour before and after it'}
        />
        {near !== '' && <a href={`#/requests/${encodeURIComponent(id)}`}>Search the whole log</a>}
      </section>
      {rows.map((row) => (
        <Request key={`${row.replica} ${row.seq}`} row={row} />
      ))}
      <MoreButton search={search} />
    </>
  );
}

function rangeAround(at: string | null): string {
  const time = Date.parse(at ?? '');
  if (Number.isNaN(time)) return '';
  const [from, to] = [time - NEAR_MS, time + NEAR_MS].map((each) => new Date(each).toISOString());
  return `?from=${from}&to=${to}`;
}

function Request({ row }: { readonly row: RequestRow }) {
  const { time, method, path, outcome, ...record } = row;
  const { status, code } = outcome ?? row;
  return (
    <Panel label={`Request of ${momentWithSeconds(Date.parse(time))}`} class="request">
      <h2>
        {method} {path}
      </h2>
      <p>
        <span class={`badge ${stateOf(status, code)}`}>{status}</span> {code !== '' && codeLink(code)}
        {outcome === undefined && ' when its response began; the log has no outcome of it'}
      </p>
      <Timing row={row} />
      <Facts facts={factsOf(row)} />
      <details>
        <summary>Records</summary>
        <pre>{printableLines(JSON.stringify({ time, method, path, ...record }, undefined, 2))}</pre>
        {outcome !== undefined && <pre>{printableLines(JSON.stringify(outcome, undefined, 2))}</pre>}
      </details>
    </Panel>
  );
}

function stateOf(status: number, code: string): State {
  if (code !== '' || status >= 500) return 'down';
  return status >= 400 ? 'degraded' : 'ok';
}

function factsOf(row: RequestRow): (Fact | false)[] {
  const {
    time,
    client,
    key,
    address,
    deployment,
    site,
    operation,
    credential,
    credentialRule,
    wouldRefuse,
    upstream,
    outcome,
    replica,
  } = row;
  return [
    ['Time', momentWithSeconds(Date.parse(time))],
    ['Client', clientLink(client)],
    key !== undefined && ['API key', key],
    ['Address', searchLink('address', address)],
    ['Deployment', deploymentLink(deployment) ?? 'none'],
    site !== '' && ['Site', searchLink('site', site)],
    ['Operation', searchLink('operation', operation) ?? 'none that is listed'],
    ['Parameters', parametersOf(row)],
    ['Policy', <Decision key="decision" row={row} />],
    wouldRefuse !== undefined && [
      'Observed',
      `the rules of the client, which were only observed, would refuse it with ${wouldRefuse}`,
    ],
    ['Upstream', upstream === undefined ? 'was not asked' : upstreamText(upstream)],
    credential !== undefined && [
      'Credential',
      `${credential.name}, version ${credential.version}${credentialRule === undefined ? '' : `, named by ${credentialRule} of the client`}`,
    ],
    outcome?.outcome !== undefined && ['Outcome', searchLink('outcome', outcome.outcome)],
    outcome !== undefined && [
      'Bytes',
      `${bytes(outcome.bytes.in)} received, ${bytes(outcome.bytes.out)} sent`,
    ],
    ['Trace', traceOf(row)],
    ['Replica', searchLink('replica', replica)],
  ];
}

function parametersOf({ parameters, cut }: RequestRow) {
  const entries = Object.entries(parameters);
  if (entries.length === 0) return 'none';
  return (
    <>
      {entries.map(([name, value]) => (
        <div key={name}>
          {printable(name)}
          {value === null ? (
            <span class="muted"> (value not recorded)</span>
          ) : (
            ` = ${printable([value].flat().join(', '))}`
          )}
        </div>
      ))}
      {cut === true && <div class="degraded">Too long to be recorded whole.</div>}
    </>
  );
}

function upstreamText({
  status,
  attempts,
  challenged,
  address,
}: NonNullable<RequestRow['upstream']>): string {
  const end = status === 0 ? 'no response' : `status ${status}`;
  const sent = `${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}`;
  return `${end} from ${address}, ${sent}${challenged ? ', challenged first' : ''}`;
}

function traceOf({ traceId, traceUrl }: RequestRow) {
  if (traceId === undefined) return 'not traced';
  if (traceUrl === undefined) return `${traceId} (control.traceUrl makes this a link)`;
  return (
    <a href={traceUrl} rel="noreferrer">
      {traceId}
    </a>
  );
}

interface Part {
  readonly label: string;
  /** Describes the step. */
  readonly note: string;
  readonly colour: string;
  readonly ms: number;
}

/** Where the time of a request went: a row for each part, at its place in the whole. */
function Timing({ row }: { readonly row: RequestRow }) {
  const parts = partsOf(row);
  const total = parts.reduce((sum, { ms }) => sum + ms, 0);
  if (row.outcome === undefined) return null;
  const scale = total === 0 ? 0 : 100 / total;
  let start = 0;
  return (
    <figure class="waterfall">
      <figcaption class="muted">
        {latency(row.outcome.durationMs / 1000)} from its arrival to the end of its response
      </figcaption>
      <ol>
        {parts.map(({ label, note, colour, ms }) => {
          const before = start;
          start += ms;
          return (
            <li key={label}>
              <span>
                {label} <span class="muted small">{note}</span>
              </span>
              <span class="numeric">{latency(ms / 1000)}</span>
              <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
                <rect class="track" width={100} height={10} />
                <rect class={colour} x={before * scale} width={Math.max(0.4, ms * scale)} height={10} />
              </svg>
            </li>
          );
        })}
      </ol>
    </figure>
  );
}

/**
 * The log has times in milliseconds, and parts in tenths of them, so the parts are about right, and together the
 * duration. What took no time is left out.
 */
function partsOf({ time, upstream, outcome }: RequestRow): Part[] {
  if (outcome === undefined) return [];
  const { durationMs } = outcome;
  const decision = { label: 'Gateway', note: 'identify, decide, take the body and a nonce', colour: 'blue' };
  if (upstream === undefined) return [{ ...decision, ms: durationMs }];
  const { queueMs = 0, connectMs = 0, earlierMs = 0, challenged } = upstream;
  const head = Math.min(upstream.durationMs, durationMs);
  const sinceHead = Math.max(0, Date.parse(outcome.time) - Date.parse(time));
  const body = Math.min(sinceHead, durationMs - head);
  const parts: Part[] = [
    { ...decision, ms: durationMs - head - body },
    { label: 'Queue', note: 'until a connection was free', colour: 'muted', ms: queueMs },
    { label: 'Connect', note: 'TCP and TLS', colour: 'teal', ms: connectMs },
    {
      label: challenged ? 'Challenge' : 'Earlier attempts',
      note: challenged ? 'asked for a nonce' : 'without a response that counts',
      colour: 'violet',
      ms: earlierMs,
    },
    {
      label: 'Exchange',
      note: 'until the head of the response',
      colour: 'orange',
      ms: Math.max(0, head - queueMs - connectMs - earlierMs),
    },
    {
      label: 'Record and body',
      note: 'the audit record, then the rest of the response',
      colour: 'green',
      ms: body,
    },
  ];
  return parts.filter(({ ms }) => ms > 0);
}

/**
 * The decision of the current policy on a recorded request. The audit log does not record the rule that applied, and
 * the configuration may have changed since.
 */
function Decision({ row }: { readonly row: RequestRow }) {
  const { client, deployment, method, path, code } = row;
  const isUnjudged = client === '' || path === '' || code === 'client-key-expired';
  const explained = useExplanation(
    isUnjudged ? undefined : { client, deployment, method, target: targetOf(row) },
  );
  if (isUnjudged) return <>no client was identified</>;
  if (explained === undefined) return <>…</>;
  return (
    <>
      {typeof explained === 'string'
        ? explained
        : isElsewhere(explained, deployment)
          ? `not known: the path alone does not lead to ${deployment}. The host or the absolute form of the request did, which are not recorded, or the configuration has changed.`
          : verdictOf(explained)}
      <div class="muted small">
        By the configuration in use, which may have changed since.
        {isPartial(row) && ' The values that are not recorded were left out.'}
      </div>
    </>
  );
}

/** Whether the path leads to another deployment than the one that the request was for, or to none. */
function isElsewhere(explanation: ExplanationView, deployment: string): boolean {
  if (deployment === '' || explanation.deployment === deployment) return false;
  return explanation.deployment !== '' || (!explanation.allowed && explanation.code === 'no-deployment');
}

function verdictOf(explanation: ExplanationView) {
  const { rule } = explanation;
  if (explanation.allowed) {
    const { wouldRefuse } = explanation;
    return (
      <>
        allowed by <code>{rule}</code>
        {wouldRefuse !== undefined && (
          <>
            , <ObservedRefusal refusal={wouldRefuse} />
          </>
        )}
      </>
    );
  }
  const { status, code, detail } = explanation;
  return (
    <>
      refused with {status} {code}
      {rule !== '' && (
        <>
          {' '}
          by <code>{rule}</code>
        </>
      )}
      : {detail}
    </>
  );
}

function isPartial({ parameters, cut }: RequestRow): boolean {
  return cut === true || Object.values(parameters).includes(null);
}

function targetOf({ path, parameters }: RequestRow): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === null) continue;
    for (const each of [value].flat()) query.append(name, each);
  }
  return query.size === 0 ? path : `${path}?${query}`;
}
