import { setTimeout as delay } from 'node:timers/promises';
import type { Audit } from '../audit/audit.ts';
import { monotonicClock } from '../base/clock.ts';
import { messageOf } from '../base/error-code.ts';
import type { Log } from '../base/log.ts';
import { count } from '../base/units.ts';
import type {
  ActionOutcome,
  ActionPlan,
  ActionRequest,
  Actor,
  GatewayActions,
  Promotion,
  ReloadResult,
} from '../control/actions.ts';
import { ControlError } from '../control/control-error.ts';
import { type CredentialVersionState, type GatewayState, statusOf } from '../control/state.ts';
import type { ActionName, FindingView, PromotedView } from '../control/view.ts';
import { WORDS } from '../control/words.ts';
import { examine, type Report } from '../doctor/doctor.ts';
import type { Finding } from '../doctor/finding.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { VersionTest } from '../upstream/credential.ts';
import { doctorInput } from './deployments.ts';
import type { DeploymentVersion, Serving } from './worker.ts';

/** Maximum time of doctor, in milliseconds. */
const DOCTOR_MS = 30_000;
/** Maximum time of the tests of a version, in milliseconds: shorter than the idle timeout of the control plane. */
const TEST_MS = 20_000;
/** Deployments that are examined at once; each opens connections of its own. */
const EXAMINED = 50;

interface ActionsDeps {
  readonly serving: Pick<Serving, 'testVersion' | 'promote'>;
  readonly audit: Audit;
  readonly log: Log;
  /** Returns the active setup. */
  readonly setup: () => AppSetup;
  readonly state: () => Promise<GatewayState>;
  /** Never rejects. */
  readonly reload: (address: string) => Promise<ReloadResult>;
  readonly isDraining: () => boolean;
  /** Begins the shutdown. */
  readonly drain: () => void;
}

type VersionRequest = Extract<ActionRequest, { readonly action: 'promote' | 'roll-back' }>;

/** The actions that an operator takes in the console. Each is recorded before it has an effect. */
export class Actions implements GatewayActions {
  readonly #deps: ActionsDeps;

  constructor(deps: ActionsDeps) {
    this.#deps = deps;
  }

  async plan(request: ActionRequest): Promise<ActionPlan> {
    this.#check();
    switch (request.action) {
      case 'reload':
        return { request, effects: RELOAD };
      case 'drain':
        return { request, effects: this.#drainEffects() };
      case 'doctor':
        return { request, effects: this.#doctorEffects(request.deployment) };
      case 'promote':
        return this.#planVersion(request, await this.#version(request, request.version));
      case 'roll-back':
        return this.#planVersion(request, await this.#version(request, request.version));
    }
  }

  perform(request: ActionRequest, actor: Actor): Promise<ActionOutcome> {
    return this.#recorded(request, actor, () => this.#perform(request, actor));
  }

  /**
   * Puts a version in use at every deployment that has it, if each upstream accepts it; otherwise nothing changes.
   * @throws ControlError if it is refused
   */
  async promoteEverywhere(promotion: Promotion, address: string): Promise<PromotedView> {
    const { credential } = promotion;
    const { version, deployments } = await this.#promotable(promotion);
    const action = { action: 'promote', credential, version, deployments } as const;
    return this.#recorded(action, { by: 'token', address }, async () => {
      const choices = deployments.map((deployment) => ({ deployment, credential, version }));
      await this.#test(choices);
      await this.#promoteAll(choices);
      return { result: 'success', credential, version, deployments };
    });
  }

