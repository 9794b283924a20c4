import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { ActionResultView, ProposalsView, ProposalView } from '../../action-view.ts';
import { post, useFetch } from '../api.ts';
import { moment } from '../format.ts';
import { knownNames, snapshot } from '../live.ts';
import { ActionButton, addFailure, addResult, Results, useAllowed } from '../parts/action.tsx';
import { CredentialActions } from '../parts/credentials.tsx';
import { deploymentLink } from '../parts/links.tsx';
import { Alert, Choice, Panel } from '../parts/panel.tsx';

/** Actions on the gateway. Each one shows its effects and waits for a confirmation. */
export function ActionsPage() {
  const { data: allowed, error, reload } = useAllowed();
  if (allowed === undefined && error !== undefined) {
    return (
      <div class="panel buttons">
        <Alert error={error} />
        <button type="button" onClick={reload}>
          Try again
        </button>
      </div>
    );
  }
  if (allowed === undefined) return <p class="muted">Loading …</p>;
  if (!allowed.allowed) return <p class="panel">{allowed.reason}</p>;
  return (
    <>
      <Panel label="Gateway" class="actions">
        <Action title="Configuration" text="Read it again, with the secrets and certificates that it names.">
          <ActionButton label="Reload" body={{ action: 'reload' }} />
        </Action>
        <Doctor />
        <Action title="Shutdown" text="As after SIGTERM: requests under way end, then the process exits.">
          <ActionButton label="Drain" body={{ action: 'drain' }} />
        </Action>
      </Panel>
      <Proposals />
      <Rotations />
      <Results />
    </>
  );
}

interface ActionProps {
  readonly title: string;
  readonly text: string;
  readonly children: ComponentChildren;
}

function Action({ title, text, children }: ActionProps) {
  return (
    <div>
      <p>
        <b>{title}</b> {text}
      </p>
      <div class="buttons">{children}</div>
    </div>
  );
}

function Doctor() {
  const [deployment, setDeployment] = useState('');
  return (
    <Action
      title="Doctor"
      text="Test upstreams, credentials, Redis and the audit folder, and say what to do."
    >
      <Choice
        label="Deployment"
        value={deployment}
        options={knownNames().deployment}
        none="all"
        onChange={setDeployment}
      />
      <ActionButton
        key={deployment}
        label="Run doctor"
        body={deployment === '' ? { action: 'doctor' } : { action: 'doctor', deployment }}
      />
    </Action>
  );
}

/** Interval at which proposals of others are looked for, in milliseconds. */
const LOOK_MS = 5_000;

/** The actions that wait for a second person. */
function Proposals() {
  const { data, reload } = useFetch<ProposalsView>('/api/actions/proposals', LOOK_MS);
  if (data === undefined || data.proposals.length === 0) return null;
  return (
    <Panel heading="Proposals">
      {data.proposals.map((proposal) => (
        <Proposal key={proposal.id} proposal={proposal} onEnd={reload} />
      ))}
    </Panel>
  );
}

interface ProposalProps {
  readonly proposal: ProposalView;
  readonly onEnd: () => void;
}

function Proposal({ proposal, onEnd }: ProposalProps) {
  const { id, action, effects, proposedBy, proposedAt, isOwn } = proposal;
  const [running, setRunning] = useState(false);
  const send = (step: 'confirm' | 'withdraw'): void => {
    setRunning(true);
    post<ActionResultView>(`/api/actions/proposals/${id}/${step}`, {})
      // Not in this place, which goes with the proposal.
      .then(addResult, (reason: unknown) => addFailure(action, reason))
      .finally(() => {
        setRunning(false);
        onEnd();
      });
  };
  return (
    <article aria-label={`${action}, proposed by ${proposedBy}`}>
      <p>
        <b>{action}</b>, proposed by {proposedBy} at {moment(proposedAt)}
      </p>
      <ul>
        {effects.map((effect) => (
          <li key={effect}>{effect}</li>
        ))}
      </ul>
      {isOwn && <p class="muted">Another operator has to confirm it.</p>}
      <div class="buttons">
        {!isOwn && (
          <button type="button" class="confirm" disabled={running} onClick={() => send('confirm')}>
            Confirm {action}
          </button>
        )}
        <button type="button" disabled={running} onClick={() => send('withdraw')}>
          {isOwn ? 'Withdraw' : 'Reject'} {action}
        </button>
      </div>
    </article>
  );
}

/** The deployments with a credential of which there is more than one version. */
function Rotations() {
  const deployments = snapshot.value?.deployments ?? [];
  const rotating = deployments.filter(({ credentials }) => {
    const names = credentials.map(({ name }) => name);
    return new Set(names).size < names.length;
  });
  return (
    <Panel heading="Credential versions">
      {rotating.length === 0 && (
        <p class="muted">Every credential has one version. Promote a next one here once it is configured.</p>
      )}
      {rotating.map((deployment) => (
        <div key={deployment.name}>
          <h3>{deploymentLink(deployment.name)}</h3>
          <CredentialActions deployment={deployment} now={snapshot.value?.at ?? 0} />
        </div>
      ))}
    </Panel>
  );
}
