import type { DeploymentView, State } from '../../view.ts';
import { count, latency, rate } from '../format.ts';
import { snapshot } from '../live.ts';
import { Badge } from '../parts/badge.tsx';
import { Errors } from '../parts/errors.tsx';
import { deploymentLink } from '../parts/links.tsx';
import { type Column, Table } from '../parts/table.tsx';

const BADNESS: Readonly<Record<State, number>> = { broken: 0, degraded: 1, ok: 2 };

const COLUMNS: readonly Column<DeploymentView>[] = [
  { label: 'Deployment', cell: ({ name }) => deploymentLink(name), sortBy: ({ name }) => name },
  { label: 'State', cell: ({ state }) => <Badge state={state} />, sortBy: ({ state }) => BADNESS[state] },
  { label: 'Reason', cell: ({ reasons }) => reasons.join(' ') },
  {
    label: 'Requests/s',
    cell: ({ perSecond }) => rate(perSecond.requests),
    sortBy: ({ perSecond }) => perSecond.requests,
    numeric: true,
  },
  {
    label: 'Errors/s',
    cell: ({ perSecond }) => rate(perSecond.errors),
    sortBy: ({ perSecond }) => perSecond.errors,
    numeric: true,
  },
  {
    label: 'p95',
    cell: ({ latency: taken }) => (taken === undefined ? '–' : latency(taken.p95)),
    sortBy: ({ latency: taken }) => taken?.p95 ?? -1,
    numeric: true,
  },
  {
    label: 'In flight',
    cell: ({ inFlight }) => count(inFlight),
    sortBy: ({ inFlight }) => inFlight,
    numeric: true,
  },
];

/** All deployments, the worst on top, and recent errors. */
export function OverviewPage() {
  const now = snapshot.value;
  if (now === undefined) return null;
  const rows = now.deployments.toSorted(worstFirst);
  return (
    <>
      <section class="panel" aria-label="Deployments">
        <Table
          label="Deployments"
          columns={COLUMNS}
          rows={rows}
          keyOf={({ name }) => name}
          textOf={({ name, origin, state, reasons }) => [name, origin, state, ...reasons].join(' ')}
          noun="deployment"
          empty="No deployments are configured."
        />
      </section>
      <section aria-labelledby="errors-title">
        <h2 id="errors-title">Recent errors</h2>
        <div class="panel">
          <Errors errors={now.errors} now={now.at} />
        </div>
      </section>
    </>
  );
}

function worstFirst(a: DeploymentView, b: DeploymentView): number {
  return (
    BADNESS[a.state] - BADNESS[b.state] ||
    b.perSecond.errors - a.perSecond.errors ||
    a.name.localeCompare(b.name, 'en')
  );
}
