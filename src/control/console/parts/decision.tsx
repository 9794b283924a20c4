import { useEffect, useState } from 'preact/hooks';
import type { RequestRow } from '../../audit-view.ts';
import type { ExplanationView } from '../../client-view.ts';
import { callApi } from '../api.ts';

/**
 * The decision of the current policy on a recorded request. The audit log does not record the rule that applied, and
 * the configuration may have changed since.
 */
export function Decision({ row }: { readonly row: RequestRow }) {
  const [explained, setExplained] = useState<ExplanationView | string>();
  const { client, deployment, method, path } = row;
  const target = targetOf(row);
  useEffect(() => {
    if (client === '' || path === '') return;
    const aborting = new AbortController();
    const { signal } = aborting;
    const body = JSON.stringify({ client, deployment, method, target });
    const headers = { 'content-type': 'application/json' };
    callApi<ExplanationView>('/api/policy/explain', { method: 'POST', headers, body, signal }).then(
      setExplained,
      (reason: unknown) => {
        if (!signal.aborted) setExplained(reason instanceof Error ? reason.message : String(reason));
      },
    );
    return () => aborting.abort();
  }, [client, deployment, method, path, target]);
  if (client === '' || path === '') return <>no client was identified</>;
  if (explained === undefined) return <>…</>;
  return (
    <>
      {typeof explained === 'string' ? explained : verdictOf(explained)}
      <div class="muted small">
        Under the present configuration, which may differ from that of the time.
        {isPartial(row) && ' The values that are not recorded were left out.'}
      </div>
    </>
  );
}

function verdictOf({ allowed, rule, status, code, detail }: ExplanationView) {
  if (allowed) {
    return (
      <>
        allowed by <code>{rule}</code>
      </>
    );
  }
  return (
    <>
      refused with {status} {code}
      {rule !== '' && (
        <>
          {' '}
          by <code>{rule}</code>
        </>
      )}
      : {detail}
    </>
  );
}

function isPartial({ parameters, cut }: RequestRow): boolean {
  return cut === true || Object.values(parameters).includes(null);
}

function targetOf({ path, parameters }: RequestRow): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === null) continue;
    for (const each of [value].flat()) query.append(name, each);
  }
  return query.size === 0 ? path : `${path}?${query}`;
}
