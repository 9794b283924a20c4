import { useState } from 'preact/hooks';
import type { ActionResultView, ProposalsView, ProposalView } from '../../action-view.ts';
import { messageOf, post, useFetch } from '../api.ts';
import { moment } from '../format.ts';
import { addResult } from './action.tsx';

/** Interval at which proposals of others are looked for, in milliseconds. */
const LOOK_MS = 5_000;

/** The actions that wait for a second person. */
export function Proposals() {
  const { data, reload } = useFetch<ProposalsView>('/api/actions/proposals', LOOK_MS);
  if (data === undefined || data.proposals.length === 0) return null;
  return (
    <section class="panel" aria-label="Proposals">
      <h2>Proposals</h2>
      {data.proposals.map((proposal) => (
        <Proposal key={proposal.id} proposal={proposal} onEnd={reload} />
      ))}
    </section>
  );
}

interface ProposalProps {
  readonly proposal: ProposalView;
  readonly onEnd: () => void;
}

function Proposal({ proposal, onEnd }: ProposalProps) {
  const { id, action, effects, proposedBy, proposedAt, isOwn } = proposal;
  const [running, setRunning] = useState(false);
  const [error, setError] = useState<string>();
  const send = (step: 'confirm' | 'withdraw'): void => {
    setRunning(true);
    setError(undefined);
    post<ActionResultView>(`/api/actions/proposals/${id}/${step}`, {})
      .then(addResult, (reason: unknown) => setError(messageOf(reason)))
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
      <p role="alert">{error}</p>
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
