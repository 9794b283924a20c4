import { useEffect, useState } from 'preact/hooks';
import type { ExplanationView, ObservedRefusalView } from '../../client-view.ts';
import { messageOf, post } from '../api.ts';

/** A request as `/api/policy/explain` takes it. */
export type ExplainedRequest = Readonly<Record<'client' | 'deployment' | 'method' | 'target', string>>;

/** The decision on a request by the configuration in use, or why there is none; undefined until one of them is there. */
export function useExplanation(request: ExplainedRequest | undefined): ExplanationView | string | undefined {
  const [explained, setExplained] = useState<ExplanationView | string>();
  useEffect(() => {
    setExplained(undefined);
    if (request === undefined) return;
    const ended = new AbortController();
    const { signal } = ended;
    post<ExplanationView>('/api/policy/explain', request, signal).then(setExplained, (reason: unknown) => {
      if (!signal.aborted) setExplained(messageOf(reason));
    });
    return () => ended.abort();
  }, [JSON.stringify(request)]);
  return explained;
}

/** How the rules of a client will refuse a request, and from when. */
export function ObservedRefusal({ refusal }: { readonly refusal: ObservedRefusalView }) {
  const { until, status, code, rule, detail } = refusal;
  return (
    <>
      from {until} refused with {status} {code} by <code>{rule}</code>: {detail}
    </>
  );
}