  /** Writes a record before an action has an effect, and one of its result. */
  async #recorded<T>(
    action: { readonly action: ActionName },
    { by, address }: Pick<Actor, 'by' | 'address'>,
    act: () => Promise<T>,
  ): Promise<T> {
    const { audit, log } = this.#deps;
    this.#check();
    const details = { ...action, by, address };
    if (!(await audit.adminWritten('action', details))) throw new ControlError('audit-unavailable');
    log.info(details, 'action of an operator');
    try {
      const outcome = await act();
      audit.admin('action-result', { ...action, result: 'success' });
      return outcome;
    } catch (error) {
      const code = error instanceof ControlError ? error.code : 'action-failed';
      audit.admin('action-result', { ...action, result: 'failure', code });
      log.warn({ action: action.action, code, reason: messageOf(error) }, 'action failed');
      throw error;
    }
  }

  #check(): void {
    if (this.#deps.isDraining()) throw new ControlError('gateway-draining');
  }

  #perform(request: ActionRequest, actor: Actor): Promise<ActionOutcome> {
    switch (request.action) {
      case 'reload':
        return this.#reload(actor);
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

  async #reload({ address }: Actor): Promise<ActionOutcome> {
    const reloaded = await this.#deps.reload(address);
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

  #drainEffects(): string[] {
    const { delay, timeout } = this.#deps.setup().config.drain;
    return [
      'The gateway reports not ready at once, as after SIGTERM.',
      `It serves for ${delay / 1000} s more, accepts no connections then, and lets requests end for up to ${timeout / 1000} s.`,
      'The process exits with status 0. Under a supervisor, such as Kubernetes or systemd with Restart=always, it is started again; otherwise it stays down.',
    ];
  }

  #doctorEffects(deployment: string | undefined): string[] {
    const { deployments } = this.#deps.setup().config;
    if (deployment !== undefined && deployments[deployment] === undefined) {
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
    const report = await examine(doctorInput(this.#deps.setup(), deployment), deps);
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
    const choice: DeploymentVersion = { deployment, credential, version };
    await this.#test([choice]);
    await this.#promoteAll([choice]);
    return { result: `Version ${version} of ${credential} is in use at ${deployment}.`, notes: [] };
  }

  /** @throws ControlError that says where the versions are in use, unless they are everywhere */
  async #promoteAll(choices: readonly DeploymentVersion[]): Promise<void> {
    await this.#deps.serving.promote(choices).catch((error: unknown) => {
      throw new ControlError('action-failed', `The promotion failed: ${messageOf(error)}.`);
    });
  }

  /**
   * Tests versions one after the other, so that a wrong one costs one refused attempt.
   * @throws ControlError unless each upstream accepts its version
   */
  async #test(choices: readonly DeploymentVersion[]): Promise<void> {
    const over = new AbortController();
    const untilRefused = async (): Promise<VersionTest> => {
      for (const choice of choices) {
        const test = await this.#deps.serving.testVersion(choice);
        if (over.signal.aborted || (test !== 'accepted' && test !== 'in-use')) return test;
      }
      return 'accepted';
    };
    // A test that ends later changes nothing: the operator has been told that it failed.
    const test = await Promise.race([
      untilRefused(),
      delay(TEST_MS, 'unclear' as const, { signal: over.signal }),
    ]).finally(() => over.abort());
    if (test === 'unknown') throw new ControlError('target-unknown');
    if (test === 'spent') throw new ControlError('attempts-used-up');
    if (test === 'refused') throw new ControlError('version-refused');
    if (test === 'unclear') throw new ControlError('version-unclear');
  }

  /** The version, and the deployments that have it and do not use it yet. */
  async #promotable({ credential, version }: Promotion): Promise<{
    readonly version: string;
    readonly deployments: readonly string[];
  }> {
    const { deployments } = await this.#deps.state();
    const held = deployments.flatMap(({ name: deployment, credentials }) =>
      credentials.filter((each) => each.credential === credential).map((each) => ({ deployment, ...each })),
    );
    if (held.length === 0) throw new ControlError('target-unknown');
    const chosen = version ?? held.find(({ state }) => UNUSED.includes(state))?.version;
    if (chosen === undefined) throw new ControlError('no-next-version');
    const ofVersion = held.filter((each) => each.version === chosen);
    if (ofVersion.length === 0) throw new ControlError('target-unknown');
    const unused = ofVersion.filter(({ state }) => state !== 'in-use');
    if (unused.length === 0) throw new ControlError('version-in-use');
    return { version: chosen, deployments: unused.map(({ deployment }) => deployment) };
  }
}

/** States of a next version that is not in use. */
const UNUSED: readonly CredentialVersionState['state'][] = ['candidate', 'waiting'];

const RELOAD = [
  'The gateway reads its configuration again, with the secrets and certificates that it names.',
  'If it is refused, nothing changes. Open connections and requests go on.',
];

function findingsOf({ deployments, redis, audit, revocation }: Report): FindingView[] {
  const ofGateway = [redis, audit, revocation].flatMap((finding) => (finding === null ? [] : [finding]));
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
