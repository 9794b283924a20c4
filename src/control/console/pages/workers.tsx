import { span } from '../../../base/units.ts';
import type { ListenerView, ProcessView } from '../../view.ts';
import { bytes, count, moment, percent } from '../format.ts';
import { snapshot, useRates } from '../live.ts';
import { ActionButton, Results, useAllowed } from '../parts/action.tsx';
import { certificateLink } from '../parts/links.tsx';
import { Panel, Pending } from '../parts/panel.tsx';
import { Badge } from '../parts/state.tsx';
import { type Column, type Fact, Facts, Table } from '../parts/table.tsx';

const TLS = { none: 'none', server: 'yes', mutual: 'with client certificates' } as const satisfies Record<
  ListenerView['tls'],
  string
>;

const LISTENERS: readonly Column<ListenerView>[] = [
  { label: 'Listener', cell: ({ address }) => <code>{address}</code> },
  { label: 'TLS', cell: ({ tls }) => TLS[tls] },
  {
    label: 'Certificate expires',
    cell: ({ certificateExpiresAt: at }) => (at === undefined ? '–' : certificateLink(at)),
  },
  { label: 'Connections', cell: ({ connections }) => count(connections), numeric: true },
];

/** The processes that serve requests, and where clients reach them. */
export function WorkersPage() {
  const now = snapshot.value;
  const processes = now?.gateway.processes ?? [];
  const cpu = useRates(now?.at ?? 0, new Map(processes.map(({ pid, cpuSeconds }) => [`${pid}`, cpuSeconds])));
  const mayAct = useAllowed().data?.allowed === true;
  if (now === undefined) return <Pending />;
  const { version, node, startedAt, configuredAt, storeUp, workers, listeners } = now.gateway;
  const facts: Fact[] = [
    ['Version', `${version} on Node.js ${node}`],
    ['Up since', moment(startedAt)],
    ['Configured', moment(configuredAt)],
    [
      'Workers',
      workers === null ? 'none: one process serves' : `${workers.serving} of ${workers.configured} serve`,
    ],
    ['Redis', storeUp === null ? 'not configured' : storeUp ? 'reachable' : 'unreachable'],
  ];
  const columns: readonly Column<ProcessView>[] = [
    {
      label: 'Process',
      cell: ({ worker, pid }) => (worker === 0 ? `pid ${pid}` : `worker ${worker}, pid ${pid}`),
      class: 'whole',
    },
    {
      label: 'State',
      cell: ({ stage, serves }) => (
        <span>
          <Badge state={serves ? 'ok' : stage === 'serving' ? 'degraded' : 'down'} />{' '}
          {stage !== 'serving' && stage}
        </span>
      ),
      class: 'beside',
    },
    { label: 'Up for', cell: (each) => span((now.at - each.startedAt) / 1000), class: 'whole' },
    { label: 'Connections', cell: ({ connections }) => count(connections), numeric: true },
    {
      label: 'CPU',
      cell: ({ pid }) => {
        const ofOneCore = cpu(`${pid}`);
        return ofOneCore === undefined ? '–' : percent(Math.round(ofOneCore * 1000) / 1000);
      },
      numeric: true,
    },
    { label: 'Memory', cell: ({ memory }) => bytes(memory), numeric: true },
  ];
  return (
    <>
      <Panel label="Gateway">
        <Facts facts={facts} />
        {mayAct && (
          <div class="buttons">
            <ActionButton label="Drain" name="Drain the gateway" body={{ action: 'drain' }} />
          </div>
        )}
      </Panel>
      <Results />
      <Panel label="Processes" heading="Processes that serve requests">
        <Table
          label="Processes"
          columns={columns}
          rows={processes}
          keyOf={({ worker, pid }) => `${worker} ${pid}`}
          empty="No process serves requests."
        />
      </Panel>
      <Panel heading="Listeners">
        <Table
          label="Listeners"
          columns={LISTENERS}
          rows={listeners}
          keyOf={({ address }) => address}
          empty="No listener is open."
        />
      </Panel>
    </>
  );
}
