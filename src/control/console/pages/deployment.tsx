import { span } from '../../../base/units.ts';
import type {
  AddressView,
  CertificateView,
  DeploymentDetail,
  DeploymentSettings,
  DeploymentView,
  ErrorView,
  LimitsView,
  NonceView,
  TlsView,
} from '../../view.ts';
import { useFetch } from '../api.ts';
import { bytes, count, counted, date, latency, rate } from '../format.ts';
import { snapshot } from '../live.ts';
import { ActionButton, Results, useAllowed } from '../parts/action.tsx';
import { Charts } from '../parts/charts.tsx';
import { CredentialActions } from '../parts/credentials.tsx';
import { Errors } from '../parts/errors.tsx';
import { clientLink, type PageProps } from '../parts/links.tsx';
import { Panel, Pending } from '../parts/panel.tsx';
import { addressState, Badge, NextStep } from '../parts/state.tsx';
import { type Column, type Fact, Facts, nameText, Table } from '../parts/table.tsx';

/** Certificates and limits seldom change. */
const DETAIL_MS = 30_000;

/** One deployment: its state in words, charts, and everything that the gateway knows of its upstream. */
export function DeploymentPage({ params, query }: PageProps) {
  const { name = '' } = params;
  const now = snapshot.value;
  const view = now?.deployments.find((each) => each.name === name);
  if (now === undefined) return <Pending />;
  if (view === undefined) return <p>The gateway has no deployment of this name.</p>;
  return (
    <>
      <p class="headline">
        <Badge state={view.state} /> <span>{view.reasons.join(' ')}</span>
        <NextStep next={view.next} />
      </p>
      <Leads name={name} hasAudit={now.audit !== null} />
      <Charts name={name} range={query.get('range')} />
      <Results />
      <Details view={view} now={now.at} errors={now.errors.filter(({ deployment }) => deployment === name)} />
    </>
  );
}

interface LeadsProps {
  readonly name: string;
  readonly hasAudit: boolean;
}

/** The next steps of an operator: doctor, the requests, and the map of their way. */
function Leads({ name, hasAudit }: LeadsProps) {
  const mayAct = useAllowed().data?.allowed === true;
  const deployment = encodeURIComponent(name);
  return (
    <div class="leads">
      {mayAct && (
        <ActionButton
          label="Run doctor"
          name={`Run doctor for ${name}`}
          body={{ action: 'doctor', deployment: name }}
        />
      )}
      {hasAudit && (
        <>
          <a href={`#/audit?deployment=${deployment}`}>Requests</a>
          <a href={`#/audit?deployment=${deployment}&status=5xx`}>Failed requests</a>
        </>
      )}
      <a href={`#/map?deployment=${deployment}`}>Map</a>
    </div>
  );
}

interface DetailsProps {
  readonly view: DeploymentView;
  /** Unix milliseconds. */
  readonly now: number;
  readonly errors: readonly ErrorView[];
}

function Details({ view, now, errors }: DetailsProps) {
  const { data, error } = useFetch<DeploymentDetail>(
    `/api/deployments/${encodeURIComponent(view.name)}`,
    DETAIL_MS,
  );
  return (
    <div class="panels">
      <Panel heading="Traffic and connections">
        <Facts facts={trafficFacts(view)} />
      </Panel>
      <Panel heading="Nonces">
        <Facts facts={nonceFacts(view)} />
      </Panel>
      <Panel heading="Limits">
        {data === undefined ? <Pending error={error} /> : <Facts facts={limitFacts(data.settings)} />}
      </Panel>
      <Panel heading="Addresses" class="half">
        <Table
          label="Addresses"
          columns={ADDRESSES}
          rows={view.addresses}
          keyOf={({ address }) => address}
          empty="No addresses."
        />
      </Panel>
      <Panel heading="Credentials" class="half">
        <CredentialActions deployment={view} now={now} />
      </Panel>
      <Panel heading="Latest errors" class="wide">
        <Errors errors={errors} now={now} empty="None of the latest errors of the gateway." />
      </Panel>
      <Panel heading="TLS" class="wide">
        {(data === undefined || error !== undefined) && <Pending error={error} />}
        {data !== undefined && <Certificates tls={data.tls} now={now} />}
      </Panel>
    </div>
  );
}

function trafficFacts(view: DeploymentView): Fact[] {
  const { perSecond, inFlight, latency: taken, connections } = view;
  const { open, busy, queued, limit } = connections;
  return [
    ['Upstream', view.origin],
    ...view.egress.map(egressFact),
    ['Requests', `${rate(perSecond.requests)} per second, ${count(inFlight)} in flight`],
    ['Errors', `${rate(perSecond.errors)} per second`],
    ['Latency', taken === undefined ? 'none ended in the last seconds' : latencyText(taken)],
    ['Connections', `${count(open)} open, ${count(busy)} busy, ${count(limit)} at most`],
    ['Queue', `${counted(queued, 'request')} waiting for a connection`],
    ['Outcomes', outcomesText(view.outcomes)],
  ];
}

