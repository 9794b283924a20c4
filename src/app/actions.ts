import type { Audit } from '../audit/audit.ts';
import { monotonicClock } from '../base/clock.ts';
import { messageOf } from '../base/error-code.ts';
import type { Log } from '../base/log.ts';
import { ownEntry } from '../base/maps.ts';
import { count } from '../base/units.ts';
import type { ActionName, CredentialResultView, FindingView } from '../control/action-view.ts';
import type { ReloadResult } from '../control/actions.ts';
import { ControlError } from '../control/control-error.ts';
import type {
  ActionOutcome,
  ActionPlan,
  ActionRequest,
  Actor,
  CredentialCommands,
  GatewayActions,
  Promotion,
  ProposalEvent,
  ProposedAction,
  Sender,
} from '../control/gateway-actions.ts';
import { type Operator, operatorDetails } from '../control/operators.ts';
import { type CredentialVersionState, statusOf } from '../control/state.ts';
import { WORDS } from '../control/words.ts';
import { examine, type Report } from '../doctor/doctor.ts';
import type { Finding } from '../doctor/finding.ts';
import { CredentialActions, type CredentialActionsDeps, type SealedNext } from './credential-actions.ts';
import { doctorInput } from './deployments.ts';
import type { ReloadCause } from './reloads.ts';

/** Maximum time of doctor, in milliseconds. */
const DOCTOR_MS = 30_000;
/** Deployments that are examined at once; each opens connections of its own. */
const EXAMINED = 50;

interface ActionsDeps extends CredentialActionsDeps {
  readonly audit: Audit;
  readonly log: Log;
  /** Never rejects. `files`: a hash of those to read; undefined: any. */
  readonly reload: (sender: Omit<ReloadCause, 'by'>, files: string | undefined) => Promise<ReloadResult>;
  readonly isDraining: () => boolean;
  /** Begins the shutdown. */
  readonly drain: () => void;
}

/** A request whose action is recorded with what it finds out before. */
type RecordedRequest = Exclude<ActionRequest, { readonly action: 'retry' | 'withdraw' }>;
interface NamedAction {
  readonly action: ActionName;
  readonly credential?: string;
}
type VersionRequest = Extract<ActionRequest, { readonly action: 'promote' | 'roll-back' }>;

/** The actions that an operator takes in the console. Each is recorded before it has an effect. */
export class Actions implements GatewayActions, CredentialCommands {
  readonly #deps: ActionsDeps;
  readonly #credentials: CredentialActions;

  constructor(deps: ActionsDeps) {
    this.#deps = deps;
    this.#credentials = new CredentialActions(deps);
  }

