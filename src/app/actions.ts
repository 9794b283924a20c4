import type { Audit } from '../audit/audit.ts';
import { messageOf } from '../base/error-code.ts';
import type { Log } from '../base/log.ts';
import { ownEntry } from '../base/maps.ts';
import { count } from '../base/units.ts';
import { type ConfigError, formatIssue } from '../config/issues.ts';
import type { ActionName, FindingView } from '../control/action-view.ts';
import type { ReloadResult } from '../control/actions.ts';
import { ControlError } from '../control/control-error.ts';
import type {
  ActionOutcome,
  ActionPlan,
  ActionRequest,
  Actor,
  GatewayActions,
  ProposalEvent,
  ProposedAction,
  Sender,
} from '../control/gateway-actions.ts';
import { type Operator, operatorDetails } from '../control/operators.ts';
import { statusOf } from '../control/state.ts';
import { WORDS } from '../control/words.ts';
import { examine, type Report } from '../doctor/doctor.ts';
import { CredentialActions, type CredentialActionsDeps, type VersionRequest } from './credential-actions.ts';
import { doctorInput } from './deployments.ts';
import type { ReloadCause } from './reloads.ts';

/** Maximum time of doctor, in milliseconds. */
const DOCTOR_MS = 30_000;
/** Deployments that are examined at once; each opens connections of its own. */
const EXAMINED = 50;
const NO_AUDIT =
  'This needs an audit log, which records it. Add an audit section to the configuration, and restart the gateway.';

interface ActionsDeps extends CredentialActionsDeps {
  readonly audit: Audit;
  readonly log: Log;
  /** Never rejects. `files`: a hash of those to read; undefined: any. */
  readonly reload: (sender: Omit<ReloadCause, 'by'>, files: string | undefined) => Promise<ReloadResult>;
  readonly isDraining: () => boolean;
  /** Begins the shutdown. */
  readonly drain: () => void;
}

/** An action that is possible now. */
interface Prepared {
  readonly plan: () => ActionPlan | Promise<ActionPlan>;
  /** The fields of its records. */
  readonly details: Details;
  readonly act: (actor: Actor) => Promise<ActionOutcome>;
}

type Details = Parameters<Audit['adminWritten']>[1] & { readonly action: ActionName };

/** The actions that an operator takes in the console. Each is recorded before it has an effect. */
export class Actions implements GatewayActions {
  readonly #deps: ActionsDeps;
  readonly #credentials: CredentialActions;

  constructor(deps: ActionsDeps) {
    this.#deps = deps;
    this.#credentials = new CredentialActions(deps);
  }

  async plan(request: ActionRequest): Promise<ActionPlan> {
    this.#check();
    const { plan } = await this.#prepare(request);
    return plan();
  }

  async perform(request: ActionRequest, actor: Actor): Promise<ActionOutcome> {
    const { audit, log } = this.#deps;
    const { by, address } = actor;
    const person = personDetails(actor);
    let action: Details = request;
    // A proposal that was confirmed has its end in any case.
    let isRecorded = actor.proposal !== undefined;
    try {
      const { details, act } = await this.#prepare(request);
      action = details;
      this.#check();
      await this.#write('action', { ...details, by, address, ...person });
      isRecorded = true;
      log.info({ ...details, by, address, ...person }, 'action of an operator');
      const outcome = await act(actor);
      audit.admin('action-result', { ...details, ...person, result: 'success' });
      return outcome;
    } catch (error) {
      if (isRecorded) {
        const code = error instanceof ControlError ? error.code : 'action-failed';
        audit.admin('action-result', { ...action, ...person, result: 'failure', code });
        log.warn({ action: action.action, code, reason: messageOf(error) }, 'action failed');
      }
      throw error;
    }
  }

  async note(
    event: ProposalEvent,
    { id, request }: ProposedAction,
    { by, address, operator }: Sender,
  ): Promise<void> {
    await this.#write(event, { ...request, proposal: id, by, address, ...operatorDetails(operator) });
  }

  noteExpired({ id, request }: ProposedAction, proposer: Operator): void {
    this.#deps.audit.admin('action-expired', { ...request, ...proposalDetails({ id, proposer }) });
  }

