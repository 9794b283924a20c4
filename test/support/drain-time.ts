import { parseConfig } from '../../src/config/load.ts';
import { CLIENTS, CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';

/** The longest that a drain takes with the defaults, in seconds. */
export function defaultDrainSeconds(): number {
  const { delay, timeout } = parseConfig(`${CREDENTIALS}\n${DEPLOYMENTS}\n${CLIENTS}`, 'c.yaml').drain;
  return (delay + timeout) / 1000;
}
