import type { Violation } from './observer.ts';
import { isOfPassword, type Plan } from './plan.ts';
import { type RunResult, runPlan } from './run.ts';

/** Events that are spent on making a schedule smaller: some 200 runs of a usual one. */
const EVENTS = 300_000;

/** A smaller schedule that breaks the same invariant: without the faults and requests that it does not need. */
export async function shrink(plan: Plan, { invariant }: Violation): Promise<Plan> {
  let left = EVENTS;
  const stillFails = async (candidate: Plan): Promise<boolean> => {
    if (left <= 0 || candidate.requests.length === 0) return false;
    const { violations, events } = await runPlan(candidate, { trace: false });
    left -= events;
    return violations.some((each) => each.invariant === invariant);
  };
  const withoutFaults = await reduce(plan, 'faults', stillFails);
  return reduce(withoutFaults, 'requests', stillFails);
}

type Part = 'faults' | 'requests';

/** Leaves parts out while the schedule fails without them, many at a time first. */
async function reduce(
  plan: Plan,
  part: Part,
  stillFails: (candidate: Plan) => Promise<boolean>,
): Promise<Plan> {
  let smallest = plan;
  for (let size = Math.ceil(plan[part].length / 2); size >= 1; size = Math.floor(size / 2)) {
    for (let at = 0; at < smallest[part].length; ) {
      const candidate = without(smallest, part, at, size);
      if (candidate[part].length < smallest[part].length && (await stillFails(candidate)))
        smallest = candidate;
      else at += size;
    }
  }
  return smallest;
}

function without(plan: Plan, part: Part, at: number, count: number): Plan {
  if (part === 'faults') {
    // The expected result depends on how the password changes.
    const faults = plan.faults.filter(
      ({ kind }, index) => isOfPassword(kind) || index < at || index >= at + count,
    );
    return { ...plan, faults };
  }
  // Requests are known by their position.
  const requests = plan.requests.toSpliced(at, count).map((request, id) => ({ ...request, id }));
  return { ...plan, requests };
}

export async function replay(
  plan: Plan,
  shrinks: boolean,
): Promise<{ readonly plan: Plan; readonly result: RunResult }> {
  const result = await runPlan(plan, { trace: true });
  const [first] = result.violations;
  if (first === undefined || !shrinks) return { plan, result };
  const smallest = await shrink(plan, first);
  return { plan: smallest, result: await runPlan(smallest, { trace: true }) };
}
