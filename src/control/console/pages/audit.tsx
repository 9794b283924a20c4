import { useState } from 'preact/hooks';
import type { AuditLine, AuditView, ChainView } from '../../view.ts';
import { count, counted, moment, timeOfDay } from '../format.ts';
import { auditLines, snapshot } from '../live.ts';
import { clientLink, deploymentLink, requestLink } from '../parts/links.tsx';
import { type Column, Table } from '../parts/table.tsx';

/** Maximum number of lines that are shown. */
const SHOWN = 100;

const KINDS = [
  ['', 'responses and events'],
  ['refused', 'refused or failed'],
  ['admin', 'the gateway itself'],
  ['all', 'everything, outcomes too'],
] as const;

const CHAIN: Readonly<Record<ChainView['state'], string>> = {
  intact: 'ok',
  altered: 'broken',
  unchecked: 'muted',
  checking: 'muted',
};

const COLUMNS: readonly Column<AuditLine>[] = [
  { label: 'Time', cell: ({ time }) => timeOfDay(Date.parse(time)), class: 'whole' },
  { label: 'Client', cell: ({ client }) => clientLink(client), class: 'whole' },
  {
    label: 'Deployment',
    cell: ({ deployment, site }) => (
      <>
        {deploymentLink(deployment)}
        {site !== '' && `, ${site}`}
      </>
    ),
  },
  { label: 'Request', cell: requestText },
  {
    label: 'Status',
    cell: ({ status, code }) => `${status === 0 ? '' : status} ${code}`.trim(),
    class: 'status whole',
  },
  { label: 'Request id', cell: ({ requestId }) => requestLink(requestId), class: 'whole' },
];

/** New lines of the audit log, and the state of its chain. */
export function AuditPage() {
  const audit = snapshot.value?.audit;
  const [kind, setKind] = useState('');
  if (audit === undefined) return null;
  if (audit === null) {
    return (
      <p class="muted">
        No audit is configured. With an audit section in the configuration, every request is recorded and
        shown here.
      </p>
    );
  }
  const rows = auditLines.value.filter((line) => isKind(line, kind)).toReversed();
  return (
    <section class="panel" aria-label="Audit log">
      <Chain audit={audit} />
      <label>
        Show{' '}
        <select value={kind} onChange={({ currentTarget }) => setKind(currentTarget.value)}>
          {KINDS.map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <Table
        label="Audit lines"
        columns={COLUMNS}
        rows={rows}
        keyOf={({ seq, time }) => `${seq} ${time}`}
        textOf={(line) => Object.values(line).join(' ')}
        rowClass={({ code, status }) => (code !== '' || status >= 400 ? 'failed' : '')}
        noun="line"
        limit={SHOWN}
        empty="No lines yet."
      />
    </section>
  );
}

function Chain({ audit: { chain, records, failures, failing } }: { readonly audit: AuditView }) {
  const checked = chain.checkedAt === undefined ? '' : ` Checked ${moment(chain.checkedAt)}.`;
  return (
    <>
      <p class={CHAIN[chain.state]}>
        Chain {chain.state}: {chain.detail}
        {checked}
      </p>
      <p class="muted">
        {counted(records, 'record')} since the start, {count(failures)} not written.
        {failing !== undefined && ` Records cannot be written: ${failing}.`}
      </p>
    </>
  );
}

function isKind({ kind, code, status }: AuditLine, wanted: string): boolean {
  if (wanted === 'refused') return code !== '' || status >= 400;
  return wanted === 'all' || kind === wanted || (wanted === '' && kind !== 'outcome');
}

function requestText({ operation, method, path, kind }: AuditLine): string {
  if (kind === 'admin') return operation;
  return operation === '' ? `${method} ${path}` : `${operation} (${method} ${path})`;
}
