import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../base/error-code.ts';
import { ownEntry } from '../base/maps.ts';
import { ControlError, type ControlErrorCode } from '../control/control-error.ts';
import type { ActionRequest, VersionAt } from '../control/gateway-actions.ts';
import type { CredentialVersionState, GatewayState } from '../control/state.ts';
import { type CredentialSources, sealedEntriesOf } from '../credentials/reading.ts';
import { SealedError, type SealedSection } from '../credentials/sealed-file.ts';
import { changeEntries, type EntryChange, SealingError, withdraw } from '../credentials/sealing.ts';
import { type ProcessContext, SourceReader } from '../credentials/sources.ts';
import type { SetupSource } from '../setup/setup.ts';
import type { VersionTest } from '../upstream/credential.ts';
import type { Reloads } from './reloads.ts';
import type { DeploymentVersion, Workers } from './worker.ts';
import { usedAt } from './worker-state.ts';

/** Maximum time of the tests of versions, in milliseconds: shorter than the idle timeout of the control plane. */
const TEST_MS = 20_000;

export interface CredentialActionsDeps {
  readonly workers: Pick<Workers, 'testVersion' | 'promote'>;
  readonly reloads: Pick<Reloads, 'active' | 'readCredentials'>;
  /** Undefined: the setup of this process is not from a file. */
  readonly source: SetupSource | undefined;
  readonly state: () => Promise<GatewayState>;
}

export type VersionRequest = Extract<ActionRequest, { readonly action: 'promote' | 'roll-back' }>;

/** A version that is to be used, where it is not yet. */
interface Usable extends Required<VersionAt> {
  readonly state: CredentialVersionState;
}

/** A next version in the sealed file. */
interface SealedNext {
  readonly version: string;
  readonly section: SealedSection;
  readonly context: ProcessContext;
  /** The entries that it comes from, with the next version of each in the file. */
  readonly entries: ReadonlyMap<string, number>;
}

type Held = CredentialVersionState & { readonly deployment: string };

/** Actions of operators on credentials: in all workers and at all deployments, or an error says where it holds. */
export class CredentialActions {
  readonly #deps: CredentialActionsDeps;

  constructor(deps: CredentialActionsDeps) {
    this.#deps = deps;
  }

  /**
   * The version that a request means, at the deployments that have it and do not use it yet.
   * @throws ControlError if there is none
   */
  async usable({ action, credential, deployment, version }: VersionRequest): Promise<Usable> {
    const held = await this.#held(credential, deployment);
    const [states, code] = IMPLIED[action];
    const chosen = version ?? held.find(({ state }) => states.includes(state))?.version;
    if (chosen === undefined) throw new ControlError(code);
    const ofVersion = held.filter((each) => each.version === chosen);
    if (ofVersion.length === 0) throw new ControlError('target-unknown');
    const unused = ofVersion.filter(({ state }) => state !== 'in-use');
    const [state] = unused;
    if (state === undefined) throw new ControlError('version-in-use');
    return { version: chosen, deployments: unused.map((each) => each.deployment), state };
  }

  /**
   * Puts versions in use that their upstreams accept. They are tested one after the other, so that a wrong one costs one
   * refused attempt.
   * @throws ControlError unless each upstream accepts its version
   */
  async promote(choices: readonly DeploymentVersion[]): Promise<void> {
    const test = await inTime(async (over) => {
      for (const choice of choices) {
        const each = await this.#deps.workers.testVersion(choice);
        if (over.aborted || each !== 'accepted') return each;
      }
      return 'accepted';
    });
    if (test !== 'accepted') throw new ControlError(CODES[test]);
    await this.#use(choices);
  }

  /**
   * The deployments whose upstreams refuse every version of the credential.
   * @throws ControlError if there are none
   */
  async refusedAt(credential: string): Promise<readonly string[]> {
    const held = await this.#held(credential);
    const refused = held.filter(({ inUse, serves }) => inUse && !serves);
    if (refused.length === 0) throw new ControlError('not-refused');
    return refused.map(({ deployment }) => deployment);
  }

