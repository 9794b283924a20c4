import { span } from '../../../base/units.ts';
import type { CertificateUseView } from '../../view.ts';
import { useFetch } from '../api.ts';
import { date } from '../format.ts';
import { snapshot } from '../live.ts';
import { deploymentLink } from '../parts/links.tsx';
import { Panel, Pending } from '../parts/panel.tsx';
import { Badge } from '../parts/state.tsx';
import { type Column, nameText, Table } from '../parts/table.tsx';

/** Certificates seldom change. */
const EVERY_MS = 30_000;

const KINDS = {
  listener: 'shown to clients',
  upstream: 'of the upstream',
  authority: 'of its authority',
} as const satisfies Record<CertificateUseView['kind'], string>;

/** All certificates that the gateway shows or has seen, the first to expire on top. */
export function CertificatesPage() {
  const { data, error } = useFetch<readonly CertificateUseView[]>('/api/certificates', EVERY_MS);
  const now = snapshot.value?.at ?? 0;
  if (error !== undefined || data === undefined) return <Pending error={error} />;
  const columns: readonly Column<CertificateUseView>[] = [
    {
      label: 'Where',
      cell: ({ kind, name }) => (kind === 'listener' ? <code>{name}</code> : deploymentLink(name)),
      sortBy: ({ name }) => name,
    },
    { label: 'State', cell: ({ state }) => <Badge state={state} />, class: 'beside' },
    { label: 'Use', cell: ({ kind }) => KINDS[kind] },
    { label: 'Subject', cell: ({ subject }) => (subject === '' ? '–' : nameText(subject)) },
    { label: 'Issuer', cell: ({ issuer }) => (issuer === '' ? '–' : nameText(issuer)) },
    {
      label: 'Expires',
      cell: ({ expiresAt }) => date(expiresAt),
      sortBy: ({ expiresAt }) => expiresAt,
      class: 'whole',
    },
    {
      label: 'Left',
      cell: ({ expiresAt }) => (expiresAt <= now ? 'expired' : span((expiresAt - now) / 1000)),
      numeric: true,
    },
  ];
  return (
    <Panel label="Certificates">
      <Table
        label="Certificates"
        columns={columns}
        rows={data}
        keyOf={({ name, kind, subject, expiresAt }) => `${name} ${kind} ${subject} ${expiresAt}`}
        textOf={({ name, subject, issuer }) => `${name} ${subject} ${issuer}`}
        noun="certificate"
        empty="No certificate: no listener has TLS, and there was no handshake with an upstream yet."
      />
    </Panel>
  );
}