  /** @throws ControlError if it cannot be recorded */
  async #write(event: 'action' | ProposalEvent, details: Details): Promise<void> {
    const { audit } = this.#deps;
    if (!audit.enabled) throw new ControlError('audit-unavailable', NO_AUDIT);
    if (!(await audit.adminWritten(event, details))) throw new ControlError('audit-unavailable');
  }

  #check(): void {
    if (this.#deps.isDraining()) throw new ControlError('gateway-draining');
  }

  /** @throws ControlError if the action is not possible now */
  async #prepare(request: ActionRequest): Promise<Prepared> {
    switch (request.action) {
      case 'reload':
        return {
          plan: () => this.#planReload(),
          details: request,
          act: (actor) => this.#reload(actor, request.files),
        };
      case 'drain': {
        const drained = { result: 'The gateway is shutting down.', notes: [] };
        const act = async () => ({ ...drained, afterwards: () => this.#deps.drain() });
        return { plan: () => ({ request, effects: this.#drainEffects() }), details: request, act };
      }
      case 'doctor': {
        const effects = this.#doctorEffects(request.deployment);
        const act = (actor: Actor) => this.#examine(request.deployment, actor);
        return { plan: () => ({ request, effects }), details: request, act };
      }
      case 'promote':
      case 'roll-back':
        return this.#prepareVersion(request);
      case 'retry':
        return this.#prepareRetry(request.credential);
      case 'withdraw':
        return this.#prepareWithdrawal(request.credential, request.version);
    }
  }

  async #reload({ address, operator }: Actor, files: string | undefined): Promise<ActionOutcome> {
    const reloaded = await this.#deps.reload({ address, ...operatorDetails(operator) }, files);
    if (reloaded.result === 'failure') {
      const { status, reason } = reloaded;
      if (status === 422) throw new ControlError('reload-refused', reason);
      if (status === 409) throw new ControlError('reload-impossible', `No reload is possible: ${reason}.`);
      throw new ControlError('action-failed');
    }
    const { changed, needsRestart, warnings } = reloaded;
    return {
      result:
        changed.length === 0 ? 'Reloaded: nothing has changed.' : `Reloaded. Changed: ${changed.join(', ')}.`,
      notes: [...needsRestart.map((key) => `${key} needs a restart.`), ...warnings],
    };
  }

  /** With the hash a second person confirms the files that the first one meant, and no others are used. */
  async #planReload(): Promise<ActionPlan> {
    const { source } = this.#deps;
    if (source === undefined) return { request: { action: 'reload' }, effects: RELOAD };
    const files = await source.hash();
    const [hash, state] =
      typeof files === 'string' ? [files, `have the hash ${files}.`] : [REFUSED_FILES, refusal(files)];
    return { request: { action: 'reload', files: hash }, effects: [...RELOAD, `Its files ${state}`] };
  }

  #drainEffects(): string[] {
    const { delay, timeout } = this.#deps.reloads.active.config.drain;
    return [
      'The gateway reports not ready at once, as after SIGTERM.',
      `It serves for ${delay / 1000} s more, accepts no connections then, and lets requests end for up to ${timeout / 1000} s.`,
      'The process exits with status 0. Under a supervisor, such as Kubernetes or systemd with Restart=always, it is started again; otherwise it stays down.',
    ];
  }

  #doctorEffects(deployment: string | undefined): string[] {
    const { deployments } = this.#deps.reloads.active.config;
    if (deployment !== undefined && ownEntry(deployments, deployment) === undefined) {
      throw new ControlError('target-unknown');
    }
    const count = deployment === undefined ? Object.keys(deployments).length : 1;
    if (count > EXAMINED) throw new ControlError('too-many-deployments');
    return [
      `Doctor opens connections of its own to ${deployment ?? 'every upstream, to Redis and to the audit folder'}.`,
      'It answers a challenge with each version of each credential, so an upstream that counts failures sees those that it refuses.',
      'It ends within 10 s. Requests of clients are not affected.',
    ];
  }

  async #examine(deployment: string | undefined, { signal }: Actor): Promise<ActionOutcome> {
    const limited = AbortSignal.any([signal, AbortSignal.timeout(DOCTOR_MS)]);
    const deps = { wallTime: Date.now, signal: limited };
    const report = await examine(doctorInput(this.#deps.reloads.active, deployment), deps);
    const { failures, warnings } = report;
    return {
      result:
        failures + warnings === 0
          ? 'All is well.'
          : `${count(failures, 'failure')}, ${count(warnings, 'warning')}.`,
      notes: [],
      findings: findingsOf(report),
    };
  }

  async #prepareVersion(request: VersionRequest): Promise<Prepared> {
    const { action, credential, deployment } = request;
    const { version, deployments, state } = await this.#credentials.usable(request);
    const at = deployments.join(', ');
    const effects = [
      `The gateway tests version ${version} of ${credential} (${WORDS.credential[statusOf(state)]}) at ${at} with a request of its own.`,
      'If the upstream accepts it, every request from then on uses it, in all workers of this gateway. Otherwise nothing changes.',
      'The version that is in use now is kept as fallback, and is used again if the upstream refuses this one.',
      'It holds until a restart, which starts with the current version of the configuration. Other replicas choose for themselves.',
    ];
    return {
      plan: () => ({ request: { ...request, version }, effects }),
      details: {
        action,
        credential,
        version,
        ...(deployment === undefined ? { deployments } : { deployment }),
      },
      act: async () => {
        await this.#credentials.promote(
          deployments.map((each) => ({ deployment: each, credential, version })),
        );
        const result = `Version ${version} of ${credential} is in use at ${at}.`;
        return { result, notes: [], at: { version, deployments } };
      },
    };
  }

  async #prepareRetry(credential: string): Promise<Prepared> {
    const action = 'retry';
    const deployments = await this.#credentials.refusedAt(credential);
    const at = deployments.join(', ');
    const effects = [
      `The gateway asks ${at} with requests of its own whether a version of the credential is accepted.`,
      'If one is, every request from then on uses it, in all workers of this gateway.',
      'Each version that is still refused is a failed login there. A minute has no more of them than digest.attemptsWhenRefused allows.',
    ];
    return {
      plan: () => ({ request: { action, credential }, effects }),
      details: { action, credential, deployments },
      act: async () => {
        await this.#credentials.retry(credential, deployments);
        return { result: `The credential is accepted again at ${at}.`, notes: [], at: { deployments } };
      },
    };
  }

  async #prepareWithdrawal(credential: string, described: string | undefined): Promise<Prepared> {
    const action = 'withdraw';
    const next = await this.#credentials.withdrawable(credential, described);
    const { version, section } = next;
    const entries = [...next.entries.keys()];
    const effects = [
      `Version ${version} is removed from ${section.file} (${entries.join(', ')}), and dropped in all workers of this gateway.`,
      'The version in use stays in use.',
      'The secret cannot be restored from there: to use it later, seal it again.',
    ];
    return {
      plan: () => ({ request: { action, credential, version }, effects }),
      details: { action, credential, version, entries },
      act: async () => {
        const deployments = await this.#credentials.withdraw(credential, next);
        const notes = deployments.map(
          (each) => `It has become the version in use at ${each}, and stays there.`,
        );
        const result = `Version ${version} of ${credential} is withdrawn.`;
        return { result, notes, at: { version, deployments } };
      },
    };
  }
}

