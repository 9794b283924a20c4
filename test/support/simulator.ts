import type { Certificates } from '../../src/simulator/certificates.ts';
import type { SimulatorSettings } from '../../src/simulator/settings.ts';
import {
  type Simulator,
  type SimulatorDeps,
  startSimulator as start,
} from '../../src/simulator/simulator.ts';

/** Target of a request to the service `submissions`. */
export const authors =
  '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?ids=%27DEMO-2026-0001%27&site_name=demo&external_id=123';

/** Certificates of the run; undefined outside of one, as in a benchmark. */
export function testCertificates(): Certificates | undefined {
  const { TEST_CERTIFICATES } = process.env;
  return TEST_CERTIFICATES === undefined ? undefined : JSON.parse(TEST_CERTIFICATES);
}

/** The simulator with the certificates of the run: every one has the same authority. */
export function startSimulator<Name extends string>(
  settings: SimulatorSettings<Name>,
  deps: SimulatorDeps = {},
): Promise<Simulator<Name>> {
  return start(settings, { certificates: testCertificates(), ...deps });
}
