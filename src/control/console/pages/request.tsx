import type { RequestRow } from '../../audit-view.ts';
import { momentWithSeconds } from '../format.ts';
import { Decision } from '../parts/decision.tsx';
import { type Fact, Facts } from '../parts/facts.tsx';
import { clientLink, deploymentLink, searchLink } from '../parts/links.tsx';
import { MoreButton, SearchProgress } from '../parts/search-progress.tsx';
import { Timing } from '../parts/timing.tsx';
import type { PageProps } from '../router.tsx';
import { useSearch } from '../search.ts';

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
      <section class="panel" aria-label="Search">
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
    <section class="panel request" aria-label={`Request of ${momentWithSeconds(Date.parse(time))}`}>
      <h2>
        {method} {path}
      </h2>
      <p class={code !== '' || status >= 400 ? 'broken' : 'ok'}>
        {status} {code !== '' && searchLink('code', code)}
        {outcome === undefined && ' when its response began; the log has no outcome of it'}
      </p>
      <Timing row={row} />
      <Facts facts={factsOf(row)} />
      <details>
        <summary>Records</summary>
        <pre>{JSON.stringify({ time, method, path, ...record }, undefined, 2)}</pre>
        {outcome !== undefined && <pre>{JSON.stringify(outcome, undefined, 2)}</pre>}
      </details>
    </section>
  );
}

function factsOf(row: RequestRow): Fact[] {
  const { time, client, address, deployment, site, operation, credential, upstream, outcome, replica } = row;
  const facts: (Fact | false)[] = [
    ['Time', momentWithSeconds(Date.parse(time))],
    ['Client', clientLink(client)],
    ['Address', searchLink('address', address)],
    ['Deployment', deploymentLink(deployment) ?? 'none'],
    site !== '' && ['Site', searchLink('site', site)],
    ['Operation', searchLink('operation', operation) ?? 'none that is listed'],
    ['Parameters', parametersOf(row)],
    ['Policy', <Decision key="decision" row={row} />],
    ['Upstream', upstream === undefined ? 'was not asked' : upstreamText(upstream)],
    credential !== undefined && ['Credential', `${credential.name}, version ${credential.version}`],
    outcome?.outcome !== undefined && ['Outcome', searchLink('outcome', outcome.outcome)],
    outcome !== undefined && ['Bytes', `${outcome.bytes.in} received, ${outcome.bytes.out} sent`],
    ['Trace', traceOf(row)],
    ['Replica', searchLink('replica', replica)],
  ];
  return facts.filter((fact) => fact !== false);
}

function parametersOf({ parameters, cut }: RequestRow) {
  const entries = Object.entries(parameters);
  if (entries.length === 0) return 'none';
  return (
    <>
      {entries.map(([name, value]) => (
        <div key={name}>
          {name}
          {value === null ? (
            <span class="muted"> (value not recorded)</span>
          ) : (
            ` = ${[value].flat().join(', ')}`
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
