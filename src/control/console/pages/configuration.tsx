import type { ConfigurationView } from '../../client-view.ts';
import { useFetch } from '../api.ts';
import { snapshot } from '../live.ts';

/** The configuration in use, which is fetched again after a reload. */
export function ConfigurationPage() {
  return <Configuration key={snapshot.value?.gateway.configuredAt} />;
}

function Configuration() {
  const { data, error } = useFetch<ConfigurationView>('/api/configuration');
  return (
    <section class="panel" aria-label="Configuration in use">
      <p class="muted">
        In use, with defaults and included files. Secrets are cut out. <code>digest-gateway config show</code>{' '}
        prints that of a file.
      </p>
      {error !== undefined && (
        <p class="broken" role="alert">
          {error}
        </p>
      )}
      {data === undefined ? (
        error === undefined && <p class="muted">Asking the gateway …</p>
      ) : (
        <pre>{data.yaml}</pre>
      )}
    </section>
  );
}
