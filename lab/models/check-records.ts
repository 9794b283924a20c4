import type { FlightRecord } from '../simulation/flight.ts';
import { CREDENTIALS, credentialTracesOf } from './credential-trace.ts';
import { NONCES, nonceTracesOf } from './nonce-trace.ts';
import { checkTraces, type RefusedTrace, type TraceReport } from './traces.ts';

export interface RecordsReport {
  readonly nonces: TraceReport;
  readonly credentials: TraceReport;
  /** Of both. */
  readonly refused: readonly RefusedTrace[];
}

/**
 * Checks that what flight records of gateways that share a store show of nonces and credentials is a behaviour of the
 * models. @throws Error if Spin fails
 */
export async function checkRecords(records: readonly FlightRecord[]): Promise<RecordsReport> {
  const nonces = await checkTraces(NONCES, nonceTracesOf(records));
  const credentials = await checkTraces(CREDENTIALS, credentialTracesOf(records));
  return { nonces, credentials, refused: [...nonces.refused, ...credentials.refused] };
}