  /**
   * Asks these upstreams again whether they accept a version of the credential, as far as `attemptsWhenRefused` allows.
   * An accepted one is in use from then on.
   * @throws ControlError that says where it is accepted, unless it is everywhere
   */
  async retry(credential: string, deployments: readonly string[]): Promise<void> {
    const held = await this.#held(credential);
    const accepted: string[] = [];
    const failed: { readonly deployment: string; readonly test: Failed }[] = [];
    await Promise.all(
      deployments.map(async (deployment) => {
        const versions = held.filter((each) => each.deployment === deployment);
        const test = await inTime((over) => this.#firstAccepted(versions, over));
        if (test === 'accepted') accepted.push(deployment);
        else failed.push({ deployment, test });
      }),
    );
    const [first] = failed;
    if (first === undefined) return;
    const told = failed.map(({ deployment, test }) => `${deployment} ${RETRIED[test]}`);
    const also = accepted.length === 0 ? '' : ` It is accepted, and in use, at ${accepted.join(', ')}.`;
    const code = first.test === 'refused' ? 'credential-refused' : CODES[first.test];
    throw new ControlError(code, `The credential is not in use everywhere: ${told.join('; ')}.${also}`);
  }

  /**
   * The next version of the credential, if it is in the sealed file and not in use. `described`: the version that it was
   * when somebody was told what the withdrawal does; another one stays.
   * @throws ControlError otherwise
   */
  async withdrawable(credential: string, described: string | undefined): Promise<SealedNext> {
    const { config, credentials } = this.#deps.reloads.active;
    const given = ownEntry(config.credentials, credential);
    const version = credentials.get(credential)?.next?.version;
    if (given === undefined) throw new ControlError('target-unknown');
    if (version === undefined) throw new ControlError('nothing-to-withdraw');
    if (described !== undefined && described !== version) throw replaced(credential, described);
    if (given.next !== undefined) {
      const place = `credentials.${credential}.next`;
      const detail = `The next version of ${credential} is ${place} of the configuration: remove it there, and reload.`;
      throw new ControlError('next-configured', detail);
    }
    const { context } = this.#deps.source ?? {};
    const { sealed: section } = config;
    if (section === undefined || context === undefined) throw new ControlError('nothing-to-withdraw');
    const values = await new SourceReader(context, section).sealed().catch(notChanged);
    const entries = new Map<string, number>();
    for (const name of sealedEntriesOf(given)) {
      const next = values.get(name)?.next;
      if (next !== undefined) entries.set(name, next.version);
    }
    if (entries.size === 0) throw new ControlError('nothing-to-withdraw');
    // The entries may be of another one, which no watch has seen yet.
    await this.#deps.reloads.readCredentials();
    if (this.#nextOf(credential) !== version) throw replaced(credential, version);
    await this.#refuseUsed(entries);
    return { version, section, context, entries };
  }

  /**
   * Removes a next version from the sealed file, and drops it in all workers. Returns the deployments at which it has
   * become the version in use meanwhile, and stays.
   * @throws ControlError if another version is in its place, the file cannot be changed, or a worker cannot drop it
   */
  async withdraw(
    credential: string,
    { version, section, context, entries }: SealedNext,
  ): Promise<readonly string[]> {
    const reader = new SourceReader(context, section);
    const change: EntryChange = (entry, name) => {
      if (entry?.next?.version !== entries.get(name)) throw replaced(credential, version);
      return withdraw(entry, name);
    };
    await changeEntries(section, reader, [...entries.keys()], change).catch(notChanged);
    await this.#deps.reloads.readCredentials();
    if (this.#nextOf(credential) === version) {
      const dropped = `Version ${version} is withdrawn from ${section.file}, but the gateway still has it in all workers`;
      throw new ControlError(
        'action-failed',
        `${dropped}. It tries again by itself; the log says why it failed.`,
      );
    }
    return usedAt((await this.#deps.state()).deployments, credential, version);
  }

  #nextOf(credential: string): string | undefined {
    return this.#deps.reloads.active.credentials.get(credential)?.next?.version;
  }

  /**
   * The versions of a credential at each deployment, or at one.
   * @throws ControlError if there is none
   */
  async #held(credential: string, only?: string): Promise<readonly Held[]> {
    const { deployments } = await this.#deps.state();
    const held = deployments
      .filter(({ name }) => only === undefined || name === only)
      .flatMap(({ name: deployment, credentials }) =>
        credentials.filter((each) => each.credential === credential).map((each) => ({ deployment, ...each })),
      );
    if (held.length === 0) throw new ControlError('target-unknown');
    return held;
  }

  /** An entry can belong to several credentials. @throws ControlError if the next version of one is in use */
  async #refuseUsed(entries: ReadonlyMap<string, number>): Promise<void> {
    const { config, credentials } = this.#deps.reloads.active;
    const state = await this.#deps.state();
    const isShared = (given: CredentialSources): boolean =>
      sealedEntriesOf(given).some((entry) => entries.has(entry));
    for (const [name, given] of Object.entries(config.credentials)) {
      const version = credentials.get(name)?.next?.version;
      if (version === undefined || !isShared(given)) continue;
      const used = usedAt(state.deployments, name, version);
      if (used.length === 0) continue;
      const where = `Version ${version} of ${name} is in use at ${used.join(', ')}`;
      const advice = `roll back first, or make it the current one with credential rotate --promote`;
      throw new ControlError('next-in-use', `${where}, so it is not withdrawn: ${advice}.`);
    }
  }

  /** @throws ControlError that says where the versions are in use, unless they are everywhere */
  async #use(choices: readonly DeploymentVersion[]): Promise<void> {
    await this.#deps.workers.promote(choices).catch((error: unknown) => {
      throw new ControlError('action-failed', `The promotion failed: ${messageOf(error)}.`);
    });
  }

  /** Asks about one version after the other; the first that is accepted is put in use. */
  async #firstAccepted(versions: readonly Held[], over: AbortSignal): Promise<VersionTest> {
    let last: VersionTest = 'unknown';
    for (const { deployment, credential, version } of versions) {
      const choice = { deployment, credential, version };
      const test = await this.#deps.workers.testVersion(choice);
      if (over.aborted) return test;
      if (test === 'accepted') await this.#use([choice]);
      if (test === 'accepted' || test === 'spent') return test;
      last = test;
    }
    return last;
  }
}

