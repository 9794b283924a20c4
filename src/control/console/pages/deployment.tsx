import type {
  AddressView,
  CredentialView,
  DeploymentView,
  History,
  NonceView,
  SeriesName,
} from '../../view.ts';
import { useFetch } from '../api.ts';
import { count, latency, moment, rate, span } from '../format.ts';
import { snapshot } from '../live.ts';
import { Badge } from '../parts/badge.tsx';
import { Chart, type Line } from '../parts/chart.tsx';
import { type Fact, Facts } from '../parts/facts.tsx';
import type { PageProps } from '../router.tsx';

const SECONDS = 900;
const EVERY_MS = 5_000;

interface ChartEntry {
  readonly title: string;
  readonly lines: readonly (Omit<Line, 'values'> & { readonly series: SeriesName })[];
  readonly format: (value: number) => string;
}

const CHARTS: readonly ChartEntry[] = [
  {
    title: 'Requests per second',
    lines: [
      { series: 'requests', label: 'all', colour: 'blue' },
      { series: 'errors', label: 'errors', colour: 'red' },
    ],
    format: rate,
  },
  {
    title: 'Latency',
    lines: [
      { series: 'p50', label: 'p50', colour: 'blue' },
      { series: 'p95', label: 'p95', colour: 'violet' },
      { series: 'p99', label: 'p99', colour: 'orange' },
    ],
    format: latency,
  },
  {
    title: 'Challenges per second',
    lines: [{ series: 'challenges', label: 'challenges', colour: 'orange' }],
    format: rate,
  },
];

/** One deployment: its state in words, its numbers, and charts. */
export function DeploymentPage({ params }: PageProps) {
  const { name = '' } = params;
  const now = snapshot.value;
  const view = now?.deployments.find((each) => each.name === name);
  if (now === undefined) return null;
  if (view === undefined) return <p>The gateway has no deployment of this name.</p>;
  return (
    <>
      <p class="headline">
        <Badge state={view.state} /> <span>{view.reasons.join(' ')}</span>{' '}
        <span class="muted small">{view.origin}</span>
      </p>
      <Charts name={name} />
      <section class="panel" aria-label="Facts">
        <Facts facts={factsOf(view, now.at)} />
      </section>
    </>
  );
}

function Charts({ name }: { readonly name: string }) {
  const { data, error } = useFetch<History>('/api/history', EVERY_MS);
  if (error !== undefined) return <p class="broken">{error}</p>;
  if (data === undefined) return null;
  const series = data.deployments[name];
  return (
    <section class="panel charts" aria-label="Charts">
      {CHARTS.map(({ title, lines, format }) => (
        <Chart
          key={title}
          title={title}
          label={`${title} of ${name}, the last 15 minutes`}
          times={data.times}
          seconds={SECONDS}
          lines={lines.map((line) => ({ ...line, values: series?.[line.series] ?? [] }))}
          format={format}
          group={name}
        />
      ))}
    </section>
  );
}

function factsOf(view: DeploymentView, now: number): Fact[] {
  const { perSecond, inFlight, latency: taken, credentials, addresses } = view;
  return [
    ['Requests', `${rate(perSecond.requests)} per second, ${count(inFlight)} in flight`],
    ['Errors', `${rate(perSecond.errors)} per second`],
    ['Latency', taken === undefined ? 'none ended in the last seconds' : latencyText(taken)],
    ['Challenges', `${rate(perSecond.challenges)} per second`],
    ['Nonce', nonceText(view.nonce)],
    ['Credential', credentials.map((each) => credentialText(each, now)).join('; ')],
    ['Health', addresses.map(healthText).join('; ')],
    ['Circuit', circuitText(credentials, addresses)],
    ['Outcomes', outcomesText(view.outcomes)],
    ['Certificate', certificateText(view.certificateExpiresAt, now)],
  ];
}
function latencyText({ p50, p95, p99 }: NonNullable<DeploymentView['latency']>): string {
  return `p50 ${latency(p50)}, p95 ${latency(p95)}, p99 ${latency(p99)}`;
}

const POLICIES: Readonly<Record<string, string>> = {
  shared: 'used concurrently',
  exclusive: 'one request at a time',
  'single-use': 'used once',
};

function nonceText({ policy, age, lifetime }: NonceView): string {
  const inUse = age === undefined ? 'none in use' : `${span(age)} old`;
  const lives = lifetime === undefined ? 'lifetime not learned yet' : `lives ${span(lifetime)}`;
  return `${inUse}; ${policy}: ${POLICIES[policy] ?? ''}; ${lives}`;
}

function credentialText({ name, version, state, changedAt }: CredentialView, now: number): string {
  const age = changedAt === undefined ? 'age unknown' : `${span((now - changedAt) / 1000)} old`;
  return `${name} version ${version}, ${state}, ${age}`;
}

function healthText({ address, health, age }: AddressView): string {
  return `${address} ${health} for ${span(age)}`;
}

function circuitText(credentials: readonly CredentialView[], addresses: readonly AddressView[]): string {
  const refused = credentials.filter((each) => each.refused).map(({ name }) => name);
  const open = addresses.filter(({ circuit }) => circuit !== 'closed').map(({ address }) => address);
  const reasons = [
    ...refused.map((name) => `${name} is tried twice a minute only`),
    ...open.map((address) => `${address} gets one request at a time, until it responds`),
  ];
  return reasons.length === 0 ? 'closed' : `open: ${reasons.join('; ')}`;
}

function outcomesText(outcomes: DeploymentView['outcomes']): string {
  if (outcomes.length === 0) return 'none configured';
  const counts = outcomes.map(({ name, lastMinute }) => `${name} ${count(lastMinute)}`);
  return `${counts.join(', ')} in the last minute`;
}

function certificateText(expiresAt: number | undefined, now: number): string {
  if (expiresAt === undefined) return 'not seen yet';
  const left = (expiresAt - now) / 1000;
  return left <= 0 ? `expired on ${moment(expiresAt)}` : `expires in ${span(left)}, ${moment(expiresAt)}`;
}
