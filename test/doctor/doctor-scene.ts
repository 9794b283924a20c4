import { doctorInput } from '../../src/app/deployments.ts';
import { examine, type Report } from '../../src/doctor/doctor.ts';
import type { Finding } from '../../src/doctor/finding.ts';
import { type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import type { Simulator } from '../../src/simulator/simulator.ts';
import { closing } from '../support/closing.ts';
import { setupFor, type TestDeployment, type TopLevel } from '../support/gateway.ts';
import { startSimulator } from '../support/simulator.ts';

const PATH = '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids';

/** Settings of a deployment whose one operation is that of the simulator. */
export const withOperation = {
  operations: { authors: { method: 'GET', path: PATH, parameters: { site_name: 'text' } } },
};

/** The same, with a site for each name, all with the credential `d`. */
export function withSites(...names: string[]): Record<string, unknown> {
  return {
    credential: undefined,
    siteParameter: 'site_name',
    sites: Object.fromEntries(names.map((name) => [name, { credential: 'd' }])),
    operations: { authors: { method: 'GET', path: PATH, parameters: { site_name: 'site' } } },
  };
}

type SubmissionsSimulator = Simulator<'submissions' | 'abstracts'>;

/** A simulator for one test, which closes it at its end. */
export async function startSubmissions(behaviour: BehaviourChange = {}): Promise<SubmissionsSimulator> {
  const { deployments } = defaultSettings();
  const simulator = await startSimulator({
    deployments: { ...deployments, submissions: { ...deployments.submissions, ...behaviour } },
  });
  closing.push(() => simulator.close());
  return simulator;
}

export interface DoctorOptions {
  readonly top?: TopLevel;
  /** How far this host's clock is ahead, in milliseconds. */
  readonly clockOffMs?: number;
}

/** Examines one deployment, called `d` like its credential. */
export async function examined(
  deployment: TestDeployment,
  { top = {}, clockOffMs = 0 }: DoctorOptions = {},
): Promise<Report> {
  const setup = await setupFor({ d: deployment }, top);
  const deps = { wallTime: () => Date.now() + clockOffMs };
  return examine(doctorInput(setup), deps);
}

/** The deployment that the simulator's submissions service is. */
export function simulated(
  simulator: SubmissionsSimulator,
  settings: Record<string, unknown> = withSites('demo'),
): TestDeployment {
  return { origin: simulator.deployments.submissions.origin, ca: simulator.ca, settings };
}

/** Check, subject and verdict of each finding: the problem, or its mark. */
export function verdicts(report: Report): string[] {
  return report.deployments.flatMap(({ findings }) =>
    findings.map(({ check, subject, problem, mark }) => [check, subject, problem ?? mark].join(' ')),
  );
}

/** The one finding with this problem. */
export function findingOf(report: Report, problem: string): Finding {
  const found = report.deployments.flatMap(({ findings }) =>
    findings.filter((finding) => finding.problem === problem),
  );
  const [finding] = found;
  if (finding === undefined || found.length > 1) throw new Error(`${verdicts(report)} for ${problem}`);
  return finding;
}
