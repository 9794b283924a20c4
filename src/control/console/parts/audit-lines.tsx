import { useState } from 'preact/hooks';
import type { OperatorView } from '../../action-view.ts';
import type { RequestRow } from '../../audit-view.ts';
import type { AuditLine, AuditView } from '../../view.ts';
import { useFetch } from '../api.ts';
import { count, counted, timeOfDay } from '../format.ts';
import { auditLines } from '../live.ts';
import { clientLink, codeLink, deploymentLink, requestHref, searchLink } from './links.tsx';
import { Choice, Panel } from './panel.tsx';
import { Badge } from './state.tsx';
import { type Column, Table } from './table.tsx';

/** Maximum number of lines that are shown. */
const SHOWN = 100;

const LINE_KINDS = [
  ['', 'responses and events'],
  ['refused', 'refused or failed'],
  ['admin', 'the gateway itself'],
  ['all', 'everything, outcomes too'],
] as const;

const LINE_COLUMNS: readonly Column<AuditLine>[] = [
  {
    label: 'Time',
    cell: ({ requestId, time }) => {
      const text = timeOfDay(Date.parse(time));
      return requestId === '' ? text : <a href={requestHref(requestId, time)}>{text}</a>;
    },
    class: 'whole',
  },
  {
    label: 'Client',
    cell: ({ kind, client }) => (kind === 'admin' ? 'the gateway' : clientLink(client)),
    class: 'whole',
  },
  { label: 'Deployment', cell: placeOf, class: 'named' },
  { label: 'Request', cell: (line) => (line.kind === 'admin' ? line.operation : operationOf(line)) },
  {
    label: 'Status',
    cell: ({ status, code }) =>
      status !== 0 && (
        <span>
          {status} {code !== '' && codeLink(code)}
        </span>
      ),
    class: 'status whole beside',
  },
];

/** The lines of the audit log as they come, until they are paused. */
export function NewLines({ audit }: { readonly audit: AuditView }) {
  const [kind, setKind] = useState('');
  const { data: viewer } = useFetch<OperatorView>('/api/operator');
  const isRefused = viewer !== undefined && viewer.name !== null && !viewer.roles.includes('auditor');
  // The lines of the moment of a pause, in which they keep their places.
  const [paused, setPaused] = useState<readonly AuditLine[]>();
  const rows = (paused ?? auditLines.value).filter((line) => isKind(line, kind)).toReversed();
  return (
    <Panel label="Audit log">
      <Chain audit={audit} />
      <div class="filters">
        <Choice label="Show" value={kind} options={LINE_KINDS} onChange={setKind} />
        <button type="button" onClick={() => setPaused(paused === undefined ? auditLines.value : undefined)}>
          {paused === undefined ? 'Pause' : 'Continue'}
        </button>
        <span class="muted" role="status">
          {paused !== undefined && counted(linesAfter(paused.at(-1)), 'new line')}
        </span>
      </div>
      <Table
        label="Audit lines"
        columns={LINE_COLUMNS}
        rows={rows}
        keyOf={({ seq, time }) => `${seq} ${time}`}
        textOf={(line) => Object.values(line).join(' ')}
        rowClass={({ code, status }) => (code !== '' || status >= 400 ? 'failed' : '')}
        noun="line"
        limit={SHOWN}
        empty={isRefused ? 'The lines need the role auditor.' : 'No lines yet.'}
      />
    </Panel>
  );
}

/** Number of lines after this one; undefined: all of them. */
function linesAfter(last: AuditLine | undefined): number {
  const lines = auditLines.value;
  return lines.length - 1 - lines.findLastIndex(({ seq, time }) => seq === last?.seq && time === last.time);
}

function Chain({ audit: { chain, records, failures, failing } }: { readonly audit: AuditView }) {
  return (
    <>
      <p>
        <Badge state={chain.state === 'intact' ? 'ok' : 'down'} />{' '}
        <span>
          Chain {chain.state}: {chain.detail}
        </span>
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

/** On a phone a cell is a grid, so its content has to be one element. */
export function placeOf({ deployment, site }: Pick<RequestRow, 'deployment' | 'site'>) {
  return (
    <span>
      {deploymentLink(deployment)} {searchLink('site', site)}
    </span>
  );
}

/** The operation implies the path. */
export function operationOf({ operation, method, path }: Pick<RequestRow, 'operation' | 'method' | 'path'>) {
  if (operation !== '') return searchLink('operation', operation);
  return <span class="muted small path">{`${method} ${path}`}</span>;
}
