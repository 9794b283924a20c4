import type { CredentialView, DeploymentView } from '../../view.ts';
import { ActionButton, useAllowed } from './action.tsx';
import { Credentials } from './deployment-facts.tsx';
import type { Column } from './table.tsx';

interface CredentialActionsProps {
  readonly deployment: DeploymentView;
  /** Unix milliseconds. */
  readonly now: number;
}

/** The credential versions of a deployment, with buttons to promote them or to roll back, if this session may. */
export function CredentialActions({ deployment, now }: CredentialActionsProps) {
  const { name, credentials } = deployment;
  const column: Column<CredentialView> = {
    label: 'Action',
    cell: (each) => <VersionButton deployment={name} credential={each} />,
  };
  const actions = useAllowed().data?.allowed === true ? column : undefined;
  return <Credentials credentials={credentials} now={now} actions={actions} />;
}

interface VersionProps {
  readonly deployment: string;
  readonly credential: CredentialView;
}

function VersionButton({
  deployment,
  credential: { name: credential, version, status, refused },
}: VersionProps) {
  if (status === 'in-use' || refused) return null;
  const isFallback = status === 'fallback';
  const label = isFallback ? 'Roll back' : 'Promote';
  const object = `version ${version} of ${credential} at ${deployment}`;
  return (
    <ActionButton
      label={label}
      name={isFallback ? `Roll back to ${object}` : `Promote ${object}`}
      body={{ action: isFallback ? 'roll-back' : 'promote', deployment, credential, version }}
    />
  );
}
