import { createCertificates } from '../../../src/simulator/certificates.ts';

/** Makes the certificates of the simulators of a run, once: each test file would load the library for it otherwise. */
export default async function setup() {
  process.env.TEST_CERTIFICATES = JSON.stringify(await createCertificates());
}
