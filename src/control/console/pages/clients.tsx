import type { ClientView } from '../../view.ts';
import { ago, count, rate } from '../format.ts';
import { snapshot } from '../live.ts';
import { clientLink } from '../parts/links.tsx';
import { type Column, Table } from '../parts/table.tsx';

const COLUMNS: readonly Column<ClientView>[] = [
  { label: 'Client', cell: ({ name }) => clientLink(name), sortBy: ({ name }) => name },
  {
    label: 'Requests per second',
    cell: ({ perSecond }) => rate(perSecond),
    sortBy: ({ perSecond }) => perSecond,
    numeric: true,
  },
  {
    label: 'Total',
    cell: ({ requests }) => count(requests),
    sortBy: ({ requests }) => requests,
    numeric: true,
  },
  {
    label: 'Refused per minute',
    cell: ({ refusedLastMinute }) => (
      <span class={refusedLastMinute > 0 ? 'degraded' : ''}>{count(refusedLastMinute)}</span>
    ),
    sortBy: ({ refusedLastMinute }) => refusedLastMinute,
    numeric: true,
  },
  { label: 'Refusals', cell: refusalsText },
  {
    label: 'Last seen',
    cell: ({ lastSeen }) => lastSeenText(lastSeen),
    sortBy: ({ lastSeen }) => -(lastSeen ?? 0),
  },
];

/** The request rate and the refusals of each client. */
export function ClientsPage() {
  const clients = snapshot.value?.clients;
  if (clients === undefined) return null;
  return (
    <section class="panel" aria-label="Clients">
      <Table
        label="Clients"
        columns={COLUMNS}
        rows={clients}
        keyOf={({ name }) => name}
        textOf={(client) => `${client.name} ${refusalsText(client)}`}
        noun="client"
        empty="No requests yet."
      />
    </section>
  );
}

/** Formats when a client was last seen, in Unix milliseconds. */
export function lastSeenText(at: number | null): string {
  return at === null ? 'not since the start' : ago(((snapshot.value?.at ?? at) - at) / 1000);
}

function refusalsText({ refusals }: ClientView): string {
  const codes = refusals.map((refusal) => `${refusal.code} ${count(refusal.count)}`);
  return codes.length === 0 ? 'none' : codes.join(', ');
}
