import type { ObservedRefusalView } from '../../client-view.ts';

/** How the rules of a client will refuse a request, and from when. */
export function ObservedRefusal({ refusal }: { readonly refusal: ObservedRefusalView }) {
  const { until, status, code, rule, detail } = refusal;
  return (
    <>
      from {until} refused with {status} {code} by <code>{rule}</code>: {detail}
    </>
  );
}
