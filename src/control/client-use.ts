import type { ClientUse, LimitUseView, RefusalView } from './client-view.ts';

/** Merges what processes know of a client. Their limits are shared, so the one that knows of the most use is right. */
export function mergeClientUse(uses: readonly ClientUse[]): ClientUse {
  const limits = uses.flatMap((use) => use.limits ?? []);
  const byCode = Map.groupBy(
    uses.flatMap(({ refusals }) => refusals),
    ({ code }) => code,
  );
  return {
    limits: limits.length === 0 ? null : limits.reduce(mostUsed),
    refusals: Array.from(byCode.values(), added).sort((a, b) => b.lastAt - a.lastAt),
  };
}

function mostUsed(a: LimitUseView, b: LimitUseView): LimitUseView {
  return {
    rate: a.rate && b.rate && { ...a.rate, left: Math.min(a.rate.left, b.rate.left) },
    concurrent: a.concurrent &&
      b.concurrent && {
        ...a.concurrent,
        inFlight: Math.max(a.concurrent.inFlight, b.concurrent.inFlight),
      },
    daily: a.daily && b.daily && { ...a.daily, used: Math.max(a.daily.used, b.daily.used) },
  };
}

function added(same: readonly RefusalView[]): RefusalView {
  const last = same.reduce((a, b) => (b.lastAt > a.lastAt ? b : a));
  return { ...last, count: same.reduce((sum, { count }) => sum + count, 0) };
}