function egressFact({ address, status, state }: DeploymentView['egress'][number]): Fact {
  const isPassedOver = status === 'missing' || status === 'refused';
  return [
    'Egress',
    <span class={isPassedOver ? 'down' : ''}>
      {address}, {state}
    </span>,
  ];
}

function latencyText({ p50, p95, p99 }: NonNullable<DeploymentView['latency']>) {
  return (
    <>
      <span class="whole">p50 {latency(p50)},</span> <span class="whole">p95 {latency(p95)},</span>{' '}
      <span class="whole">p99 {latency(p99)}</span>
    </>
  );
}

function outcomesText(outcomes: DeploymentView['outcomes']): string {
  if (outcomes.length === 0) return 'none configured';
  const counts = outcomes.map(({ name, lastMinute }) => `${name} ${count(lastMinute)}`);
  return `${counts.join(', ')} in the last minute`;
}

const POLICIES: Readonly<Record<NonceView['policy'], string>> = {
  shared: 'used concurrently',
  exclusive: 'one request at a time',
  'single-use': 'used once',
};

function nonceFacts({ nonce, perSecond }: DeploymentView): Fact[] {
  const { policy, age, lifetime } = nonce;
  return [
    ['Policy', `${policy}: ${POLICIES[policy]}`],
    ['Age', age === undefined ? 'none in use' : `${span(age)} old`],
    ['Lifetime', lifetime === undefined ? 'not learned yet' : span(lifetime)],
    ['Challenges', `${rate(perSecond.challenges)} per second`],
  ];
}

const ADDRESSES: readonly Column<AddressView>[] = [
  { label: 'Address', cell: ({ address }) => address },
  {
    label: 'State',
    cell: (each) => (each.health === 'unknown' ? 'not used yet' : <Badge state={addressState(each)} />),
    class: 'beside',
  },
  { label: 'For', cell: ({ age }) => span(age), class: 'whole' },
  {
    label: 'Circuit',
    cell: ({ circuit }) =>
      circuit === 'closed' ? (
        'closed'
      ) : (
        <span class="degraded">{circuit}: one request at a time, until it responds</span>
      ),
  },
];

/** The chain of the last full TLS handshake. */
function Certificates({ tls, now }: { readonly tls: TlsView | undefined; readonly now: number }) {
  if (tls === undefined) return <p class="muted">No TLS handshake yet.</p>;
  const columns: readonly Column<CertificateView>[] = [
    { label: 'Certificate', cell: ({ subject }) => nameText(subject) },
    { label: 'Issuer', cell: ({ issuer }) => nameText(issuer) },
    { label: 'Valid from', cell: ({ validFrom }) => date(validFrom), class: 'whole' },
    {
      label: 'Expires',
      cell: ({ expiresAt }) =>
        expiresAt <= now ? (
          <span class="down">expired on {date(expiresAt)}</span>
        ) : (
          `${date(expiresAt)}, in ${span((expiresAt - now) / 1000)}`
        ),
    },
  ];
  return (
    <>
      <p class="muted">{tls.protocol}. The chain as the upstream sent it, its own certificate first.</p>
      <Table
        label="Certificates"
        columns={columns}
        rows={tls.chain}
        keyOf={({ subject, issuer }) => `${subject} ${issuer}`}
        empty="No certificates."
      />
    </>
  );
}

function limitFacts(settings: DeploymentSettings): Fact[] {
  const { connections, timeouts, body, retry, limits, clients } = settings;
  const times = (['connect', 'response', 'idle', 'total'] as const).map(
    (name) => `${name} ${span(timeouts[name] / 1000)}`,
  );
  return [
    ['Requests', limits === undefined ? 'no limit for all clients together' : limitsText(limits)],
    ...clients.map(
      ({ client, limits: own }): Fact => [
        'Client',
        <>
          {clientLink(client)}: {limitsText(own)}
        </>,
      ],
    ),
    ['Connections', `${count(connections)} at most to each address`],
    ['Timeouts', times.join(', ')],
    ['Body', `${bytes(body.max)} at most, ${bytes(body.replayUpTo)} kept for a challenge`],
    ['Client speed', body.minRate === 0 ? 'any' : `${bytes(body.minRate)} per second at least`],
    ['Retries', counted(retry.attempts, 'time')],
  ];
}

function limitsText({ rate: ofRate, concurrent, daily }: LimitsView): string {
  return [
    ofRate !== undefined && `${rate(ofRate.perSecond)} per second, bursts of ${count(ofRate.burst)}`,
    concurrent !== undefined && `${count(concurrent)} at a time`,
    daily !== undefined && `${count(daily)} per day`,
  ]
    .filter(Boolean)
    .join(', ');
}
