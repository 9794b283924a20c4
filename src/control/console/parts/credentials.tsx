import { span } from '../../../base/units.ts';
import type { CredentialView, DeploymentView } from '../../view.ts';
import { date } from '../format.ts';
import { ActionButton, useAllowed } from './action.tsx';
import { type Column, Table } from './table.tsx';

interface CredentialActionsProps {
  readonly deployment: DeploymentView;
  /** Unix milliseconds. */
  readonly now: number;
}

/**
 * The versions of each credential of a deployment: those of the configuration, and one that is kept as a fallback; with
 * buttons to promote them, to roll back, to withdraw the next one and to retry one that is refused, if this session may.
 */
export function CredentialActions({ deployment, now }: CredentialActionsProps) {
  const mayAct = useAllowed().data?.allowed === true;
  const columns: readonly Column<CredentialView>[] = [
    { label: 'Credential', cell: ({ name }) => name },
    {
      label: 'Version',
      cell: ({ version, role }) => (role === undefined ? version : `${version} (${role})`),
    },
    { label: 'State', cell: stateText },
    {
      label: 'Changed',
      cell: ({ changedAt }) =>
        changedAt === undefined ? 'unknown' : `${date(changedAt)}, ${span((now - changedAt) / 1000)} ago`,
    },
    {
      label: 'Action',
      cell: (each) => hasAction(each) && <VersionButton deployment={deployment.name} credential={each} />,
    },
  ];
  return (
    <Table
      label="Credentials"
      columns={mayAct && deployment.credentials.some(hasAction) ? columns : columns.slice(0, -1)}
      rows={deployment.credentials}
      keyOf={({ name, version }) => `${name} ${version}`}
      empty="No credentials."
    />
  );
}

/** One that is in use and accepted has none. */
function hasAction({ refused, status }: CredentialView): boolean {
  return refused || status !== 'in-use';
}

function stateText({ status, state, refused }: CredentialView) {
  if (refused) return <span class="down">{state}: tried twice a minute only</span>;
  return <span class={status === 'rejected' ? 'degraded' : ''}>{state}</span>;
}

interface VersionProps {
  readonly deployment: string;
  readonly credential: CredentialView;
}

function VersionButton({
  deployment,
  credential: { name: credential, version, status, refused, role },
}: VersionProps) {
  if (refused) {
    const body = { action: 'retry', credential } as const;
    return <ActionButton label="Retry now" name={`Retry ${credential} now`} body={body} />;
  }
  const isFallback = status === 'fallback';
  const label = isFallback ? 'Roll back' : 'Promote';
  const object = `version ${version} of ${credential} at ${deployment}`;
  return (
    <div class="buttons">
      <ActionButton
        label={label}
        name={isFallback ? `Roll back to ${object}` : `Promote ${object}`}
        body={{ action: isFallback ? 'roll-back' : 'promote', deployment, credential, version }}
      />
      {role === 'next' && (
        <ActionButton
          label="Withdraw"
          name={`Withdraw version ${version} of ${credential}`}
          body={{ action: 'withdraw', credential }}
        />
      )}
    </div>
  );
}
