import { count, span } from '../base/units.ts';
import type { CredentialView, DeploymentView } from './view.ts';

/**
 * Every sentence in the views of a state: readiness and console. No other code reads them, so that they can be
 * reworded; a test rewords all of them.
 */
export const WORDS = {
  check: {
    starting: 'the gateway is starting',
    draining: 'the gateway is shutting down',
    storeDown: (reasons: readonly string[]) => {
      const why = reasons.length === 0 ? '' : ` (${reasons.join('; ')})`;
      return `Redis is unreachable${why}: nonces are not shared with other replicas`;
    },
    auditFailing: (reason: string) => `the audit log cannot be written: ${reason}`,
    retentionHeld: (reason: string) => reason,
    sinkFailing: (reason: string) => `the audit sink fails: ${reason}`,
    workersMissing: (serving: number, configured: number) => `${serving} of ${configured} workers serve`,
    primaryAuditFailing: (reason: string) => `the primary's audit log cannot be written: ${reason}`,
    primaryRetentionHeld: (reason: string) => `the primary: ${reason}`,
    configurationRefused: (reason: string) =>
      `the new configuration is refused, and the one before stays in use: ${reason}`,
    credentialsUnreadable: (reason: string) =>
      `credentials cannot be read, and their current versions stay in use: ${reason}`,
    needsRestart: (keys: readonly string[]) =>
      `changed in the file, but a restart is needed: ${keys.join(', ')}`,
    credentialRefused: (credential: string) => `the upstream refuses the credential ${credential}`,
    credentialRejected: (credential: string) =>
      `the upstream refuses the new version of the credential ${credential}, and the old one stays`,
    egressMissing: (count: number) =>
      count === 1
        ? 'the address of egress.localAddress is not on this host'
        : 'none of the addresses of egress.localAddress is on this host',
    egressPassedOver: (deployment: string, address: string, status: string, outcome: string) =>
      status === 'missing'
        ? `requests of ${deployment} do not leave from ${address}, which is not on this host`
        : `requests of ${deployment} do not leave from ${address}, which the upstream refuses (outcome ${outcome})`,
    addressFailing: (address: string, age: number, circuit: string, reason: string) => {
      const state = circuit === 'closed' ? '' : ` (circuit ${circuit})`;
      return `the address ${address} has been failing for ${span(age)}${state}: ${reason}`;
    },
    paused: (credential: string, outcome: string, until: number) => {
      const which = credential === '' ? '' : `requests with the credential ${credential} are `;
      return `${which}paused until ${new Date(until).toISOString()}, by outcome ${outcome}`;
    },
    address: (address: string, health: string, age: number, circuit: string) =>
      `${address} ${health} for ${span(age)}, circuit ${circuit}`,
  },
  /** The next step for each error of a check. */
  next: {
    starting: 'wait: it serves within seconds',
    draining: 'send requests to another gateway',
    storeDown:
      'check that Redis runs, and run doctor: it tests address, TLS and password under redis; changed ones need a restart',
    auditFailing: 'free space on its disk, or give the gateway the right to write there',
    retentionHeld: 'see the audit log, and correct the clock or the files that are named',
    sinkFailing:
      'check the receiver and the way to it, or the file that is named: records are kept, and sent later',
    sinkRejected: 'copy the audit log, and follow DigestGatewayAuditWitnessConflict of the runbook',
    workersMissing: 'wait: the others are being started; if they end again, see the log',
    configurationRefused: 'remove the cause, and reload',
    credentialsUnreadable: 'correct their sources, which are then read by themselves',
    credentialRefused: 'check user name and password, correct their source, then retry the credential',
    credentialRejected: 'check the new password, then retry or withdraw it',
    egressMissing: 'add an address of egress.localAddress to an interface of this host',
    paused: 'wait, or ask the operator of the upstream',
    addressFailing: 'run doctor for the deployment, and ask the operator of the upstream',
    requestsFail: 'see the recent errors, and what each code means',
    upstreamFails: 'ask the operator of the upstream: it sent these responses with a status of 5xx',
    clientsRefused: 'see the clients: their rules, and what was refused to them',
    certificate: 'ask the operator of the upstream to renew it',
    noncesExpire: 'nothing fails: ask the operator of the upstream for a longer lifetime of nonces',
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
    unrouted: (errors: number, seconds: number, causes: string) =>
      `${count(errors, 'request')} in the last ${recent(seconds)} failed before a deployment was found: ${causes}.`,
    refused: (refused: number, requests: number, seconds: number, causes: string) =>
      `${refused} of ${count(requests, 'request')} in the last ${recent(seconds)} were refused to clients: ${causes}.`,
    certificate: (expiry: string) => `The upstream's certificate ${expiry}.`,
    noncesExpire: (challenges: number, requests: number) =>
      `The upstream asked for authentication again for ${challenges} of ${requests} requests: its nonces expire early.`,
    upstreamError: 'an error of the upstream',
  },
};

function recent(seconds: number): string {
  return seconds > 50 ? 'minute' : `${Math.max(1, Math.round(seconds))} s`;
}
