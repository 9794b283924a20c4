import { stateOf } from '../base/file-watch.ts';
import { CredentialVersions } from '../credentials/credentials.ts';
import type { ProcessContext } from '../credentials/sources.ts';
import { type AppSetup, readSetup, readSetupInBackground } from './setup.ts';

/** The configuration file of a gateway, which is read at the start and at each reload. */
export class SetupSource {
  readonly file: string;
  readonly context: ProcessContext;
  /** An unchanged credential keeps its version from one reading to the next. */
  readonly versions = new CredentialVersions();
  /** State of the file before it was read last. */
  #state = '';

  constructor(file: string, context: ProcessContext) {
    this.file = file;
    this.context = context;
  }

  /**
   * Reads the setup of a gateway that starts.
   * @throws ConfigError with every issue
   */
  async readAtStart(): Promise<AppSetup> {
    this.#state = await stateOf([this.file]);
    return readSetup(this.file, this.context, this.versions);
  }

  /**
   * Reads the setup of a gateway that serves meanwhile.
   * @throws ConfigError with every issue
   */
  async readAgain(): Promise<AppSetup> {
    // Before the content is read: if it changes in between, `isChanged` is true, and it is read again.
    this.#state = await stateOf([this.file]);
    return readSetupInBackground(this.file, this.context, this.versions);
  }

  /** Resolves to false if the file was not written since it was read last. */
  async isChanged(): Promise<boolean> {
    return (await stateOf([this.file])) !== this.#state;
  }
}
