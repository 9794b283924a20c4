import type { ClientView } from '../../view.ts';
import { ago, count, rate } from '../format.ts';
import { snapshot } from '../live.ts';
import { clientLink, codeLink } from '../parts/links.tsx';
import { Panel, Pending } from '../parts/panel.tsx';
import { type Column, numbers, Table } from '../parts/table.tsx';

const COLUMNS: readonly Column<ClientView>[] = [
  { label: 'Client', cell: ({ name }) => clientLink(name), sortBy: ({ name }) => name },
  numbers('Requests/s', ({ perSecond }) => perSecond, rate),
  numbers('Total', ({ requests }) => requests, count),
  {
    ...numbers('Refused/min', ({ refusedLastMinute }) => refusedLastMinute, count),
    cell: ({ refusedLastMinute }) => (
      <span class={refusedLastMinute > 0 ? 'degraded' : ''}>{count(refusedLastMinute)}</span>
    ),
  },
  { label: 'Refusals', cell: refusalsOf },
  {
    label: 'Last seen',
    // Of clients that were not identified, no time is kept.
    cell: ({ name, lastSeen }) => (name === '' ? '–' : lastSeenText(lastSeen)),
    sortBy: ({ lastSeen }) => -(lastSeen ?? 0),
  },
];

/** The request rate and the refusals of each client. */
export function ClientsPage() {
  const clients = snapshot.value?.clients;
  if (clients === undefined) return <Pending />;
  return (
    <Panel label="Clients">
      <Table
        label="Clients"
        columns={COLUMNS}
        rows={clients}
        keyOf={({ name }) => name}
        textOf={({ name, refusals }) => [name, ...refusals.map(({ code }) => code)].join(' ')}
        noun="client"
        empty="No clients are configured, and there were no requests yet."
      />
    </Panel>
  );
}

/** Formats when a client was last seen, in Unix milliseconds. */
export function lastSeenText(at: number | null): string {
  return at === null ? 'not since the start' : ago(((snapshot.value?.at ?? at) - at) / 1000);
}

function refusalsOf({ refusals }: ClientView) {
  if (refusals.length === 0) return 'none';
  return (
    <span>
      {refusals.map((refusal, index) => (
        <span key={refusal.code}>
          {index > 0 && ', '}
          {codeLink(refusal.code)} {count(refusal.count)}
        </span>
      ))}
    </span>
  );
}
