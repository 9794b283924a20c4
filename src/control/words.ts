import { count, span } from '../base/units.ts';
import type { CredentialView, DeploymentView } from './view.ts';

/**
 * Every sentence in the views of a state: readiness and console. No other code reads them, so that they can be
 * reworded; a test rewords all of them.
 */
export const WORDS = {
  check: {
    starting: 'not ready: the gateway is starting',
    draining: 'is shutting down: send requests to another gateway',
    storeDown: 'Redis is unreachable: nonces are not shared with other replicas',
    auditFailing: (reason: string) => `the audit log cannot be written: ${reason}`,
    retentionHeld: (reason: string) => reason,
    streamFailing: (reason: string) => `the audit stream is unreachable: ${reason}`,
    sinkFailing: (reason: string) => `the audit sink gets nothing: ${reason}`,
    workersMissing: (serving: number, configured: number) =>
      `${serving} of ${configured} workers serve; the others are being started`,
    primaryAuditFailing: (reason: string) => `the primary's audit log cannot be written: ${reason}`,
    primaryRetentionHeld: (reason: string) => `the primary: ${reason}`,
    primaryStreamFailing: (reason: string) => `the primary cannot reach the audit stream: ${reason}`,
    configurationRefused: (reason: string) =>
      `the new configuration is refused, and the one before stays in use: ${reason}`,
    needsRestart: (keys: readonly string[]) =>
      `changed in the file, but a restart is needed: ${keys.join(', ')}`,
    credentialRefused: (credential: string) =>
      `the upstream refuses the credential ${credential}: check user name and password`,
    credentialRejected: (credential: string) =>
      `the upstream refuses the new version of the credential ${credential}, and the old one stays: check it`,
    egressMissing: (count: number) =>
      count === 1
        ? 'the address of egress.localAddress is not on this host: add it to an interface'
        : 'none of the addresses of egress.localAddress is on this host: add one to an interface',
    egressPassedOver: (deployment: string, address: string, status: string, outcome: string) =>
      status === 'missing'
        ? `${deployment}: requests do not leave from ${address}, which is not on this host`
        : `${deployment}: requests do not leave from ${address}, which the upstream refuses (outcome ${outcome})`,
    addressFailing: (address: string, age: number, circuit: string, reason: string) => {
      const state = circuit === 'closed' ? '' : ` (circuit ${circuit})`;
      return `${address} has been failing for ${span(age)}${state}: ${reason}`;
    },
    paused: (credential: string, outcome: string, until: number) => {
      const which = credential === '' ? '' : `requests with the credential ${credential} are `;
      return `${which}paused until ${new Date(until).toISOString()}, by outcome ${outcome}`;
    },
    address: (address: string, health: string, age: number, circuit: string) =>
      `${address} ${health} for ${span(age)}, circuit ${circuit}`,
  },
  credential: {
    'in-use': 'in use',
    fallback: 'kept as fallback',
    candidate: 'waits to be tried',
    waiting: 'waits for the upstream',
    rejected: 'rejected by the upstream',
    refused: 'refused',
  } satisfies Record<CredentialView['status'], string>,
  egress: {
    'in-use': () => 'in use',
    standby: () => 'on standby',
    refused: (outcome: string) => `refused by the upstream (outcome ${outcome})`,
    missing: () => 'not on this host',
  } satisfies Record<DeploymentView['egress'][number]['status'], (outcome: string) => string>,
  chain: {
    intact:
      'the newest segment was verified at the start; run digest-gateway audit verify to check the whole log.',
    altered: (finding: string) => `${finding}; run digest-gateway audit verify.`,
  },
  condition: {
    quiet: 'No errors and no requests.',
    served: (requests: number, refused: number, seconds: number) => {
      const refusals = refused === 0 ? '' : `, ${refused} refused to clients`;
      return `${count(requests, 'request')} in the last ${recent(seconds)}: none failed${refusals}.`;
    },
    allFailed: (seconds: number, causes: string) =>
      `Every request of the last ${recent(seconds)} failed: ${causes}.`,
    someFailed: (errors: number, requests: number, seconds: number, causes: string) =>
      `${errors} of ${count(requests, 'request')} in the last ${recent(seconds)} failed: ${causes}.`,
    refused: (refused: number, requests: number, seconds: number, causes: string) =>
      `${refused} of ${count(requests, 'request')} in the last ${recent(seconds)} were refused to clients: ${causes}.`,
    certificate: (expiry: string) => `The upstream's certificate ${expiry}.`,
    noncesExpire: (challenges: number, requests: number) =>
      `The upstream asked for authentication again for ${challenges} of ${requests} requests: its nonces expire early.`,
    deploymentNotOk: (deployment: string, state: string) => `${deployment} is ${state}.`,
    nothingWrong: (deployments: number) => `${count(deployments, 'deployment')}, nothing wrong.`,
    upstreamError: 'an error of the upstream',
  },
};

function recent(seconds: number): string {
  return seconds > 50 ? 'minute' : `${Math.max(1, Math.round(seconds))} s`;
}
