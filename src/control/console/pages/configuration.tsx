import type { ConfigurationView } from '../../client-view.ts';
import type { ListenerView } from '../../view.ts';
import { useFetch } from '../api.ts';
import { count, date } from '../format.ts';
import { snapshot } from '../live.ts';
import { type Column, Table } from '../parts/table.tsx';

const TLS = { none: 'none', server: 'yes', mutual: 'with client certificates' } as const satisfies Record<
  ListenerView['tls'],
  string
>;

const LISTENERS: readonly Column<ListenerView>[] = [
  { label: 'Listener', cell: ({ address }) => <code>{address}</code> },
  { label: 'TLS', cell: ({ tls }) => TLS[tls] },
  {
    label: 'Certificate expires',
    cell: ({ certificateExpiresAt: at }) => (at === undefined ? '–' : date(at)),
  },
  { label: 'Connections', cell: ({ connections }) => count(connections), numeric: true },
];

/** Where clients are served, and the configuration in use, which is fetched again after a reload. */
export function ConfigurationPage() {
  const gateway = snapshot.value?.gateway;
  return (
    <>
      <section class="panel" aria-label="Listeners">
        <Table
          label="Listeners"
          columns={LISTENERS}
          rows={gateway?.listeners ?? []}
          keyOf={({ address }) => address}
          empty="No listener is open."
        />
      </section>
      <Configuration key={gateway?.configuredAt} />
    </>
  );
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