/** The members of a record that name who acts. */
function personDetails({ operator, proposal }: Omit<Actor, 'signal'>): Readonly<Record<string, string>> {
  return { ...operatorDetails(operator), ...proposalDetails(proposal) };
}

/** The members of a record that name the proposal and the person who made it. */
function proposalDetails(proposal: Actor['proposal']): Readonly<Record<string, string>> {
  if (proposal === undefined) return {};
  const { id, proposer } = proposal;
  const { name, subject } = proposer;
  const named = { proposal: id, proposedBy: name };
  return name === subject ? named : { ...named, proposedBySubject: subject };
}

/** Stands for the hash of files that are refused. */
const REFUSED_FILES = 'refused';
const RELOAD = [
  'The gateway reads its configuration again, with the secrets and certificates that it names.',
  'If it is refused, nothing changes. Open connections and requests go on.',
];

function refusal({ issues: [first, ...others] }: ConfigError): string {
  const more = others.length === 0 ? '' : `; and ${others.length} more, which digest-gateway check lists`;
  return `are refused as they are: ${first === undefined ? '' : formatIssue(first)}${more}`;
}

function findingsOf({ deployments, gateway }: Report): FindingView[] {
  return [
    ...deployments.flatMap(({ name, findings }) =>
      findings.map((finding) => ({ deployment: name, ...finding })),
    ),
    ...gateway,
  ];
}
