import { useState } from 'preact/hooks';
import type { AuditLine, AuditView, ChainView } from '../../view.ts';
import { count, counted, timeOfDay } from '../format.ts';
import { auditLines, snapshot } from '../live.ts';
import { clientLink, deploymentLink, requestLink, searchLink } from '../parts/links.tsx';
import { type Column, Table } from '../parts/table.tsx';
import type { PageProps } from '../router.tsx';
import { AuditForm } from './audit-form.tsx';
import { AuditResults } from './audit-results.tsx';

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
};

const COLUMNS: readonly Column<AuditLine>[] = [
  { label: 'Time', cell: ({ time }) => timeOfDay(Date.parse(time)), class: 'whole' },
  {
    label: 'Client',
    cell: ({ kind, client }) => (kind === 'admin' ? 'the gateway' : clientLink(client)),
    class: 'whole',
  },
  {
    label: 'Deployment',
    cell: ({ deployment, site }) => (
      <span>
        {deploymentLink(deployment)} {searchLink('site', site)}
      </span>
    ),
  },
  { label: 'Request', cell: requestText },
  {
    label: 'Status',
    cell: ({ status, code }) => `${status === 0 ? '' : status} ${code}`.trim(),
    class: 'status whole',
  },
  { label: 'Request id', cell: ({ requestId, time }) => requestLink(requestId, time), class: 'whole' },
];

/** The search in the audit log; without a search, its new lines as they come. */
export function AuditPage({ query }: PageProps) {
  const [round, setRound] = useState(0);
  const audit = snapshot.value?.audit;
  if (audit === undefined) return null;
  if (audit === null) {
    return (
      <p class="muted">
        No audit is configured. With an audit section in the configuration, every request is recorded and
        shown here.
      </p>
    );
  }
  return (
    <>
      <AuditForm key={String(query)} query={query} onRepeat={() => setRound(round + 1)} />
      {query.size === 0 ? (
        <NewLines audit={audit} />
      ) : (
        <AuditResults key={`${round} ${query}`} query={query} />
      )}
    </>
  );
}

function NewLines({ audit }: { readonly audit: AuditView }) {
  const [kind, setKind] = useState('');
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
  return (
    <>
      <p class={CHAIN[chain.state]}>
        Chain {chain.state}: {chain.detail}
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
