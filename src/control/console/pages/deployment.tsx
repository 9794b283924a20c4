import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import type { DeploymentDetail, DeploymentView } from '../../view.ts';
import { useFetch } from '../api.ts';
import { snapshot } from '../live.ts';
import { Results } from '../parts/action.tsx';
import { Badge } from '../parts/badge.tsx';
import { CredentialActions } from '../parts/credential-actions.tsx';
import { Charts } from '../parts/deployment-charts.tsx';
import { Addresses, Certificates, limitFacts, nonceFacts, trafficFacts } from '../parts/deployment-facts.tsx';
import { Facts } from '../parts/facts.tsx';
import type { PageProps } from '../router.tsx';

/** Certificates and limits seldom change. */
const DETAIL_MS = 30_000;

/** One deployment: its state in words, charts, and everything that the gateway knows of its upstream. */
export function DeploymentPage({ params, query }: PageProps) {
  const { name = '' } = params;
  const now = snapshot.value;
  const view = now?.deployments.find((each) => each.name === name);
  if (now === undefined) return null;
  if (view === undefined) return <p>The gateway has no deployment of this name.</p>;
  return (
    <>
      <p class="headline">
        <Badge state={view.state} /> <span>{view.reasons.join(' ')}</span>
      </p>
      <Charts name={name} range={query.get('range')} />
      <Results />
      <Details view={view} now={now.at} />
    </>
  );
}

function Details({ view, now }: { readonly view: DeploymentView; readonly now: number }) {
  const { data, error } = useFetch<DeploymentDetail>(
    `/api/deployments/${encodeURIComponent(view.name)}`,
    DETAIL_MS,
  );
  return (
    <div class="panels">
      <Panel title="Traffic and connections">
        <Facts facts={trafficFacts(view)} />
      </Panel>
      <Panel title="Nonces">
        <Facts facts={nonceFacts(view)} />
      </Panel>
      <Panel title="Limits">{data !== undefined && <Facts facts={limitFacts(data.settings)} />}</Panel>
      <Panel title="Addresses" width="half">
        <Addresses addresses={view.addresses} />
      </Panel>
      <Panel title="Credentials" width="half">
        <CredentialActions deployment={view} now={now} />
      </Panel>
      <Panel title="TLS" width="wide">
        {error !== undefined && <p class="broken">{error}</p>}
        {data !== undefined && <Certificates tls={data.tls} now={now} />}
      </Panel>
    </div>
  );
}

interface PanelProps {
  readonly title: string;
  readonly width?: 'half' | 'wide';
  readonly children: ComponentChildren;
}

function Panel({ title, width, children }: PanelProps) {
  const id = useId();
  return (
    <section class={`panel ${width ?? ''}`} aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {children}
    </section>
  );
}
