import { printable } from '../../../base/printable.ts';
import { endText } from '../../../base/units.ts';
import type {
  ClientDetailView,
  KeyView,
  LimitUseView,
  OperationView,
  RefusalView,
  RuleView,
} from '../../client-view.ts';
import { useFetch } from '../api.ts';
import { ago, count, moment, rate } from '../format.ts';
import { snapshot } from '../live.ts';
import { codeLink, deploymentLink, type PageProps, requestLink } from '../parts/links.tsx';
import { Panel, Pending } from '../parts/panel.tsx';
import { type Column, type Fact, Facts, numbers, Table } from '../parts/table.tsx';
import { lastSeenText } from './clients.tsx';

const EVERY_MS = 5_000;

/** One client: how it is recognised, what it may do, how much of its limits it uses, what it was refused. */
export function ClientPage({ params }: PageProps) {
  const { name = '' } = params;
  const { data, error } = useFetch<ClientDetailView>(`/api/clients/${encodeURIComponent(name)}`, EVERY_MS);
  if (error !== undefined || data === undefined) return <Pending error={error} />;
  const served = data.refusals.filter(({ isServed }) => isServed);
  const refused = data.refusals.filter(({ isServed }) => !isServed);
  const now = snapshot.value?.clients.find((each) => each.name === name);
  const facts: (Fact | false)[] = [
    ['Recognised by', data.identifiedBy.join('; and ')],
    ['Requests', `${rate(now?.perSecond ?? 0)} per second, ${count(now?.requests ?? 0)} in all`],
    ['Last seen', lastSeenText(now?.lastSeen ?? null)],
    ...limitFacts(data.limits),
    data.observedUntil !== null && [
      'Rules',
      `only observed until ${moment(data.observedUntil)}: nothing is refused by them`,
    ],
  ];
  const client = encodeURIComponent(name);
  return (
    <>
      <div class="leads">
        {snapshot.value?.audit && <a href={`#/audit?client=${client}`}>Requests</a>}
        <a href={`#/policy?client=${client}`}>Explain a request</a>
        <a href={`#/map?client=${client}`}>Map</a>
      </div>
      <Panel label="Facts">
        <Facts facts={facts} />
      </Panel>
      {data.keys.length > 0 && (
        <Panel heading="API keys">
          <Table label="API keys" columns={KEYS} rows={data.keys} keyOf={({ name }) => name} empty="" />
          <p class="muted small">
            Since the start. <code>digest-gateway client list</code> finds earlier times in the audit log.
          </p>
        </Panel>
      )}
      <Panel heading="Allowed">
        <Table
          label="Rules"
          columns={RULES}
          rows={data.rules}
          keyOf={({ path }) => path}
          empty="Nothing: the client has no rule under allow."
        />
      </Panel>
      {(data.observedUntil !== null || served.length > 0) && (
        <Panel label="Observed" heading="What the rules would refuse, since the start">
          <Table
            label="Observed refusals"
            columns={REFUSALS}
            rows={served}
            keyOf={({ code }) => code}
            empty="Nothing: the rules allowed every request."
          />
        </Panel>
      )}
      <Panel label="Refused" heading="Refused since the start">
        <Table
          label="Refusals"
          columns={REFUSALS}
          rows={refused}
          keyOf={({ code }) => code}
          empty="Nothing was refused."
        />
      </Panel>
    </>
  );
}

function limitFacts(limits: LimitUseView | null): (Fact | false)[] {
  if (limits === null) return [['Limits', 'none']];
  const { rate: ofRate, concurrent, daily } = limits;
  return [
    ofRate !== null && [
      'Rate',
      `${rate(ofRate.perSecond)} per second; ${count(ofRate.left)} of a burst of ${count(ofRate.burst)} left`,
    ],
    concurrent !== null && [
      'Concurrent',
      `${count(concurrent.inFlight)} of ${count(concurrent.most)} in flight`,
    ],
    daily !== null && ['Today', `${count(daily.used)} of ${count(daily.most)} requests, UTC`],
  ];
}

const KEYS: readonly Column<KeyView>[] = [
  { label: 'Key', cell: ({ name }) => <code>{name}</code> },
  {
    label: 'Last seen',
    cell: ({ lastSeen }) => lastSeenText(lastSeen),
    sortBy: ({ lastSeen }) => -(lastSeen ?? 0),
  },
  {
    label: 'Ends',
    cell: ({ expires }) => (expires === null ? 'never' : endText(expires, snapshot.value?.at ?? 0)),
  },
];

const RULES: readonly Column<RuleView>[] = [
  { label: 'Rule', cell: ({ path }) => <code>{path}</code> },
  {
    label: 'Deployment',
    cell: ({ deployment }) => (deployment === '*' ? 'every one' : deploymentLink(deployment)),
    class: 'beside',
  },
  { label: 'Sites', cell: ({ sites }) => sites?.join(', ') ?? 'all' },
  { label: 'Operations', cell: ({ operations }) => <Operations operations={operations} /> },
  { label: 'Methods', cell: ({ methods }) => methods?.join(', ') ?? 'all' },
  { label: 'Parameters', cell: ({ parameters }) => parameters.map(parameterText).join('; ') || 'any' },
  { label: 'Credential', cell: ({ credential }) => credential ?? 'of the site or deployment' },
  { label: 'Ends', cell: ({ ends }) => (ends === null ? 'never' : endText(ends, snapshot.value?.at ?? 0)) },
];

function Operations({ operations }: { readonly operations: readonly OperationView[] | null }) {
  if (operations === null) return <>all, unlisted ones too</>;
  return (
    <>
      {operations.map(({ name, method, path }) => (
        <div key={name}>
          {name}{' '}
          <code>
            {method} {path}
          </code>
        </div>
      ))}
    </>
  );
}

function parameterText({ name, max, values, moreValues }: RuleView['parameters'][number]): string {
  const parts = [
    max === null ? [] : `at most ${count(max)} items`,
    values === null
      ? []
      : `only ${values.join(', ')}${moreValues > 0 ? ` and ${count(moreValues)} more` : ''}`,
  ].flat();
  return `${name}: ${parts.join(', ')}`;
}

const REFUSALS: readonly Column<RefusalView>[] = [
  {
    label: 'Code',
    cell: ({ code, title }) => (
      <>
        {title} {codeLink(code)}
      </>
    ),
  },
  numbers('Times', (each) => each.count, count),
  {
    label: 'Last',
    cell: ({ lastAt }) => ago(((snapshot.value?.at ?? lastAt) - lastAt) / 1000),
    sortBy: ({ lastAt }) => -lastAt,
    class: 'whole',
  },
  { label: 'Deployment', cell: ({ deployment }) => deploymentLink(deployment), class: 'whole' },
  { label: 'Reason', cell: ({ detail }) => printable(detail) },
  { label: 'Request', cell: ({ requestId }) => requestLink(requestId) },
];
