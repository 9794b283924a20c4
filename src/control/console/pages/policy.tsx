import type { ExplanationView } from '../../client-view.ts';
import { knownNames } from '../live.ts';
import { type ExplainedRequest, ObservedRefusal, useExplanation } from '../parts/explanation.tsx';
import { changeQuery, clientLink, deploymentLink, type PageProps } from '../parts/links.tsx';
import { Choice, FieldFrame, Panel } from '../parts/panel.tsx';
import { type Fact, Facts } from '../parts/table.tsx';

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];
const FIELDS = ['client', 'deployment', 'method', 'target'] as const;

/** Tells what the gateway would do with a request, and which rule decides. The address holds the request. */
export function PolicyPage({ query }: PageProps) {
  const asked = readRequest(query);
  const explained = useExplanation(asked.target === '' ? undefined : asked);
  return (
    <>
      <ExplainForm key={JSON.stringify(asked)} asked={asked} />
      <div role="status">
        {typeof explained === 'string' && <p class="panel down">{explained}</p>}
        {typeof explained === 'object' && <Explanation explanation={explained} />}
      </div>
    </>
  );
}

function readRequest(query: URLSearchParams): ExplainedRequest {
  const [client = '', deployment = '', method = '', target = ''] = FIELDS.map(
    (name) => query.get(name) ?? '',
  );
  return { client, deployment, method: method === '' ? 'GET' : method, target };
}

function ExplainForm({ asked }: { readonly asked: ExplainedRequest }) {
  const known = knownNames();
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement)) return;
    const data = new FormData(event.currentTarget);
    changeQuery(Object.fromEntries(FIELDS.map((name) => [name, String(data.get(name) ?? '')])));
  };
  return (
    <form class="panel search" onSubmit={submit}>
      <div class="fields">
        <Choice label="Client" name="client" value={asked.client} options={known.client} none="anonymous" />
        <Choice
          label="Deployment"
          name="deployment"
          value={asked.deployment}
          options={known.deployment}
          none="by the target"
        />
        <Choice label="Method" name="method" value={asked.method} options={METHODS} />
        <FieldFrame label="Target" class="wide">
          {(shared) => (
            <input
              {...shared}
              name="target"
              required
              spellcheck={false}
              placeholder="/api/reports?ids=%27A-1%27"
              defaultValue={asked.target}
            />
          )}
        </FieldFrame>
      </div>
      <div class="filters">
        <button type="submit" class="primary">
          Explain
        </button>
      </div>
    </form>
  );
}

function Explanation({ explanation }: { readonly explanation: ExplanationView }) {
  return (
    <Panel label="Explanation">
      <p class="headline">
        {explanation.allowed ? (
          <span class="badge ok">● allowed</span>
        ) : (
          <span class="badge down">{`■ refused: ${explanation.status} ${explanation.code}`}</span>
        )}
      </p>
      <Facts facts={factsOf(explanation)} />
    </Panel>
  );
}

function factsOf(explanation: ExplanationView): (Fact | false)[] {
  const { client, deployment, rule, endedRules } = explanation;
  const of: readonly Fact[] = [
    ['Client', clientLink(client)],
    ...(deployment === '' ? [] : [['Deployment', deploymentLink(deployment)] as const]),
  ];
  const ended = endedRules.length > 0 && (['Ended rules', <Lines lines={endedRules} />] as const);
  const decided = rule !== '' && (['Decided by', <code>{rule}</code>] as const);
  if (!explanation.allowed) return [['Because', explanation.detail], decided, ended, ...of];
  const { wouldRefuse, ends, operation, site, siteAdded, credential, credentialBy, limits } = explanation;
  return [
    decided,
    wouldRefuse !== undefined && ['Observed', <ObservedRefusal refusal={wouldRefuse} />],
    ends !== '' && ['Rule ends', ends],
    ended,
    ...of,
    ['Operation', operation || 'none that is listed'],
    site !== '' && ['Site', `${site}${siteAdded ? ', which the gateway adds' : ''}`],
    ['Credential', `${credential}, named by ${credentialBy}`],
    ['Sends', <code>{explanation.sends}</code>],
    ...Object.entries(explanation.parameters).map(([name, value]): Fact => [name, <code>{value}</code>]),
    ['Limits', limits.length === 0 ? 'none' : <Lines lines={limits} />],
  ];
}

function Lines({ lines }: { readonly lines: readonly string[] }) {
  return (
    <>
      {lines.map((line) => (
        <div key={line}>{line}</div>
      ))}
    </>
  );
}
