import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createCertificates } from '../../../src/simulator/certificates.ts';

export default async function setup() {
  // Certificates of the simulators, made once: each test file would load the library for them otherwise.
  process.env.TEST_CERTIFICATES = JSON.stringify(await createCertificates());
  // Every worker adds the tests that lack a package; the reporter reads them.
  process.env.TESTS_NOT_RUN = join(mkdtempSync(join(tmpdir(), 'tests-not-run-')), 'reasons');
  writeFileSync(process.env.TESTS_NOT_RUN, '');
}
