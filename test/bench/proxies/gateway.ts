import { startGateway } from '../../support/running-gateway.ts';
import { reportCpu } from './report-cpu.ts';

/** The gateway as `serve` runs it: Digest, metrics, everything. */
const [, , origin = '', ca = ''] = process.argv;
const { port } = await startGateway({ bench: { origin, ca } });
reportCpu(port);
