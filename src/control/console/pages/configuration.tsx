import type { ConfigurationView } from '../../client-view.ts';
import { useFetch } from '../api.ts';
import { snapshot } from '../live.ts';
import { ActionButton, Results, useAllowed } from '../parts/action.tsx';
import { Alert, Panel } from '../parts/panel.tsx';

/** The configuration in use, which is fetched again after a reload. */
export function ConfigurationPage() {
  const gateway = snapshot.value?.gateway;
  return (
    <>
      <Results />
      <Configuration key={gateway?.configuredAt} />
    </>
  );
}

function Configuration() {
  const { data, error } = useFetch<ConfigurationView>('/api/configuration');
  const mayAct = useAllowed().data?.allowed === true;
  return (
    <Panel label="Configuration in use">
      <p class="muted">
        In use, with defaults and included files. Secrets are left out.{' '}
        <code>digest-gateway config show</code> prints the same for a file.
      </p>
      {mayAct && (
        <div class="buttons">
          <ActionButton label="Reload" body={{ action: 'reload' }} />
        </div>
      )}
      <Alert error={error} />
      {data === undefined ? error === undefined && <p class="muted">Loading …</p> : <pre>{data.yaml}</pre>}
    </Panel>
  );
}
