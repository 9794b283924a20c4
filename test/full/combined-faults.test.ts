import { afterEach, expect, test } from '@jest/globals';
import { type FaultScene, PROFILES, startFaultScene } from './combined-faults.ts';

/** Milliseconds for each request at the upstream. Fewer requests than the processors could do show the same. */
const DELAY_MS = 100;
/** Client requests in a row that take no more than they have to. */
const STEADY = 100;
/** Time limit for a machine that is busy with other tests; an idle one takes a few seconds. */
const LIMIT_MS = 600_000;

let scene: FaultScene | undefined;

afterEach(async () => {
  await scene?.close();
  scene = undefined;
});

// More rounds, and how long all of it takes: lab/bench/combined-faults.ts.
test.each([
  ['strict nc', 3],
  ['one-time nonce', 1],
  ['no qop', 2],
  ['never stale', 1],
])(
  'a reload, a rotation and a reset at the same time fail nothing that the reset does not explain: %s',
  async (name, rounds) => {
    const profile = PROFILES[name];
    if (profile === undefined) throw new Error(`no profile ${name}`);
    scene = await startFaultScene(profile, DELAY_MS);
    for (let round = 1; round <= rounds; round += 1) await scene.round();
    await scene.steady(STEADY);
    const report = await scene.report();
    const { failures, duplicates, unready, errors } = report;
    expect(failures.filter(({ explained }) => !explained)).toEqual([]);
    expect([duplicates, unready]).toEqual([0, 0]);
    // Each `next` is there before the upstream takes it, and waits.
    expect(errors).toEqual([]);
    expect(report.authorizations).toBeGreaterThanOrEqual(report.requests - failures.length);
  },
  LIMIT_MS,
);