/** The states of the version that a request without one means, and the error if there is none. */
const IMPLIED: Readonly<
  Record<VersionRequest['action'], readonly [readonly CredentialVersionState['state'][], ControlErrorCode]>
> = {
  promote: [['candidate', 'waiting'], 'no-next-version'],
  'roll-back': [['fallback'], 'no-fallback'],
};

type Failed = Exclude<VersionTest, 'accepted'>;

const CODES: Readonly<Record<Failed, ControlErrorCode>> = {
  unknown: 'target-unknown',
  spent: 'attempts-used-up',
  refused: 'version-refused',
  unclear: 'version-unclear',
};

/** How an upstream responds that does not accept the credential. */
const RETRIED: Readonly<Record<Failed, string>> = {
  unknown: 'has other versions in some workers',
  spent: 'has seen as many refused attempts as digest.attemptsWhenRefused allows in a minute: wait a minute',
  refused: 'refuses it',
  unclear: 'does not say whether it accepts it',
};

/** The result of tests that may take `TEST_MS`. One that ends later does not change the result that the operator saw. */
async function inTime(test: (over: AbortSignal) => Promise<VersionTest>): Promise<VersionTest> {
  const over = new AbortController();
  const { signal } = over;
  return Promise.race([test(signal), delay(TEST_MS, 'unclear' as const, { signal })]).finally(() =>
    over.abort(),
  );
}

/** Nothing is withdrawn that was not described. */
function replaced(credential: string, described: string): ControlError {
  const detail = `Version ${described} of ${credential} is not its next version any more, so nothing is withdrawn: start the action again.`;
  return new ControlError('nothing-to-withdraw', detail);
}

/** @throws ControlError if the sealed file cannot be read or written */
function notChanged(error: unknown): never {
  if (error instanceof SealedError || error instanceof SealingError)
    throw new ControlError('action-failed', `Nothing has changed: ${error.message}.`);
  throw error;
}
