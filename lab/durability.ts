import { runKills } from './durability/kills.ts';
import { runPowerLosses } from './durability/power-losses.ts';
import type { LabOptions, LabPart, PartReport } from './part.ts';

const KILLS = 200;
/** Kills for each loss of power, which takes longer. */
const KILLS_FOR_LOSS = 5;
/** The share of the time that the kills have. */
const SHARE_OF_KILLS = 0.5;

export const durability: LabPart = {
  name: 'durability',
  description:
    'Gateways under load are killed, and the disk of their audit log loses its power: each response has its record, or the loss is told.',
  run,
};

async function run({ seed, runs = KILLS, limitMs, progress }: LabOptions): Promise<PartReport> {
  const begun = performance.now();
  const within = (share: number) => () => performance.now() - begun < share * limitMs;
  const kills = await runKills({ seed, kills: runs, goesOn: within(SHARE_OF_KILLS), progress });
  const power = await runPowerLosses({
    seed,
    losses: Math.ceil(runs / KILLS_FOR_LOSS),
    goesOn: within(1),
    progress,
  });
  const killRows = Array.from(kills.counts, ([kind, { times, responses, failed, recoveries }]) => [
    kind,
    ...[times, responses, failed, recoveries].map(String),
  ]);
  const powerRows = Object.entries(power.counts).map(([kind, each]) => [
    kind,
    ...[each.losses, each.responses, each.lost, each.withLost, each.told].map(String),
  ]);
  const replay = `npm run lab -- durability --first ${seed} --runs ${runs}`;
  return {
    figures: { seed, seconds: Math.round((performance.now() - begun) / 1_000) },
    tables: [
      {
        title: 'Kills of a gateway under load (SIGKILL)',
        head: ['durability', 'kills', 'complete responses', 'failed requests', 'starts that set lines aside'],
        rows: killRows,
      },
      {
        title: 'Losses of power (ext4)',
        head: [
          'durability',
          'losses of power',
          'complete responses',
          'of which without a record',
          'losses of power with such',
          'told by audit verify and at the next start',
        ],
        rows: powerRows,
      },
    ],
    findings: [...kills.findings, ...power.findings].map((what) => ({ seed, what, replay })),
  };
}
