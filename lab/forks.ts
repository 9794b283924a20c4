import { type ForkReport, runForks } from './forks/run.ts';
import type { LabOptions, LabPart, PartReport } from './part.ts';

const RUNS = 1000;

export const forks: LabPart = {
  name: 'forks',
  description:
    'Somebody with all keys of a gateway puts an old copy of its audit log back, or writes it anew: the witness finds each.',
  run,
};

async function run({ seed, runs = RUNS, limitMs, progress }: LabOptions): Promise<PartReport> {
  const begun = performance.now();
  const goesOn = (): boolean => performance.now() - begun < limitMs;
  const report: ForkReport = await runForks({ seed, tries: runs, goesOn, progress });
  const { tries, found, foundWithout, cosigned, histories } = report;
  return {
    figures: {
      tries,
      'found by the heads of the witness': found,
      'found without a witness': foundWithout,
      'forged heads that were cosigned': cosigned,
      'honest logs, none of which was blamed': histories,
    },
    tables: [
      {
        title: 'By attack',
        head: ['attack', 'tries', 'found'],
        rows: Object.entries(report.attacks).map(([name, each]) => [
          name,
          String(each.tries),
          String(each.found),
        ]),
      },
    ],
    findings: report.findings.map(({ seed: at, what }) => ({
      seed: at,
      what,
      replay: `npm run lab -- forks --first ${at} --runs 1`,
    })),
  };
}