  async plan(request: ActionRequest): Promise<ActionPlan> {
    this.#check();
    switch (request.action) {
      case 'reload':
        return this.#planReload();
      case 'drain':
        return { request, effects: this.#drainEffects() };
      case 'doctor':
        return { request, effects: this.#doctorEffects(request.deployment) };
      case 'promote':
      case 'roll-back':
        return this.#planVersion(request, await this.#version(request, request.version));
      case 'retry':
        return { request, effects: retryEffects(await this.#credentials.refusedAt(request.credential)) };
      case 'withdraw':
        return {
          request,
          effects: withdrawEffects(await this.#credentials.withdrawable(request.credential)),
        };
    }
  }

  async perform(request: ActionRequest, actor: Actor): Promise<ActionOutcome> {
    if (request.action === 'retry') {
      const { deployments } = await this.#retry(request.credential, actor);
      return { result: `The credential is accepted again at ${deployments.join(', ')}.`, notes: [] };
    }
    if (request.action === 'withdraw') {
      const { version, deployments: used } = await this.#withdraw(request.credential, actor);
      const notes = used.map(
        (deployment) => `It has become the version in use at ${deployment}, and stays there.`,
      );
      return { result: `Version ${version} of ${request.credential} is withdrawn.`, notes };
    }
    return this.#recorded(request, actor, () => this.#perform(request, actor));
  }

  async note(
    event: ProposalEvent,
    { id, request }: ProposedAction,
    { by, address, operator }: Sender,
  ): Promise<void> {
    const details = { ...request, proposal: id, by, address, ...operatorDetails(operator) };
    if (!(await this.#deps.audit.adminWritten(event, details))) throw new ControlError('audit-unavailable');
  }

  noteExpired({ id, request }: ProposedAction, proposer: Operator): void {
    this.#deps.audit.admin('action-expired', { ...request, ...proposalDetails({ id, proposer }) });
  }

  async promote(promotion: Promotion, address: string): Promise<CredentialResultView> {
    const { credential } = promotion;
    const { version, deployments } = await this.#credentials.promotable(promotion);
    const action = { action: 'promote', credential, version, deployments } as const;
    return this.#recorded(action, { by: 'token', address, operator: undefined }, async () => {
      await this.#credentials.promote(deployments.map((deployment) => ({ deployment, credential, version })));
      return { result: 'success', credential, version, deployments };
    });
  }

  retry(credential: string, address: string): Promise<CredentialResultView> {
    return this.#retry(credential, { by: 'token', address, operator: undefined });
  }

  withdraw(credential: string, address: string): Promise<CredentialResultView> {
    return this.#withdraw(credential, { by: 'token', address, operator: undefined });
  }

  async #retry(credential: string, actor: Omit<Actor, 'signal'>): Promise<CredentialResultView> {
    const refused = this.#credentials.refusedAt(credential);
    const deployments = await this.#closingProposal({ action: 'retry', credential }, actor, refused);
    const action = { action: 'retry', credential, deployments } as const;
    return this.#recorded(action, actor, async () => {
      await this.#credentials.retry(credential, deployments);
      return { result: 'success', credential, deployments };
    });
  }

  async #withdraw(credential: string, actor: Omit<Actor, 'signal'>): Promise<CredentialResultView> {
    const sealed = this.#credentials.withdrawable(credential);
    const next = await this.#closingProposal({ action: 'withdraw', credential }, actor, sealed);
    const { version, entries } = next;
    const action = { action: 'withdraw', credential, version, entries } as const;
    return this.#recorded(action, actor, async () => {
      const deployments = await this.#credentials.withdraw(credential, next);
      return { result: 'success', credential, version, deployments };
    });
  }

  /** Writes a record before an action has an effect, and one of its result. */
  async #recorded<T>(action: NamedAction, actor: Omit<Actor, 'signal'>, act: () => Promise<T>): Promise<T> {
    const { audit, log } = this.#deps;
    const { by, address } = actor;
    const person = personDetails(actor);
    const details = { ...action, by, address, ...person };
    await this.#closingProposal(action, actor, this.#begin(details));
    log.info(details, 'action of an operator');
    try {
      const outcome = await act();
      audit.admin('action-result', { ...action, ...person, result: 'success' });
      return outcome;
    } catch (error) {
      this.#noteFailure(action, actor, error);
      throw error;
    }
  }

  async #begin(details: Parameters<Audit['adminWritten']>[1]): Promise<void> {
    this.#check();
    if (!(await this.#deps.audit.adminWritten('action', details)))
      throw new ControlError('audit-unavailable');
  }

  /** Waits for what an action needs before its record. If that fails, a proposal that was confirmed still has its end. */
  async #closingProposal<T>(
    action: NamedAction,
    actor: Omit<Actor, 'signal'>,
    finding: Promise<T>,
  ): Promise<T> {
    try {
      return await finding;
    } catch (error) {
      if (actor.proposal !== undefined) this.#noteFailure(action, actor, error);
      throw error;
    }
  }

  #noteFailure(action: NamedAction, actor: Omit<Actor, 'signal'>, error: unknown): void {
    const { audit, log } = this.#deps;
    const code = error instanceof ControlError ? error.code : 'action-failed';
    audit.admin('action-result', { ...action, ...personDetails(actor), result: 'failure', code });
    log.warn({ action: action.action, code, reason: messageOf(error) }, 'action failed');
  }

  #check(): void {
    if (this.#deps.isDraining()) throw new ControlError('gateway-draining');
  }

  #perform(request: RecordedRequest, actor: Actor): Promise<ActionOutcome> {
    switch (request.action) {
      case 'reload':
        return this.#reload(actor, request.files);
      case 'drain':
        return Promise.resolve({
          result: 'The gateway is shutting down.',
          notes: [],
          afterwards: () => this.#deps.drain(),
        });
      case 'doctor':
        return this.#examine(request.deployment, actor);
      case 'promote':
      case 'roll-back':
        return this.#promote(request);
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
    const files = (await source.hash()) ?? REFUSED_FILES;
    const state =
      files === REFUSED_FILES ? 'Its files are refused as they are.' : `Its files have the hash ${files}.`;
    return { request: { action: 'reload', files }, effects: [...RELOAD, state] };
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
    const deps = { clock: monotonicClock, wallTime: Date.now, signal: limited };
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

  /** Finds a version of a credential. `version` undefined: the first one that is kept as fallback. */
  async #version(
    { deployment, credential }: VersionRequest,
    version: string | undefined,
  ): Promise<CredentialVersionState> {
    const { deployments } = await this.#deps.state();
    const found = deployments.find(({ name }) => name === deployment);
    const versions = found?.credentials.filter((each) => each.credential === credential) ?? [];
    if (versions.length === 0) throw new ControlError('target-unknown');
    if (version === undefined) {
      const fallback = versions.find(({ state }) => state === 'fallback');
      if (fallback === undefined) throw new ControlError('no-fallback');
      return fallback;
    }
    const chosen = versions.find((each) => each.version === version);
    if (chosen === undefined) throw new ControlError('target-unknown');
    if (chosen.state === 'in-use') throw new ControlError('version-in-use');
    return chosen;
  }

  #planVersion(request: VersionRequest, chosen: CredentialVersionState): ActionPlan {
    const { deployment, credential } = request;
    const { version } = chosen;
    const status = WORDS.credential[statusOf(chosen)];
    return {
      request: { ...request, version },
      effects: [
        `The gateway tests version ${version} of ${credential}, which is ${status}, at ${deployment} with a request of its own.`,
        'If the upstream accepts it, every request from then on uses it, in all workers of this gateway. Otherwise nothing changes.',
        'The version that is in use now is kept as fallback, and is used again if the upstream refuses this one.',
        'It holds until a restart, which starts with the current version of the configuration. Other replicas choose for themselves.',
      ],
    };
  }

  async #promote({ deployment, credential, version = '' }: VersionRequest): Promise<ActionOutcome> {
    await this.#credentials.promote([{ deployment, credential, version }]);
    return { result: `Version ${version} of ${credential} is in use at ${deployment}.`, notes: [] };
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

