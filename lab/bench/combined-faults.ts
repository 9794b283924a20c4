import { setTimeout as delay } from 'node:timers/promises';
import { PROFILES, startFaultScene } from '../../test/full/combined-faults.ts';

/**
 * A reload, a credential rotation and a reset of every upstream connection at the same time, again and again, while
 * three processes that share a Redis are under load.
 *
 *     node lab/bench/combined-faults.ts [rounds for each upstream] [name of the upstream]
 *
 * A reset explains that a request failed if it was under way then and is not idempotent (POST), or if it met two.
 */
const rounds = Number(process.argv[2] ?? 200);
const only = process.argv[3];
/** How long the load goes on after the last round, in milliseconds. */
const AFTER_MS = 3_000;

console.log(`${rounds} rounds each, 3 processes, Node ${process.version}`);
for (const [name, profile] of Object.entries(PROFILES)) {
  if (only !== undefined && only !== name) continue;
  const begun = performance.now();
  const scene = await startFaultScene(profile);
  try {
    for (let round = 1; round <= rounds; round += 1) await scene.round();
    await delay(AFTER_MS);
    const report = await scene.report();
    const { failures, requests, slowestMs, steadyAfterMs, errors } = report;
    const count = (explained: boolean) => failures.filter((each) => each.explained === explained).length;
    console.log(`\n${name} (${((performance.now() - begun) / 1000).toFixed(0)} s)`);
    console.log(`  rounds                        ${report.rounds}`);
    console.log(`  client requests               ${requests}`);
    console.log(`  failed, a reset explains it   ${count(true)}${reasons(true)}`);
    console.log(`  failed otherwise              ${count(false)}${reasons(false)}`);
    console.log(`  nonce + nc again              ${report.duplicates} of ${report.authorizations}`);
    console.log(`  challenges                    ${report.challenges}`);
    console.log(`  attempts with a wrong password ${report.wrong}`);
    console.log(`  slowest client request        ${slowestMs.toFixed(0)} ms`);
    console.log(`  /readyz other than 200        ${report.unready}`);
    console.log(
      `  steady after the last faults  ${steadyAfterMs.faults.toFixed(0)} ms, ${steadyAfterMs.takenOver.toFixed(0)} ms after all processes had taken over what was changed`,
    );
    for (const error of errors) console.log(`  logged: ${error}`);

    function reasons(explained: boolean): string {
      const counts: Record<string, number> = {};
      for (const each of failures) {
        if (each.explained === explained) counts[each.what] = (counts[each.what] ?? 0) + 1;
      }
      const texts = Object.entries(counts).map(([what, number]) => `${number} x ${what}`);
      return texts.length === 0 ? '' : ` (${texts.join(', ')})`;
    }
  } finally {
    await scene.close();
  }
}
