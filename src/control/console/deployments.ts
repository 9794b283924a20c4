import type { AddressView, CredentialView, DeploymentView, History, NonceView, Tick } from '../view.ts';
import { Chart, type ChartOptions } from './charts.ts';
import { element, List, type Row, setText } from './dom.ts';
import { count, latency, moment, rate, span } from './format.ts';
import { showCondition } from './state.ts';

const CHARTS: readonly Omit<ChartOptions, 'deployment'>[] = [
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

/** Shows a card for each deployment: its state in words, its numbers, and a chart. */
export class DeploymentsPanel {
  readonly #list: List<DeploymentView>;
  readonly #charts = new Map<string, readonly Chart[]>();
  #history: History = { times: [], deployments: {} };
  #now = 0;

  constructor(parent: HTMLElement) {
    this.#list = new List(
      parent,
      ({ name }) => name,
      (view) => this.#card(view),
      (name) => {
        for (const chart of this.#charts.get(name) ?? []) chart.remove();
        this.#charts.delete(name);
      },
    );
  }

  fill(history: History): void {
    this.#history = history;
    for (const chart of this.#all) chart.fill(history);
  }

  show({ snapshot, points }: Tick): void {
    this.#now = snapshot.at;
    this.#list.show(snapshot.deployments);
    for (const { at, deployments } of points) {
      for (const [name, charts] of this.#charts) {
        for (const chart of charts) chart.push(at, deployments[name]);
      }
    }
  }

  repaint(): void {
    for (const chart of this.#all) chart.repaint();
  }

  get #all(): Chart[] {
    return [...this.#charts.values()].flat();
  }

  #card({ name, origin }: DeploymentView): Row<DeploymentView> {
    const charts = CHARTS.map((options) => new Chart({ ...options, deployment: name }));
    for (const chart of charts) chart.fill(this.#history);
    this.#charts.set(name, charts);
    const badge = element('span', { class: 'badge' });
    const reasons = element('p', { class: 'reasons' });
    const facts = new Facts();
    const title = `deployment-${name}`;
    const heading = element('h3', { id: title }, name);
    const card = element(
      'article',
      { class: 'panel deployment', 'aria-labelledby': title },
      element(
        'div',
        { class: 'headline' },
        heading,
        badge,
        reasons,
        element('span', { class: 'origin muted' }, origin),
      ),
      element(
        'div',
        { class: 'body' },
        facts.element,
        element('div', { class: 'charts' }, ...charts.map((chart) => chart.element)),
      ),
    );
    return {
      element: card,
      update: (view) => {
        showCondition(badge, view.state);
        setText(reasons, view.reasons.join(' '));
        for (const [term, text] of factsOf(view, this.#now)) facts.set(term, text);
      },
    };
  }
}

/** Creates a list of terms with their descriptions. */
class Facts {
  readonly element = element('dl');
  readonly #values = new Map<string, HTMLElement>();

  set(term: string, text: string): void {
    let value = this.#values.get(term);
    if (value === undefined) {
      value = element('dd');
      this.#values.set(term, value);
      this.element.append(element('div', {}, element('dt', {}, term), value));
    }
    setText(value, text);
  }
}

function* factsOf(view: DeploymentView, now: number): Generator<readonly [string, string]> {
  const { perSecond, inFlight, latency: taken, credentials, addresses } = view;
  yield ['Requests', `${rate(perSecond.requests)} per second, ${count(inFlight)} in flight`];
  yield ['Errors', `${rate(perSecond.errors)} per second`];
  yield ['Latency', taken === undefined ? 'none ended in the last seconds' : latencyText(taken)];
  yield ['Challenges', `${rate(perSecond.challenges)} per second`];
  yield ['Nonce', nonceText(view.nonce)];
  yield ['Credential', credentials.map((each) => credentialText(each, now)).join('; ')];
  yield ['Health', addresses.map(healthText).join('; ')];
  yield ['Circuit', circuitText(credentials, addresses)];
  yield ['Outcomes', outcomesText(view.outcomes)];
  yield ['Certificate', certificateText(view.certificateExpiresAt, now)];
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