function retryEffects(deployments: readonly string[]): string[] {
  return [
    `The gateway asks ${deployments.join(', ')} with requests of its own whether a version of the credential is accepted.`,
    'If one is, every request from then on uses it, in all workers of this gateway.',
    'Each version that is still refused is a failed login there. A minute has no more of them than digest.attemptsWhenRefused allows.',
  ];
}

function withdrawEffects({ version, section, entries }: SealedNext): string[] {
  return [
    `Version ${version} is removed from ${section.file} (${entries.join(', ')}), and dropped in all workers of this gateway.`,
    'The version in use stays in use.',
    'The secret cannot be restored from there: to use it later, seal it again.',
  ];
}

function findingsOf({ deployments, redis, audit, revocation, signIn }: Report): FindingView[] {
  const ofGateway = [redis, audit, revocation, signIn].flatMap((finding) =>
    finding === null ? [] : [finding],
  );
  return [
    ...deployments.flatMap(({ name, origin, findings }) =>
      findings.map((finding) => findingView(finding, name, origin)),
    ),
    ...ofGateway.map((finding) => findingView(finding, '', '')),
  ];
}

function findingView(
  { mark, check, subject = '', saw, advice = '' }: Finding,
  deployment: string,
  origin: string,
): FindingView {
  return { deployment, origin, mark, check, subject, saw, advice };
}
